"""Divide the messages of several channels into packs between ticks that their producers wrote. Pure: no clock, no I/O.

A message has a time, given by its producer. A *tick* with time t in a channel promises that no message with time t or a
smaller one follows in that channel.

**Effective time.** A message that breaks a promise is *late*: its time t is not above a tick that came before it. Its
effective time is the first moment after the greatest such tick, so it is delivered with the next pack of its channel.

**Where a pack ends.** Every tick of every channel above the end of the previous pack ends a pack, and so does the time
of a DropCollection, once each channel has a tick at or above it. A pack has the messages with effective times up to its
end, of each channel in the order of the channel. The messages alone decide: neither the order in which channels are
read nor the start of a reader changes a pack.

**Where reading resumes.** After a pack with end e, a channel is read again from the first of two messages: its first
message that the pack lacks, and its first tick at or above e. Until that tick has come again, messages with times up to
e were delivered; after it, they are late.

The rules are those of Milvus's MsgStream, with one difference: there a pack ends only at a tick that all channels have.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from tidelog.msgstream._msg_type import MsgType

_TICK: Final = int(MsgType.TIME_TICK)
_ENDS_PACK: Final = int(MsgType.DROP_COLLECTION)


class Arrived(Protocol):
    """A message or a tick, as it was read."""

    @property
    def channel(self) -> str: ...
    @property
    def message_id(self) -> bytes: ...
    @property
    def type(self) -> int: ...
    @property
    def time(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


ItemT = TypeVar("ItemT", bound=Arrived)


@dataclass(frozen=True, slots=True)
class TickedPack(Generic[ItemT]):
    """A complete pack.

    Attributes:
        begin: End of the previous pack.
        end: Its end.
        messages: Its messages, in order of the channels.
        late: Number of messages that arrived after a tick that excluded them.
        resume: Id at which each channel is read again, inclusive.
    """

    begin: int
    end: int
    messages: tuple[ItemT, ...]
    late: int
    resume: Mapping[str, bytes]


class _Channel(Generic[ItemT]):
    """What was read of one channel.

    Attributes:
        tick: Greatest tick so far; -1 before any.
        waiting: Messages in no pack yet, each with its effective time and number.
        ticks: Ticks above the last end, each with the id and number of its message; increasing.
        size_bytes: Bytes of the waiting messages.
    """

    __slots__ = ("_delivered", "_number", "size_bytes", "tick", "ticks", "waiting")

    def __init__(self, delivered: int) -> None:
        # Times up to this one were delivered, until a tick at or above it has come.
        self._delivered = delivered
        self._number = 0
        self.tick = -1
        self.waiting: deque[tuple[int, int, bool, ItemT]] = deque()
        self.ticks: deque[tuple[int, int, bytes]] = deque()
        self.size_bytes = 0

    def add(self, arrived: ItemT) -> int | None:
        """Add a message or a tick; return the effective time of a message that is to be delivered."""
        self._number += 1
        if arrived.type == _TICK:
            if arrived.time > self.tick:
                self.tick = arrived.time
                self.ticks.append((arrived.time, self._number, arrived.message_id))
            return None
        if arrived.time <= self._delivered and self.tick < self._delivered:
            return None
        is_late = arrived.time <= self.tick
        time = self.tick + 1 if is_late else arrived.time
        self.waiting.append((time, self._number, is_late, arrived))
        self.size_bytes += arrived.size_bytes
        return time

    def take(self, end: int) -> tuple[list[ItemT], int, bytes]:
        """Remove the messages of the pack that ends at ``end``; return them, how many are late, and where to resume."""
        taken = [each for each in self.waiting if each[0] <= end]
        if taken:
            self.waiting = deque(each for each in self.waiting if each[0] > end)
            self.size_bytes -= sum(each[3].size_bytes for each in taken)
        while self.ticks[0][0] < end:
            self.ticks.popleft()
        _, number, resume = self.ticks[0]
        if self.waiting and self.waiting[0][1] < number:
            resume = self.waiting[0][3].message_id
        return [each[3] for each in taken], sum(each[2] for each in taken), resume


class TickAssembler(Generic[ItemT]):
    """Collects what was read, and returns packs.

    Attributes:
        late: Number of late messages in the packs so far.
    """

    def __init__(self, ends: Mapping[str, int]) -> None:
        """Begin after the pack of each channel with this end; -1 without one."""
        self.late = 0
        self._channels: dict[str, _Channel[ItemT]] = {name: _Channel(end) for name, end in ends.items()}
        self._end = min(ends.values())
        # Times of DropCollection messages that are in no pack yet.
        self._drops: list[int] = []

    def add(self, several: Iterable[ItemT]) -> None:
        """Add what was read, in the order of each channel."""
        for arrived in several:
            time = self._channels[arrived.channel].add(arrived)
            if time is not None and arrived.type == _ENDS_PACK:
                self._drops.append(time)

    def behind(self) -> list[str]:
        """Return the channels that must be read before the next pack; empty if it is complete.

        The others have a tick above the end of the last pack, and are not read further. So what waits is bounded by
        what lies between two ticks of a channel.
        """
        end = self._next_end()
        return [name for name, each in self._channels.items() if end is None or each.tick < end]

    def size_bytes(self, channel: str) -> int:
        """Return the bytes of a channel's waiting messages."""
        return self._channels[channel].size_bytes

    def next_pack(self) -> TickedPack[ItemT] | None:
        """Return the next pack; None if it is not complete."""
        end = self._next_end()
        if end is None or any(each.tick < end for each in self._channels.values()):
            return None
        messages: list[ItemT] = []
        late, resume = 0, {}
        for name, channel in self._channels.items():
            taken, taken_late, resume[name] = channel.take(end)
            messages += taken
            late += taken_late
        self._drops = [time for time in self._drops if time > end]
        self.late += late
        begin, self._end = self._end, end
        return TickedPack(begin, end, tuple(messages), late, resume)

    def _next_end(self) -> int | None:
        """Return the smallest candidate above the last end; None while no channel has a tick above it."""
        ticks = [time for each in self._channels.values() for time, _, _ in each.ticks if time > self._end]
        first = min(ticks, default=None)
        # A DropCollection without a tick after it ends no pack yet.
        drops = [time for time in self._drops if self._end < time and first is not None and time < first]
        return min(drops, default=first)
