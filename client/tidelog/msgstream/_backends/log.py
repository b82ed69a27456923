"""The interface between streams and brokers whose log gives each message a tick."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from tidelog.msgstream._backends.backend import Backend
from tidelog.read.positions import At
from tidelog.tick import Tick


@dataclass(frozen=True, slots=True)
class Place:
    """Position at which reading a channel begins.

    Attributes:
        start: Position to request from the log.
        after_tick: Skip messages up to this tick, inclusive, even if the log returns them.
    """

    start: At
    after_tick: int

    @classmethod
    def earliest(cls) -> Self:
        """Return the place before the first available message."""
        return cls(At.earliest(), 0)

    @classmethod
    def after(cls, tick: int) -> Self:
        """Return the place after a tick."""
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
    """Reads several channels, and follows them."""

    @property
    def watermark(self) -> int:
        """No message with this tick or a smaller one will arrive; 0 while unknown."""
        ...

    @property
    def created_ticks(self) -> Mapping[str, int]:
        """Creation tick of each channel, once something has arrived; empty on a broker that takes earlier positions."""
        ...

    async def step(self) -> Sequence[Delivered]:
        """Wait for the next delivery and return its batches; empty if only the watermark advanced.

        All batches arrive in tick order over all channels, the messages of a transaction without others between them.
        The watermark never lies within a transaction. Cancelling loses nothing. Each call returns about 1 MiB, or one
        batch of the log if that is larger.

        Raises:
            TidelogError: The log cannot be read. The next call retries.
        """
        ...

    async def aclose(self) -> None:
        """Stop reading."""
        ...


class LogBackend(Backend, Protocol):
    """A broker with a log. It appends to all channels or to none; the id of a message is that of its tick."""

    async def present(self) -> Tick:
        """Return a tick above that of every acknowledged message, and below that of every later one."""
        ...

    def reader(self, places: Mapping[str, Place], watermark_interval_s: float) -> Reader:
        """Return a reader of these channels. Its first step opens it."""
        ...


def ids_of(ticks: Mapping[str, Sequence[int]]) -> Mapping[str, Sequence[bytes]]:
    """Return the ids of messages, per channel."""
    return {channel: [Tick(tick).message_id for tick in each] for channel, each in ticks.items()}
