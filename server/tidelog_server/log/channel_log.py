"""The log of one channel on its owner: appends, watermark and followers."""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidelog_server.core.entries import NewEntry
from tidelog_server.core.errors import (
    BarrierNotReachedError,
    ChannelNotExistError,
    DiskFullError,
    Effect,
    RateLimitRejectedError,
    ShutdownError,
)
from tidelog_server.core.errors.cluster import LogFailure, OwnershipLostError, cause_of
from tidelog_server.core.errors.storage import LogSilentError
from tidelog_server.core.limits import Limits
from tidelog_server.core.ticks import Tick
from tidelog_server.log.append import TickedAppend
from tidelog_server.log.committer import GroupCommitter
from tidelog_server.log.lease_validity import LeaseValidity
from tidelog_server.log.oracle import Oracle
from tidelog_server.log.producers import ProducerTable
from tidelog_server.log.tail_ring import TailRing, VchannelRing
from tidelog_server.runtime.clock import Clock
from tidelog_server.storage.log_store import LogStore, VchannelTail


@dataclass(slots=True)
class Admission:
    """Admission control for appends, and the bytes in flight. One per node.

    Invariant: ``in_flight_bytes`` is the sum over all appends that are submitted and not settled.

    Attributes:
        submitted_bytes: Bytes of columns submitted since the start.
        free_disk_bytes: Last measured free space, less the estimated use of later appends; None before the first check.
        failure: Why the log has stopped; None while it works.
        silent_s: Seconds for which a write waits for the engine of the log; 0 if that is not too long.
        lease: Lease of the node; None outside of a cluster.
    """

    limits: Limits
    in_flight_bytes: int = 0
    submitted_bytes: int = 0
    is_shutting_down: bool = False
    free_disk_bytes: int | None = None
    failure: LogFailure | None = None
    silent_s: float = 0.0
    lease: LeaseValidity | None = None

    @property
    def is_disk_full(self) -> bool:
        """True if appends are refused because too little disk space is free."""
        return self.free_disk_bytes is not None and self.free_disk_bytes < self.limits.min_free_disk_bytes

    def check(self) -> None:
        """Raise if the node cannot accept appends now. Nothing happened then."""
        self.check_storage()
        if self.is_disk_full:
            assert self.free_disk_bytes is not None
            raise DiskFullError(free_bytes=self.free_disk_bytes, needed_bytes=self.limits.min_free_disk_bytes)

    def check_storage(self) -> None:
        """Raise if nothing may be changed now, not even to free disk space. Nothing happened then."""
        if self.failure is not None:
            raise self.failure.with_effect(Effect.NONE)
        if self.silent_s:
            raise LogSilentError(self.silent_s)
        self.check_serving()

    def check_serving(self) -> None:
        """Raise if the node serves no requests now, not even reads."""
        if self.is_shutting_down:
            raise ShutdownError
        self.check_lease()

    def check_lease(self) -> None:
        """Raise if the node serves none of its channels, because its lease has ended."""
        if self.lease is None or self.lease.is_held():
            return
        if self.is_shutting_down:
            # It was handed over. Why not the other error: after this one a client sends nothing more on a stream.
            raise ShutdownError
        self.lease.check()

    def why_stopped(self) -> str | None:
        """Return why the node will not accept changes any more; None if it may."""
        if self.failure is not None:
            is_lost = isinstance(self.failure, OwnershipLostError)
            return cause_of(self.failure) if is_lost else f"storage failed: {cause_of(self.failure)}"
        return "shutting down" if self.is_shutting_down else None

    def waits(self) -> dict[str, str | None]:
        """Return by name what may keep the node from accepting changes for a while: why it does now, else None."""
        silent = f"the engine of the log has not confirmed a write for {self.silent_s:.0f} s" if self.silent_s else None
        return {
            "lease": None if self.lease is None or self.lease.is_held() else "the node's lease expired",
            "engine": silent,
            "disk": "the disk is nearly full" if self.is_disk_full else None,
        }

    @property
    def is_serving(self) -> bool:
        """False if ``check_serving`` raises."""
        return not self.is_shutting_down and (self.lease is None or self.lease.is_held())

    def note_submitted(self, size_bytes: int) -> None:
        """Add a submitted append. Each byte is written twice: to the write-ahead log, and later to a file."""
        self.in_flight_bytes += size_bytes
        self.submitted_bytes += size_bytes
        if self.free_disk_bytes is not None:
            self.free_disk_bytes = max(0, self.free_disk_bytes - 2 * size_bytes)

    def note_settled(self, size_bytes: int) -> None:
        """Remove a settled append."""
        self.in_flight_bytes -= size_bytes
        assert 0 <= self.in_flight_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a batch of ``size_bytes`` fits into the bytes in flight."""
        return self.in_flight_bytes + size_bytes <= self.limits.max_in_flight_bytes

    def check_room(self, size_bytes: int) -> None:
        """Raise RateLimitRejectedError if a batch of ``size_bytes`` does not fit into the bytes in flight."""
        if not self.has_room(size_bytes):
            raise RateLimitRejectedError(
                f"the server has {self.in_flight_bytes} bytes in flight and accepts at most "
                f"{self.limits.max_in_flight_bytes}: retry later",
                bytes=self.in_flight_bytes,
                max_bytes=self.limits.max_in_flight_bytes,
            )


@dataclass(frozen=True, slots=True)
class LogContext:
    """What all channel logs of a node share."""

    store: LogStore
    oracle: Oracle
    committer: GroupCommitter
    ring: TailRing
    admission: Admission
    clock: Clock
    producers: ProducerTable

    async def submit(self, append: TickedAppend, wait_s: float | None = None) -> None:
        """Submit an append when the oracle has its ticks.

        Args:
            append: The append.
            wait_s: Seconds to wait; None for no limit.

        Raises:
            BarrierNotReachedError: The oracle did not have the ticks within ``wait_s`` seconds. Nothing happened.
            TidelogServerError: See ``TickedAppend.try_submit`` and ``Oracle.prepare``. Nothing happened.
        """
        if append.try_submit():
            return
        try:
            async with asyncio.timeout(wait_s):
                # Ordering: ``try_submit`` allocates the ticks: no await may come between allocation and submission.
                is_submitted = False
                while not is_submitted:
                    await self.oracle.prepare(append.ticks, append.barrier_tick)
                    is_submitted = append.try_submit()
        except TimeoutError:
            raise BarrierNotReachedError(barrier_tick=append.barrier_tick, latest_tick=self.oracle.now()) from None


class VchannelLog:
    """One vchannel in memory.

    Attributes:
        vchannel_id: Id in the store.
        name: ``<channel>/<index>``.
        durable_tick: Last tick of the last durable entry; 0 before the first.
        submitted_tick: Last tick of the last submitted entry, durable or not; 0 before the first.
        fencing_token: Last token set, durable or not; 0 if not set.
        trim_tick: First tick that was not trimmed.
        ring: Its part of the tail ring.
        followers: Events that are set and removed when an entry becomes durable, the channel closes or storage fails.
            A busy follower costs nothing: it adds its event before it checks whether to wait.
    """

    __slots__ = (
        "durable_tick", "fencing_token", "followers", "name", "ring", "submitted_tick", "trim_tick", "vchannel_id"
    )  # fmt: skip

    def __init__(self, vchannel_id: int, name: str, tail: VchannelTail) -> None:
        self.vchannel_id = vchannel_id
        self.name = name
        self.durable_tick = tail.last_tick
        self.submitted_tick = tail.last_tick
        self.fencing_token = tail.fencing_token
        self.trim_tick = tail.trim_tick
        self.ring = VchannelRing(vchannel_id, floor=tail.last_tick)
        self.followers: set[asyncio.Event] = set()

    def wake_followers(self) -> None:
        """Wake all followers of this vchannel."""
        followers, self.followers = self.followers, set()
        for follower in followers:
            follower.set()


class ChannelLog:
    """The log of one channel. Lives on the event loop; nothing here blocks.

    Attributes:
        name: Name of the channel.
        created_tick: Distinguishes the channel from others of the same name: a later one has a greater tick.
        shared: What it shares with the other channels of the node.
        vchannels: Its vchannels, by index; it only grows.
        is_closed: True once the channel is being destroyed.

    Invariants:
        INV-1: ticks of the channel are submitted in growing order, so physical order is tick order.
        INV-2: everything at or below ``watermark()`` is durable and readable, and nothing will be added there.
    """

    def __init__(self, shared: LogContext, name: str, created_tick: int) -> None:
        """Open the log without vchannels; ``extend`` adds them."""
        self.name = name
        self.created_tick = created_tick
        self.shared = shared
        self.vchannels: list[VchannelLog] = []
        # First ticks of appends between submission and ack, oldest first; of a transaction, that of its whole span.
        # ``_drained`` is set while this is empty.
        self._in_flight: deque[int] = deque()
        self._drained = asyncio.Event()
        self._drained.set()
        self.is_closed = False

    def extend(self, vchannel_ids: Sequence[int]) -> Sequence[VchannelLog]:
        """Add vchannels that are in the store, and return them; wakes followers, which may want to follow them too."""
        added = [
            VchannelLog(vchannel_id, f"{self.name}/{index}", self.shared.store.tail(vchannel_id))
            for index, vchannel_id in enumerate(vchannel_ids, len(self.vchannels))
        ]
        self.vchannels += added
        self.wake_all()
        return added

    def watermark(self) -> Tick:
        """Return the tick up to which the channel is complete; it advances with time even without appends."""
        if self._in_flight:
            return Tick(self._in_flight[0] - 1)
        return self.shared.oracle.now()

    def oldest_in_flight(self) -> Tick | None:
        """Return the first tick of the oldest append in flight, which limits the watermark; None without one."""
        return Tick(self._in_flight[0]) if self._in_flight else None

    def enter(self, vchannel: VchannelLog, entry: NewEntry) -> None:
        """Record that ``entry`` is about to be submitted.

        Ordering: the caller allocated its ticks without an ``await`` in between, which is INV-1. A submitted append
        cannot be revoked: if the call is cancelled, it stays in the log.
        """
        assert not self.is_closed
        in_flight = self._in_flight
        first_tick = _first_tick(entry)
        assert vchannel.submitted_tick < entry.base_tick
        if in_flight:
            assert first_tick >= in_flight[-1]
        else:
            self._drained.clear()
        in_flight.append(first_tick)
        vchannel.submitted_tick = entry.last_tick
        self.shared.admission.note_submitted(len(entry.columns))

    def check_open(self) -> None:
        """Raise ChannelNotExistError once the channel is being destroyed."""
        if self.is_closed:
            raise ChannelNotExistError(self.name, "was destroyed")

    def check_created(self, created_tick: int) -> None:
        """Raise ChannelNotExistError unless the channel was created at ``created_tick``; 0 means any."""
        if created_tick not in (0, self.created_tick):
            raise ChannelNotExistError(
                self.name,
                f"that was created at tick {created_tick} was destroyed, and another one was created at "
                f"{self.created_tick}: begin a new read to read the new one",
            )

    def settle(self, vchannel: VchannelLog, entry: NewEntry) -> None:
        """Record that the oldest entry in flight is durable; called in order, before its ack is sent."""
        first_tick = self._in_flight.popleft()
        # INV-1: entries become durable in the order of submission.
        assert first_tick == _first_tick(entry)
        assert vchannel.durable_tick < entry.base_tick
        assert entry.last_tick <= vchannel.submitted_tick
        if not self._in_flight:
            self._drained.set()
        self.shared.admission.note_settled(len(entry.columns))
        vchannel.durable_tick = entry.last_tick
        self.shared.ring.push(vchannel.ring, entry)

    async def close(self) -> None:
        """Refuse further appends, drain those in flight, and wake all followers, which then see ``is_closed``."""
        self.is_closed = True
        self.wake_all()
        await self._drained.wait()

    def fail(self) -> None:
        """Record a storage failure: appends in flight will never be settled, so do not wait for them."""
        self._drained.set()
        self.wake_all()

    def wake_all(self) -> None:
        """Wake the followers of every vchannel."""
        for vchannel in self.vchannels:
            vchannel.wake_followers()


def grown_since(known: Mapping[str, int], logs: Iterable[ChannelLog]) -> Mapping[str, int]:
    """Return the number of vchannels of those channels that have more than ``known``, a number by channel, states."""
    return known and {log.name: len(log.vchannels) for log in logs if 0 < known.get(log.name, 0) < len(log.vchannels)}


def _first_tick(entry: NewEntry) -> int:
    """Return the first tick that no watermark reaches before ``entry`` is durable: none is within a transaction."""
    return entry.base_tick if entry.txn is None else entry.txn.first_tick
