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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import not_
from typing import Generic, NamedTuple, Self, TypeVar

ItemT = TypeVar("ItemT")
PlaceT = TypeVar("PlaceT")


@dataclass(frozen=True, slots=True)
class TickedPack(Generic[ItemT, PlaceT]):
    """A complete pack.

    Attributes:
        begin_tick: End of the previous pack.
        end_tick: Its end.
        first_tick: The smallest effective time of its messages; ``begin_tick`` without messages.
        messages: Its messages, by channel, in the order of the channel.
        late: Number of messages that arrived after a tick that excluded them.
        resume: Where each channel is read again: the place of a message or a tick, inclusive.
        size_bytes: Size of the payloads.
        ends_early: True if it ends with a DropCollection.
    """

    begin_tick: int
    end_tick: int
    first_tick: int
    messages: Mapping[str, Sequence[ItemT]]
    late: int
    resume: Mapping[str, PlaceT]
    size_bytes: int
    ends_early: bool

    @property
    def has_messages(self) -> bool:
        """Whether it has any message."""
        return any(self.messages.values())

    def merged(self, following: Self) -> Self:
        """Return this pack and the one that follows it as one."""
        return replace(
            following,
            begin_tick=self.begin_tick,
            first_tick=self.first_tick if self.has_messages or not following.has_messages else following.first_tick,
            messages={name: [*each, *following.messages[name]] for name, each in self.messages.items()},
            late=self.late + following.late,
            size_bytes=self.size_bytes + following.size_bytes,
        )


class _Taken(NamedTuple, Generic[ItemT, PlaceT]):
    """The part of a channel in a pack.

    Attributes:
        items: The messages, in the order of the channel.
        late: How many of them are late.
        resume: Where the channel is read again.
        size_bytes: Size of the payloads.
        first_tick: The smallest effective time of the messages; the end of the pack without messages.
    """

    items: Sequence[ItemT]
    late: int
    resume: PlaceT
    size_bytes: int
    first_tick: int


class TickedChannel(Generic[ItemT, PlaceT]):
    """What was read of one channel.

    The waiting messages are columns, not objects: what garbage collections visit counts when many wait.

    Attributes:
        tick: Greatest tick so far; -1 before any.
        ticks: Ticks above the last end, each with its number and place; increasing.
        size_bytes: Bytes of the waiting messages.
        drops: Times of the waiting messages that end a pack.
    """

    __slots__ = (
        "_delivered", "_items", "_late", "_number", "_numbers", "_places", "_sizes", "_times", "drops", "size_bytes",
        "tick", "ticks",
    )  # fmt: skip

    def __init__(self, delivered: int) -> None:
        # Times up to this one were delivered, until a tick at or above it has come.
        self._delivered = delivered
        # Messages and ticks are numbered as they arrive.
        self._number = 0
        self._late: set[int] = set()
        self.tick = -1
        self.ticks: deque[tuple[int, int, PlaceT]] = deque()
        self.size_bytes = 0
        self.drops: list[int] = []
        # Of the messages in no pack yet: effective times, numbers, sizes, places, and what the caller added.
        self._times: list[int] = []
        self._numbers: list[int] = []
        self._sizes: list[int] = []
        self._places: list[PlaceT] = []
        self._items: list[ItemT] = []

    def add_tick(self, place: PlaceT, time: int) -> None:
        """Add a tick with this time that was read at a place."""
        self._number += 1
        if time > self.tick:
            self.tick = time
            self.ticks.append((time, self._number, place))

    def add(self, item: ItemT, place: PlaceT, time: int, size_bytes: int, *, ends_pack: bool = False) -> None:
        """Add a message with this time that was read at a place; ``ends_pack`` if its time ends a pack."""
        number = self._number = self._number + 1
        tick = self.tick
        if time <= self._delivered and tick < self._delivered:
            return
        if time <= tick:
            time = tick + 1
            self._late.add(number)
        self._times.append(time)
        self._numbers.append(number)
        self._sizes.append(size_bytes)
        self._places.append(place)
        self._items.append(item)
        self.size_bytes += size_bytes
        if ends_pack:
            self.drops.append(time)

    def take(self, end: int) -> _Taken[ItemT, PlaceT]:
        """Remove and return the messages of the pack that ends at ``end``."""
        while self.ticks[0][0] < end:
            self.ticks.popleft()
        _, number, resume = self.ticks[0]
        stays = [time > end for time in self._times]
        taken = list(compress(self._items, map(not_, stays)))
        numbers = list(compress(self._numbers, stays))
        late = len(self._late) - len(self._late.intersection(numbers))
        size_bytes, first_tick = self.size_bytes, end
        if taken:
            first_tick = min(self._times)
            self._late.intersection_update(numbers)
            self._numbers = numbers
            self._times = list(compress(self._times, stays))
            self._sizes = list(compress(self._sizes, stays))
            self._places = list(compress(self._places, stays))
            self._items = list(compress(self._items, stays))
            self.size_bytes = sum(self._sizes)
            self.drops = [time for time in self.drops if time > end]
        if numbers and numbers[0] < number:
            resume = self._places[0]
        return _Taken(taken, late, resume, size_bytes - self.size_bytes, first_tick)


class TickAssembler(Generic[ItemT, PlaceT]):
    """Collects what was read, and returns packs.

    Attributes:
        channels: What was read of each channel; callers add to it, in the order of the channel.
    """

    def __init__(self, ends: Mapping[str, int]) -> None:
        """Begin after the pack of each channel with this end; -1 without one."""
        self.channels: Mapping[str, TickedChannel[ItemT, PlaceT]] = {
            name: TickedChannel(end) for name, end in ends.items()
        }
        self._end = min(ends.values())

    def behind(self) -> list[str]:
        """Return the channels that must be read before the next pack; empty if it is complete.

        The others have a tick above the end of the last pack, and are not read further. So what waits is bounded by
        what lies between two ticks of a channel.
        """
        end = self._next_end()
        return [name for name, each in self.channels.items() if end is None or each.tick < end]

    def next_pack(self) -> TickedPack[ItemT, PlaceT] | None:
        """Return the next pack; None if it is not complete."""
        end = self._next_end()
        if end is None or any(each.tick < end for each in self.channels.values()):
            return None
        ends_early = any(end in each.drops for each in self.channels.values())
        taken = {name: each.take(end) for name, each in self.channels.items()}
        begin, self._end = self._end, end
        return TickedPack(
            begin_tick=begin,
            end_tick=end,
            first_tick=min((each.first_tick for each in taken.values() if each.items), default=begin),
            messages={name: each.items for name, each in taken.items()},
            late=sum(each.late for each in taken.values()),
            resume={name: each.resume for name, each in taken.items()},
            size_bytes=sum(each.size_bytes for each in taken.values()),
            ends_early=ends_early,
        )

    def _next_end(self) -> int | None:
        """Return the smallest candidate above the last end; None while no channel has a tick above it."""
        channels = self.channels.values()
        first = min((time for each in channels for time, _, _ in each.ticks if time > self._end), default=None)
        # A DropCollection without a tick after it ends no pack yet.
        drops = (time for each in channels for time in each.drops if self._end < time)
        return min((time for time in drops if first is not None and time < first), default=first)
