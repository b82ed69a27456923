"""A lock for the tasks of the running event loop."""

import asyncio


class LoopLock:
    """A lock that works in several event loops, one at a time: another loop gets another lock.

    An asyncio lock belongs to the loop in which a task first waited for it, but a client may be used in several loops.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    def here(self) -> asyncio.Lock:
        """Return the lock of the running loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock
