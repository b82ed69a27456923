"""A broker in memory, for tests and for streams within one process."""

import asyncio
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import merge
from itertools import groupby, islice
from operator import attrgetter
from typing import Final

from tidelog.errors import ChannelNotFoundError, ClosedError
from tidelog.message import Message
from tidelog.msgstream._backends.log import Place, ids_of
from tidelog.msgstream._backends.subscriptions import MemSubscriptionStore
from tidelog.msgstream._errors import BrokerFullError
from tidelog.read.scan_plan import floor_tick
from tidelog.tick import LOGICAL_BITS, Tick

DEFAULT_MAX_BYTES: Final = 256 << 20
# Limit of one step of a reader.
_STEP_MESSAGES: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Entry:
    tick: int
    channel: str
    message: Message
    txn_id: int | None


_tick_of: Final = attrgetter("tick")


@dataclass(frozen=True, slots=True)
class MemBatch:
    """Consecutive messages of one channel and, if any, of one transaction, with increasing ticks."""

    vchannel: str
    ticks: Sequence[int]
    payloads: Sequence[bytes]
    types: Sequence[int]
    txn_id: int | None


class MemBroker:
    """Channels in memory. Any thread and event loop may use it.

    Messages stay until their channel is destroyed.

    Attributes:
        subscriptions: Positions of its factories' subscriptions.
    """

    def __init__(
        self,
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Create a broker without channels.

        Args:
            max_bytes: Maximum size of all payloads; further appends are refused.
            clock_ms: Clock, in milliseconds since the epoch. It may stand still or go back; ticks still increase.
        """
        self.subscriptions = MemSubscriptionStore()
        self._max_bytes = max_bytes
        self._clock_ms = clock_ms
        # Guards all fields below.
        self._lock = threading.Lock()
        # The entries of each channel, in the order of their ticks.
        self._channels: dict[str, list[_Entry]] = {}
        self._bytes = 0
        self._last_tick = 0
        self._followers: set[MemReader] = set()

    def create_channel(self, name: str) -> None:
        """Create a channel unless it exists."""
        with self._lock:
            self._channels.setdefault(name, [])

    def destroy_channel(self, name: str) -> None:
        """Delete a channel with all its messages, if it exists."""
        with self._lock:
            self._bytes -= sum(entry.message.size_bytes for entry in self._channels.pop(name, ()))
        self._wake()

    def append(self, parts: Mapping[str, Sequence[Message]]) -> Mapping[str, Sequence[int]]:
        """Append to all channels or to none, and return the ticks.

        Raises:
            ChannelNotFoundError: A channel does not exist. Nothing was appended.
            BrokerFullError: The broker is full. Nothing was appended.
        """
        size_bytes = sum(message.size_bytes for messages in parts.values() for message in messages)
        with self._lock:
            channels = {name: self._channel(name) for name in parts}
            if self._bytes + size_bytes > self._max_bytes:
                raise BrokerFullError(
                    f"the broker holds {self._bytes} bytes of at most {self._max_bytes}, so {size_bytes} more do not "
                    "fit: destroy channels, or raise max_bytes"
                )
            self._bytes += size_bytes
            next_tick = max(self._last_tick + 1, self._clock_ms() << LOGICAL_BITS)
            txn_id = next_tick if len(parts) > 1 else None
            ticks: dict[str, Sequence[int]] = {}
            for name, messages in parts.items():
                ticks[name] = range(next_tick, next_tick + len(messages))
                next_tick += len(messages)
                entries = [
                    _Entry(*each, txn_id) for each in zip(ticks[name], [name] * len(messages), messages, strict=True)
                ]
                channels[name] += entries
            self._last_tick = next_tick - 1
        self._wake()
        return ticks

    def present(self) -> Tick:
        """Return a tick that is at least that of every message so far, and below that of every later one."""
        with self._lock:
            return self._present()

    def last_tick(self, name: str) -> Tick:
        """Return the tick of the last message of a channel; 0 if it is empty. Raises ChannelNotFoundError."""
        with self._lock:
            entries = self._channel(name)
            return Tick(entries[-1].tick if entries else 0)

    def read(self, after: Mapping[str, int]) -> tuple[list[_Entry], Tick]:
        """Return the entries after each channel's tick, in tick order, and the watermark up to which that is all."""
        with self._lock:
            present = self._present()
            tails = [self._tail(name, tick) for name, tick in after.items()]
        found = list(islice(merge(*tails, key=_tick_of), _STEP_MESSAGES + 1))
        if len(found) <= _STEP_MESSAGES:
            return found, present
        # The watermark must not lie within a transaction, so it is not set before the end.
        return found[:-1], Tick(0)

    def follow(self, reader: "MemReader") -> None:
        """Wake ``reader`` when something is appended."""
        with self._lock:
            self._followers.add(reader)

    def leave(self, reader: "MemReader") -> None:
        """Stop waking ``reader``."""
        with self._lock:
            self._followers.discard(reader)

    def _wake(self) -> None:
        with self._lock:
            followers = list(self._followers)
        for follower in followers:
            follower.wake()

    def _channel(self, name: str) -> list[_Entry]:
        channel = self._channels.get(name)
        if channel is None:
            raise ChannelNotFoundError(
                f"the broker has no channel {name}: create it with create_channel", values={"name": name}
            )
        return channel

    def _present(self) -> Tick:
        self._last_tick = max(self._last_tick, self._clock_ms() << LOGICAL_BITS)
        return Tick(self._last_tick)

    def _tail(self, name: str, after_tick: int) -> list[_Entry]:
        entries = self._channel(name)
        begin = bisect_right(entries, after_tick, key=_tick_of)
        return entries[begin : begin + _STEP_MESSAGES + 1]


class MemReader:
    """Reads channels of a broker in memory. See ``Reader``."""

    def __init__(self, broker: MemBroker, places: Mapping[str, Place], watermark_interval_s: float) -> None:
        self._broker = broker
        self._after = {name: max(place.after_tick, floor_tick(place.start)) for name, place in places.items()}
        self._interval_s = watermark_interval_s
        self._watermark = Tick(0)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._is_closed = False

    @property
    def watermark(self) -> Tick:
        return self._watermark

    @property
    def created_ticks(self) -> Mapping[str, int]:
        return {}

    async def step(self) -> Sequence[MemBatch]:
        """Return new batches; without any, wait for the next watermark. Raises ChannelNotFoundError."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._broker.follow(self)
        elif not self._news.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._news.wait()
        if self._is_closed:
            raise ClosedError("the reader is closed")
        self._news.clear()
        entries, watermark = self._broker.read(self._after)
        if not watermark:
            # More entries follow.
            self._news.set()
        self._watermark = max(self._watermark, watermark)
        for entry in entries:
            self._after[entry.channel] = entry.tick
        return list(_batches(entries))

    async def aclose(self) -> None:
        self._is_closed = True
        self._news.set()
        self._broker.leave(self)

    def wake(self) -> None:
        """Record that something was appended. Thread-safe."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._news.set)


class MemBackend:
    """Backend on a broker in memory."""

    def __init__(self, broker: MemBroker) -> None:
        self._broker = broker

    async def resolve(self, channels: Iterable[str]) -> list[str]:
        names = list(channels)
        for name in names:
            self._broker.last_tick(name)
        return names

    async def present(self) -> Tick:
        return self._broker.present()

    async def last_id(self, channel: str) -> bytes:
        return self._broker.last_tick(channel).message_id

    async def append(self, parts: Mapping[str, Sequence[Message]]) -> Mapping[str, Sequence[bytes]]:
        """Append to all channels or to none."""
        return ids_of(self._broker.append(parts))

    def reader(self, places: Mapping[str, Place], watermark_interval_s: float) -> MemReader:
        return MemReader(self._broker, places, watermark_interval_s)

    async def destroy(self, channels: Iterable[str]) -> None:
        for channel in channels:
            self._broker.destroy_channel(channel)


def _batches(entries: Iterable[_Entry]) -> Iterator[MemBatch]:
    """Yield runs of entries of the same channel and transaction."""
    for (channel, txn_id), run in groupby(entries, key=lambda entry: (entry.channel, entry.txn_id)):
        several = list(run)
        yield MemBatch(
            channel, [entry.tick for entry in several], [entry.message.payload for entry in several],
            [entry.message.type for entry in several], txn_id,
        )  # fmt: skip
