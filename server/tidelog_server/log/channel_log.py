"""The log of one channel on its owner: appends, watermark, and who follows."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog_server.core.entries import NewEntry
from tidelog_server.core.errors import (
    ChannelNotExistError,
    DiskFullError,
    RateLimitRejectedError,
    ShutdownError,
    StorageFailedError,
)
from tidelog_server.core.limits import Limits
from tidelog_server.core.producers import ProducerSequence
from tidelog_server.core.ticks import Tick
from tidelog_server.log.batch import Batch
from tidelog_server.log.committer import GroupCommitter, PendingAppend, Settled
from tidelog_server.log.conditions import UNCONDITIONAL
from tidelog_server.log.options import AppendOptions
from tidelog_server.log.oracle import Oracle
from tidelog_server.log.producers import ProducerTable, known_result
from tidelog_server.log.tail_ring import TailRing, VchannelRing
from tidelog_server.log.tenure import Tenure
from tidelog_server.runtime.clock import Clock
from tidelog_server.storage.log_store import LogStore, VchannelTail


@dataclass(slots=True)
class Admission:
    """Whether the node takes appends, and how much is in flight. One per node.

    Invariant: ``in_flight_bytes`` is the sum over all appends that were submitted and not settled.

    Attributes:
        submitted_bytes: Of columns, since the start.
        free_disk_bytes: As last looked at, less what was submitted since may take; None before the first look.
        tenure: Whether the node may speak for its channels; None for one that is alone.
    """

    limits: Limits
    in_flight_bytes: int = 0
    submitted_bytes: int = 0
    is_shutting_down: bool = False
    free_disk_bytes: int | None = None
    failure: StorageFailedError | None = None
    tenure: Tenure | None = None

    @property
    def is_disk_full(self) -> bool:
        """Whether appends are refused because too little disk is free."""
        return self.free_disk_bytes is not None and self.free_disk_bytes < self.limits.min_free_disk_bytes

    def check(self) -> None:
        """Raise why no append is taken now. Nothing happened then."""
        self.check_storage()
        if self.is_disk_full:
            assert self.free_disk_bytes is not None
            raise DiskFullError(free_bytes=self.free_disk_bytes, needed_bytes=self.limits.min_free_disk_bytes)

    def check_storage(self) -> None:
        """Raise why nothing is changed now, not even to free disk. Nothing happened then."""
        if self.failure is not None:
            raise StorageFailedError(self.failure.values["cause"])
        self.check_serving()

    def check_serving(self) -> None:
        """Raise why nobody is served now, not even readers."""
        if self.tenure is not None:
            self.tenure.check()
        if self.is_shutting_down:
            raise ShutdownError

    def note_submitted(self, size_bytes: int) -> None:
        """Count an append in. Each byte is written twice: to the write-ahead log, and later to its place."""
        self.in_flight_bytes += size_bytes
        self.submitted_bytes += size_bytes
        if self.free_disk_bytes is not None:
            self.free_disk_bytes = max(0, self.free_disk_bytes - 2 * size_bytes)

    def note_settled(self, size_bytes: int) -> None:
        """Count an append out."""
        self.in_flight_bytes -= size_bytes

    def has_room(self, size_bytes: int) -> bool:
        """Tell whether a batch of ``size_bytes`` fits into what may be in flight."""
        return self.in_flight_bytes + size_bytes <= self.limits.max_in_flight_bytes

    def check_room(self, size_bytes: int) -> None:
        """Raise RateLimitRejectedError unless a batch of ``size_bytes`` fits."""
        if not self.has_room(size_bytes):
            raise RateLimitRejectedError(
                f"the server has {self.in_flight_bytes} bytes in flight and takes at most "
                f"{self.limits.max_in_flight_bytes}: wait and repeat",
                bytes=self.in_flight_bytes,
                max_bytes=self.limits.max_in_flight_bytes,
            )


@dataclass(frozen=True, slots=True)
class NodeLog:
    """What all channel logs of a node share."""

    store: LogStore
    oracle: Oracle
    committer: GroupCommitter
    ring: TailRing
    admission: Admission
    clock: Clock
    producers: ProducerTable


class VchannelLog:
    """One vchannel in memory.

    Attributes:
        vchannel_id: Its number in the store.
        name: ``<channel>/<index>``.
        durable_tick: Last tick of the last durable entry; 0 when there was none.
        submitted_tick: Last tick of the last entry that was submitted, durable or not; 0 when there was none.
        fencing_token: The token that was set last, durable or not; 0 when none was.
        trim_tick: Messages below it are gone.
        ring: Its part of the tail ring.
        followers: Set, and taken out, when an entry becomes durable, when the channel closes, and when storage fails.
            So those that are busy cost nothing: a follower puts itself in before it looks whether to wait.
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
        """Let everybody who waits on this vchannel look again."""
        followers, self.followers = self.followers, set()
        for follower in followers:
            follower.set()


