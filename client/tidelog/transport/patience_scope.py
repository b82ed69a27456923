"""The deadline of a wait for a server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

LATE_S: Final = 1.0
"""A timer that is later than this was held up by a pause of the program: answers may be waiting, and get as long."""


@asynccontextmanager
async def answer_by(when_s: float) -> AsyncGenerator[asyncio.Timeout, None]:
    """Cancel the block at ``when_s``, by the event loop's clock, as ``asyncio.timeout_at``; yield its scope.

    After a pause of the program, or of its event loop, the block has ``LATE_S`` more, for answers that have arrived
    meanwhile.
    """
    loop = asyncio.get_running_loop()
    scope = asyncio.timeout(None)

    def expire() -> None:
        now_s = loop.time()
        scope.reschedule(now_s + LATE_S if now_s > when_s + LATE_S else now_s)

    async with scope:
        timer = loop.call_at(when_s, expire)
        try:
            yield scope
        finally:
            timer.cancel()
