"""Blocks of a transaction that stage or send, one after the other."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tidelog.transport.deadline import Deadline


class Turns:
    """Lets one block run at a time, in the order of the calls."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._count = 0

    @asynccontextmanager
    async def turn(self, deadline: Deadline | None = None, what: str = "") -> AsyncGenerator[None, None]:
        """Run a block after those in progress; wait for them until a deadline, if there is one.

        Raises:
            DeadlineError: They did not end in time. It names ``what`` waited.
        """
        self._count += 1
        try:
            # Most transactions have one caller: it need not wait, so it needs no timer.
            if self._count == 1 or deadline is None:
                await self._lock.acquire()
            else:
                async with deadline.bounded(what):
                    await self._lock.acquire()
            try:
                yield
            finally:
                self._lock.release()
        finally:
            self._count -= 1