class ChannelLog:
    """The log of one channel. Lives on the event loop; nothing here blocks.

    Invariants:
        INV-1: ticks of the channel are submitted in growing order, so physical order is tick order.
        INV-2: everything at or below ``watermark()`` is durable and readable, and nothing will be added there.
    """

    def __init__(self, node: NodeLog, name: str, vchannel_ids: Sequence[int], created_tick: int) -> None:
        """Open the log of vchannels that are in the store.

        ``created_tick`` tells the channel from others of the name: one that is created later has a greater one.
        """
        self.name = name
        self.created_tick = created_tick
        self._node = node
        self.vchannels = [
            VchannelLog(vchannel_id, f"{name}/{index}", node.store.tail(vchannel_id))
            for index, vchannel_id in enumerate(vchannel_ids)
        ]
        # First ticks of appends between submission and ack, oldest first; of a transaction, that of its whole span.
        # ``_drained`` is set while there are none.
        self._in_flight: deque[int] = deque()
        self._drained = asyncio.Event()
        self._drained.set()
        self.is_closed = False

    def watermark(self) -> Tick:
        """Return the tick up to which the channel is complete; grows with time even when nobody appends."""
        if self._in_flight:
            return Tick(self._in_flight[0] - 1)
        return self._node.oracle.now()

    def oldest_in_flight(self) -> Tick | None:
        """Return the tick that holds the watermark back; None while none does."""
        return Tick(self._in_flight[0]) if self._in_flight else None

    def try_append(
        self, vchannel: VchannelLog, batch: Batch, options: AppendOptions, on_settled: Settled, *, is_own: bool = False
    ) -> PendingAppend | None:
        """Append at once; None if the oracle cannot give ticks now: then ``allocate`` and try again.

        What is the server's own is also taken where the disk is too full for others: trims must be audited.

        ``on_settled`` is called once with the outcome. A batch of a producer that was taken before is not appended
        again: what is returned is settled with the first one, or before this returns; conditions do not matter to it.

        Raises:
            ProducerFencedError, ProducerForgottenError, SequenceGapError, SequenceReusedError, SequenceForgottenError:
                See ``known_result`` and ``ProducerTable.window_for``. Nothing happened.
            ChannelNotExistError, StorageFailedError, ShutdownError, DiskFullError: Nothing happened.
            LastTickMismatchError, FencingTokenMismatchError: A condition does not hold. Nothing happened.
        """
        self.check_open()
        producer = options.producer
        if producer is not None and (repeated := self._repeated(vchannel, batch, producer, on_settled)) is not None:
            return repeated
        if is_own:
            self._node.admission.check_storage()
        else:
            self._node.admission.check()
        if options.conditions is not UNCONDITIONAL:
            options.conditions.check(
                vchannel.name, last_tick=vchannel.submitted_tick, fencing_token=vchannel.fencing_token
            )
        tick = self._node.oracle.try_allocate(batch.count, options.barrier_tick)
        if tick is None:
            return None
        return self._submit(vchannel, batch, tick, options, on_settled)

    def _submit(
        self, vchannel: VchannelLog, batch: Batch, tick: Tick, options: AppendOptions, on_settled: Settled
    ) -> PendingAppend:
        """Send a batch with its tick on its way. Ordering: see ``enter``."""
        node = self._node
        entry = NewEntry(
            vchannel.vchannel_id, tick, batch.count, batch.message_type, batch.columns_crc32c, batch.columns
        )
        append = PendingAppend((entry,), options.needs_sync, on_settled)
        if options.producer is not None:
            node.producers.note(vchannel.vchannel_id, options.producer, append)
        self.enter(vchannel, entry)
        node.committer.submit(append)
        return append

    def enter(self, vchannel: VchannelLog, entry: NewEntry) -> None:
        """Note that ``entry`` is about to be submitted.

        Ordering: the caller allocated its ticks without an ``await`` in between, which is INV-1. Once submitted,
        nothing calls the append back: a cancelled call leaves it in the log.
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
        self._node.admission.note_submitted(len(entry.columns))

    def _repeated(
        self, vchannel: VchannelLog, batch: Batch, producer: ProducerSequence, on_settled: Settled
    ) -> PendingAppend | None:
        """Return the append that answers a repeated batch; None for a new one. Raises as the table of producers."""
        node = self._node
        node.admission.check_storage()
        key = (vchannel.vchannel_id, producer.producer_id)
        window = node.producers.window_for(vchannel.vchannel_id, vchannel.name, producer, node.oracle.last)
        result = known_result(window, vchannel.name, producer, batch.count, batch.columns_crc32c)
        if result is None:
            return None
        entry = NewEntry(
            vchannel.vchannel_id, Tick(result.first_tick), batch.count, batch.message_type, batch.columns_crc32c, b""
        )
        repeated = PendingAppend((entry,), result.is_synced, on_settled, is_duplicate=True)
        node.producers.settle_with_first(key, producer.sequence, repeated)
        return repeated

    def check_open(self) -> None:
        """Raise ChannelNotExistError once the channel is being destroyed."""
        if self.is_closed:
            raise ChannelNotExistError(self.name, "was destroyed")

    def check_created(self, created_tick: int) -> None:
        """Raise ChannelNotExistError unless this is the channel that was created at ``created_tick``; 0 means any."""
        if created_tick not in (0, self.created_tick):
            raise ChannelNotExistError(
                self.name,
                f"that was created at tick {created_tick} was destroyed, and another one was created at "
                f"{self.created_tick}: begin a new read if that one is wanted",
            )

    def settle(self, vchannel: VchannelLog, entry: NewEntry) -> None:
        """Note that the oldest entry in flight is durable; called in order, before its ack is sent."""
        first_tick = self._in_flight.popleft()
        assert first_tick == _first_tick(entry)
        if not self._in_flight:
            self._drained.set()
        self._node.admission.note_settled(len(entry.columns))
        vchannel.durable_tick = entry.last_tick
        self._node.ring.push(vchannel.ring, entry)

    async def close(self) -> None:
        """Take no more appends, finish those in flight, and wake all followers, who then see ``is_closed``."""
        self.is_closed = True
        self.wake_all()
        await self._drained.wait()

    def fail(self) -> None:
        """Note that storage failed: nothing in flight will ever be settled, so nobody may wait for it."""
        self._drained.set()
        self.wake_all()

    def wake_all(self) -> None:
        """Wake the followers of every vchannel."""
        for vchannel in self.vchannels:
            vchannel.wake_followers()


def _first_tick(entry: NewEntry) -> int:
    """Return the tick that no watermark reaches before ``entry`` is durable: none lies within a transaction."""
    return entry.base_tick if entry.txn is None else entry.txn.first_tick
