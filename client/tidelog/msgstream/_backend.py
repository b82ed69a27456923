"""What streams need of the log beneath: the interface between them and each kind of broker."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from tidelog._message import Message
from tidelog._positions import At
from tidelog._tick import Tick


@dataclass(frozen=True, slots=True)
class Place:
    """Where reading a channel begins.

    Attributes:
        start: What the log is asked for.
        after_tick: Messages up to this tick, inclusive, are left out whatever the log returns.
    """

    start: At
    after_tick: int

    @classmethod
    def earliest(cls) -> Self:
        """Return the place before everything that was not trimmed."""
        return cls(At.earliest(), 0)

    @classmethod
    def after(cls, tick: int) -> Self:
        """Return the place behind a tick."""
        return cls(At.after(tick), tick)


class Delivered(Protocol):
    """Consecutive messages of one channel, at least one, in tick order; ``tidelog.Batch`` is one."""

    @property
    def vchannel(self) -> str: ...
    @property
    def ticks(self) -> Sequence[int]: ...
    @property
    def txn_id(self) -> int | None: ...
    @property
    def payloads(self) -> Sequence[bytes]: ...
    @property
    def types(self) -> Sequence[int]: ...


class Reader(Protocol):
    """Reads several channels and follows them."""

    @property
    def watermark(self) -> int:
        """Nothing with this tick or a smaller one comes any more; 0 before that is known."""
        ...

    async def step(self) -> Sequence[Delivered]:
        """Wait for news, and return what came: nothing where it is only a new watermark.

        All that it ever returns is in tick order over all channels; messages of a transaction come one after the other,
        without others between them; and the watermark never lies within a transaction. Cancelling loses nothing.
        About 1 MiB at a time, and at least one batch of the log.

        Raises:
            TidelogError: Why it cannot be read on now; the next call tries again.
        """
        ...

    async def aclose(self) -> None:
        """Stop reading."""
        ...


class Backend(Protocol):
    """A kind of broker."""

    async def resolve(self, channels: Iterable[str]) -> list[str]:
        """Return the full names of channels, in their order.

        Raises:
            ChannelNotFoundError: One does not exist.
            MsgStreamError: A name stands for several.
        """
        ...

    async def present(self) -> Tick:
        """Return a tick above that of every message that was acknowledged, and below that of every later one."""
        ...

    async def last_tick(self, channel: str) -> Tick:
        """Return the tick of the last message of a channel; 0 for none. Raises ChannelNotFoundError."""
        ...

    async def append(self, parts: Mapping[str, Sequence[Message]]) -> Mapping[str, Sequence[int]]:
        """Append to several channels, to all or to none, and return the ticks. Cancelling ends the wait only."""
        ...

    def reader(self, places: Mapping[str, Place], watermark_interval_s: float) -> Reader:
        """Return a reader of these channels; it opens with its first step."""
        ...

    async def destroy(self, channels: Iterable[str]) -> None:
        """Remove channels with all their messages, where they exist."""
        ...
