"""A lock for tasks of whichever event loop asks."""

import asyncio


class LoopLock:
    """One of asyncio's locks belongs to the loop in which somebody first waited for it; a client may live in several.

    In one loop at a time: another loop gets another lock.
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
