"""What a client that finds owners makes: it is made without I/O, so it finds its node when it is used first."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

from tidelog.errors import ClosedError

_Place = TypeVar("_Place")
Find = Callable[[Sequence[str], Sequence[str]], Awaitable[Callable[[], _Place]]]
"""Finds the node that owns channels or vchannels, and mailboxes, and returns what returns a place there."""


class Located(Generic[_Place]):
    """Returns the transport, or the stream, of a node that ``located`` has found."""

    __slots__ = ("_at", "_find")

    def __init__(self, find: Find[_Place]) -> None:
        """Find nothing yet."""
        self._find = find
        self._at: Callable[[], _Place] | None = None

    async def find(self, names: Iterable[str], mailboxes: Iterable[str]) -> None:
        """Find the node, unless it is known. Raises TidelogError."""
        if self._at is None:
            self._at = await self._find(list(names), list(mailboxes))

    def __call__(self) -> _Place:
        """Return the place. Raises ClosedError before it is found."""
        if self._at is None:
            raise ClosedError("its node is not known yet: begin with `async with`, or with a call that waits")
        return self._at()


async def located(place: Callable[[], _Place], names: Iterable[str] = (), mailboxes: Iterable[str] = ()) -> None:
    """Find the node of ``place``, if its client finds owners: that of the channels or vchannels, or of the mailboxes.

    Raises:
        ChannelNotFoundError: The channel does not exist.
        UnavailableError, DeadlineError: Its node is not running, or no node answers.
    """
    if isinstance(place, Located):
        await place.find(names, mailboxes)
