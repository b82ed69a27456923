"""The deadline of a wait for a server: of a block, or of each of many short waits."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from tidelog.errors import TidelogError

LATE_S: Final = 1.0
"""A timer that is later than this was held up by a pause of the program: answers may be waiting, and get as long."""


@asynccontextmanager
async def answer_by(when_s: float, silence: Callable[[], TidelogError]) -> AsyncGenerator[None, None]:
    """Run a block that waits for a server until ``when_s``, by the event loop's clock; then cancel it.

    After a pause of the program, or of its event loop, the block has ``LATE_S`` more, for answers that have arrived
    meanwhile.

    Raises:
        TidelogError: What ``silence`` returns, at the end of the time.
    """
    scope, alarm = asyncio.timeout(None), Alarm()
    try:
        async with scope:
            alarm.set(when_s, lambda: scope.reschedule(when_s))
            try:
                yield
            finally:
                alarm.stop()
    except TimeoutError as error:
        # DeadlineError is one too.
        if isinstance(error, TidelogError) or not scope.expired():
            raise
        raise silence() from error


class Alarm:
    """The deadline of one wait after another, each mostly short: moving it sets attributes, and no timer.

    One timer outlives many waits. When it ends, it is set again for the deadline of the wait under way.
    """

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._when_s = 0.0
        self._wake: Callable[[], object] | None = None

    def set(self, when_s: float, wake: Callable[[], object]) -> None:
        """Call ``wake`` at ``when_s``, by the running event loop's clock, unless the alarm is set again or cleared.

        After a pause of the program it is called ``LATE_S`` later, as in ``answer_by``.
        """
        loop = asyncio.get_running_loop()
        self._when_s, self._wake = when_s, wake
        # A fork replaces the event loop of the synchronous clients.
        if self._timer is None or self._loop is not loop or self._timer.when() > when_s:
            self._start(loop)

    def clear(self) -> None:
        """Call nothing. The timer stays, for the next wait."""
        self._wake = None

    def stop(self) -> None:
        """Call nothing, and end the timer."""
        self._wake = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._loop, self._timer = loop, loop.call_at(self._when_s, self._end, loop, self._when_s)

    def _end(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        self._timer = None
        if self._wake is None:
            return
        now_s = loop.time()
        if now_s > due_s + LATE_S:
            self._when_s = max(self._when_s, now_s + LATE_S)
        if self._when_s > now_s:
            self._start(loop)
        else:
            self._wake()
