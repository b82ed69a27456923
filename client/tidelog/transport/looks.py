"""Repeated calls to a node that may not know yet what another node has created, or what was just assigned to it."""

import asyncio
from typing import Final

from tidelog.errors import TidelogError
from tidelog.transport.deadline import Deadline

_LOOK_AGAIN_S: Final = 0.05
_KNOWN_WITHIN_S: Final = 2.0


class Looks:
    """The attempts of one call to the owner of a channel or mailbox, for up to two seconds."""

    def __init__(self, deadline: Deadline) -> None:
        """Begin the first attempt now; ``deadline`` is that of the call."""
        self._deadline = deadline
        self._loop = asyncio.get_running_loop()
        self._known_by_s = self._loop.time() + _KNOWN_WITHIN_S

    async def again(self, error: TidelogError) -> None:
        """Pause before the next attempt, because the node did not know the name; raise ``error`` if it is too late."""
        # Asked for again too late, the known reason would be lost.
        if self._loop.time() >= self._known_by_s or self._deadline.left_s <= _LOOK_AGAIN_S:
            raise error
        await asyncio.sleep(_LOOK_AGAIN_S)
