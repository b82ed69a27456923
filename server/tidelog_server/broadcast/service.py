"""The broadcasts of this node: accepted, appended, acknowledged, remembered.

The decisions are pure (``keys``, ``table``); this module drives them. An accepted broadcast is in
the metadata before it is in the log, and stays PENDING until its message is known to be in the log. So a restart
appends the messages that are missing; the producer window written with each message shows which are in the log.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import structlog

from tidelog_server.broadcast.acks import BroadcastAcks
from tidelog_server.broadcast.admission import BroadcastAdmission, BroadcastRequest
from tidelog_server.broadcast.append import BroadcastAppend
from tidelog_server.broadcast.keys import Conflict
from tidelog_server.broadcast.records import TaskRecord, Tombstone
from tidelog_server.broadcast.rows import LOGGED
from tidelog_server.broadcast.saver import BroadcastSaver, LiveBroadcast
from tidelog_server.broadcast.store import BroadcastRecords, LoadedRecords, check_targets, take_keys_again
from tidelog_server.broadcast.table import Task
from tidelog_server.core.broadcasts import BroadcastState
from tidelog_server.core.callers import Tenant
from tidelog_server.core.errors import (
    BarrierNotReachedError,
    BroadcastNotExistError,
    BroadcastReusedError,
    ChannelNotExistError,
    Effect,
    InnerError,
    InvalidRequestError,
    ResourceAcquiredError,
    StorageFailedError,
)
from tidelog_server.core.errors.cluster import MetadataUnavailableError, OwnershipLostError
from tidelog_server.core.errors.forgotten import BroadcastForgottenError
from tidelog_server.core.shares import Floors
from tidelog_server.core.ticks import NO_TICK, Tick
from tidelog_server.log.append import Append
from tidelog_server.log.batch import Batch
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Find, FindAll, Place
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.tasks import TaskOwner, to_its_end

_log = structlog.get_logger()

# Pause before the next request for ticks, which itself waits for seconds unless it is refused at once.
_TICKS_AGAIN_S = 0.1


class BroadcastResult(NamedTuple):
    """The result of a broadcast.

    Attributes:
        broadcast_id: Id of the broadcast.
        tick: Tick of the message on every vchannel.
        is_duplicate: True if the broadcast had been accepted before.
    """

    broadcast_id: int
    tick: int
    is_duplicate: bool


class Broadcasts:
    """All broadcasts of a node. Lives on the event loop.

    Attributes:
        acks: Acknowledgements, and waits for them.
        table: Those that are not forgotten.
    """

    def __init__(self, node: LogNode, tasks: TaskOwner, store: BroadcastRecords, find: Find, find_all: FindAll) -> None:
        """Start empty; ``open`` loads the records.

        Args:
            node: The logs.
            tasks: Owner of background tasks.
            store: The records.
            find: Returns a vchannel by name, or raises why it cannot.
            find_all: Returns all vchannels of a channel, too.
        """
        self._node = node
        self._tasks = tasks
        self._store = store
        self._find = find
        self._saver = saver = BroadcastSaver(node, tasks, store)
        self.table, self._keys, self._live = saver.table, saver.keys, saver.live
        self._admission = BroadcastAdmission(node, saver, find_all)
        self.acks = BroadcastAcks(node, saver)
        # Ids with a call in progress; the event is set when that call ends.
        self._attempts: dict[int, asyncio.Event] = {}
        # The calls that wait for keys or a barrier, by id, each with the scope of its wait.
        self._waits: dict[int, tuple[Tenant, asyncio.Timeout]] = {}

    async def open(self) -> None:
        """Load all broadcasts, and append accepted ones that are missing from the log.

        Raises:
            DataLossError: Records contradict each other or the log.
        """
        loaded, saver = await self._store.load(), self._saver
        self.table.floors = Floors(loaded.floors)
        for tombstone in loaded.tombstones:
            self.table.add_tombstone(tombstone)
        for task in loaded.tasks:
            self.table.add(task)
            take_keys_again(self._keys, task)
        await self._append_pending(loaded)
        for task in loaded.tasks:
            # Acknowledge for channels that were destroyed just before the previous run ended.
            task.mark_acked(self._gone(task), saver.now_ms())
        await asyncio.gather(*(saver.saved(task) for task in loaded.tasks))
        self._tasks.keep("broadcasts", saver.sweep())

    async def _append_pending(self, loaded: LoadedRecords) -> None:
        """Append accepted broadcasts that are missing from the log, each exactly once even across repeated crashes."""
        pending = [task for task in loaded.tasks if task.state is BroadcastState.PENDING]
        logged = self._node.store.rows(LOGGED)
        ticks = {task: logged.pop(task.logged_key, 0) for task in pending}
        self._saver.unneeded = list(logged)
        for task, tick in ticks.items():
            record = task.record
            batch = Batch(1, record.message_type, record.columns_crc32c, loaded.messages[record.broadcast_id])
            self._live[record.broadcast_id] = live = LiveBroadcast(task, self._targets_of(task))
            task.mark_appended(tick or await self._append(live, batch, NO_TICK), self._saver.now_ms())
            _log.info("broadcast_recovered", broadcast_id=record.broadcast_id, was_in_log=bool(tick))

    # -- Broadcasts ----------------------------------------------------------------------------------------

    async def broadcast(self, request: BroadcastRequest) -> BroadcastResult:
        """Append a message to several vchannels, all or none, and return once it is durable.

        Cancelling before acceptance leaves nothing behind; later it ends the wait only. A retry of an accepted
        broadcast returns its result, regardless of keys, barrier and the state of the node.

        Raises:
            BroadcastReusedError: The id was accepted with other content. Nothing happened.
            BroadcastForgottenError: The id may belong to a forgotten broadcast.
            ResourceAcquiredError: Another broadcast holds a key, for longer than ``wait_s`` or until the call was
                withdrawn. Nothing happened.
            BarrierNotReachedError: The barrier was not reached within ``barrier_wait_s``, or before the call was
                withdrawn. Nothing happened.
            InvalidRequestError, InvalidNameError, ChannelNotExistError: A vchannel or the id is invalid, or a channel
                does not exist. Nothing happened.
            RateLimitRejectedError, DiskFullError, ShutdownError: Nothing happened.
            StorageFailedError, OwnershipLostError: See ``effect``.
        """
        self._check_storage(request.broadcast_id)
        oracle = self._node.shared.oracle
        if request.broadcast_id > oracle.now():
            raise InvalidRequestError(
                f"the broadcast id {request.broadcast_id} is beyond the latest tick {oracle.last}: take ids from "
                "AllocateTicks, or omit the id",
                field="broadcast_id",
            )
        broadcast_id = request.broadcast_id or await oracle.allocate(1)
        async with self._alone(broadcast_id):
            if (known := await self._known(broadcast_id, request)) is not None:
                return known
            if broadcast_id <= (floor := self.table.floors.of(request.tenant)):
                raise BroadcastForgottenError(broadcast_id=broadcast_id, floor=floor)
            with self._admission.room_for(request):
                if request.wait_s or request.barrier_tick:
                    # Refuse before the wait, not only after it.
                    self._admission.check(request)
                await self._reach(broadcast_id, request)
                await self._acquire(broadcast_id, request)
                await self._let_grow(broadcast_id, request)
                # Ordering: no await from here on, so a cancelled call cannot leave keys held without a broadcast.
                live = self._begin(broadcast_id, request)
                # Subtracted once the message is durable, so broadcasts on their way to the log count.
                self._admission.accepted_bytes += len(live.targets) * len(request.batch.columns)
            tick = await self._tasks.finish(self._carry_out(live, request.batch, request.barrier_tick))
        return BroadcastResult(broadcast_id, tick, is_duplicate=False)

    def withdraw(self, broadcast_id: int, tenant: Tenant) -> bool:
        """End the wait of a call of ``tenant`` for keys or a barrier, as if its time had passed.

        Returns:
            True if such a call was waiting. Its result has the outcome: it may have been granted its keys just now.
        """
        owner, scope = self._waits.get(broadcast_id, (tenant, None))
        if scope is None or owner != tenant:
            return False
        if not scope.expired():
            scope.reschedule(asyncio.get_running_loop().time())
        return True

    @asynccontextmanager
    async def _waiting(self, broadcast_id: int, request: BroadcastRequest, timeout_s: float) -> AsyncIterator[None]:
        """Run a wait before the acceptance. Raises TimeoutError after ``timeout_s`` seconds, or once withdrawn."""
        async with asyncio.timeout(timeout_s) as scope:
            self._waits[broadcast_id] = request.tenant, scope
            try:
                yield
            finally:
                del self._waits[broadcast_id]

    @asynccontextmanager
    async def _alone(self, broadcast_id: int) -> AsyncIterator[None]:
        """Serialise calls with the same id."""
        while (other := self._attempts.get(broadcast_id)) is not None:
            await other.wait()
        self._attempts[broadcast_id] = has_ended = asyncio.Event()
        try:
            yield
        finally:
            del self._attempts[broadcast_id]
            has_ended.set()

    async def _known(self, broadcast_id: int, request: BroadcastRequest) -> BroadcastResult | None:
        live, found = self._live.get(broadcast_id), self.table.find(broadcast_id)
        task = found if live is None else live.task
        if task is None:
            return None
        if (task.digest if isinstance(task, Tombstone) else task.record.digest) != request.digest:
            raise BroadcastReusedError(broadcast_id)
        tick = task.tick if live is None else await asyncio.shield(live.outcome)
        if not tick:
            # Accepted, but this process could not append it, and has stopped or stops.
            self._check_storage(broadcast_id)
            raise InnerError
        return BroadcastResult(broadcast_id, tick, is_duplicate=True)

    def _check_storage(self, broadcast_id: int) -> None:
        """Raise the node's storage failure, if any; its effect is unknown if this broadcast may have been accepted."""
        failure = self._node.admission.failure
        if failure is not None and (broadcast_id in self._saver.in_doubt or broadcast_id in self.table.open):
            raise failure.with_effect(Effect.UNKNOWN)
        self._node.admission.check_storage()

    async def _reach(self, broadcast_id: int, request: BroadcastRequest) -> None:
        """Wait until the barrier has passed. Precedes acquiring the keys, so no key is held during this wait."""
        oracle, barrier_tick = self._node.shared.oracle, request.barrier_tick
        if barrier_tick <= oracle.now():
            return
        try:
            async with self._waiting(broadcast_id, request, request.barrier_wait_s):
                while barrier_tick > oracle.now():
                    self._node.admission.check_storage()
                    await oracle.prepare(1, barrier_tick)
        except TimeoutError:
            raise BarrierNotReachedError(barrier_tick=barrier_tick, latest_tick=oracle.now()) from None

    async def _acquire(self, broadcast_id: int, request: BroadcastRequest) -> None:
        """Acquire all keys. If this raises, no key is held and the broadcast is in no queue."""
        if not request.wait_s:
            if (conflict := self._keys.try_acquire(broadcast_id, request.resource_keys)) is not None:
                raise _acquired(conflict)
            return
        with self._saver.watching([broadcast_id], request.tenant) as changed:
            if self._keys.request(broadcast_id, request.resource_keys):
                return
            try:
                async with self._waiting(broadcast_id, request, request.wait_s):
                    while not self._keys.holds(broadcast_id):
                        self._node.admission.check_storage()
                        changed.clear()
                        await changed.wait()
            except TimeoutError:
                # The keys may have been granted at the moment of the timeout.
                if not self._keys.holds(broadcast_id):
                    conflict = self._keys.conflict(broadcast_id)
                    self._saver.release(broadcast_id)
                    raise _acquired(conflict) from None
            except BaseException:
                self._saver.release(broadcast_id)
                raise

    async def _let_grow(self, broadcast_id: int, request: BroadcastRequest) -> None:
        """Wait, with the keys, while a channel gets vchannels: then it is on those, too. Releases them if it raises."""
        try:
            await self._admission.wait_grown(request)
        except BaseException:
            self._saver.release(broadcast_id)
            raise

    def _begin(self, broadcast_id: int, request: BroadcastRequest) -> LiveBroadcast:
        """Return the broadcast, which holds its keys and is about to be accepted. Releases the keys if it raises."""
        try:
            # Check again: the node's state may have changed during the wait.
            targets = self._admission.check(request)
        except BaseException:
            self._saver.release(broadcast_id)
            raise
        record = TaskRecord(
            broadcast_id,
            tuple(vchannel.name for _, vchannel in targets),
            tuple(vchannel.vchannel_id for _, vchannel in targets),
            request.resource_keys,
            request.digest,
            request.batch.message_type,
            request.batch.columns_crc32c,
            self._saver.now_ms(),
            request.tenant.hex(),
        )
        assert self._keys.holds(broadcast_id)
        assert broadcast_id not in self._live
        self._live[broadcast_id] = live = LiveBroadcast(Task(record), targets)
        return live

    async def _carry_out(self, live: LiveBroadcast, batch: Batch, barrier_tick: int) -> int:
        """Accept a broadcast that holds its keys, append it, and return its tick."""
        task = live.task
        try:
            hit(Failpoint.BROADCAST_KEYS_HELD)
            await self._store.accept(task, batch.columns)
            hit(Failpoint.BROADCAST_ACCEPTED)
            self.table.add(task)
            self._node.metrics.broadcasts_accepted.inc()
            tick = await self._append_accepted(live, batch, barrier_tick)
            hit(Failpoint.BROADCAST_APPENDED)
        except BaseException as error:
            # The keys stay held: if the broadcast is in the metadata, a restart resumes it.
            self._saver.fail(live, error)
            raise
        finally:
            self._admission.accepted_bytes -= len(live.targets) * len(batch.columns)
            assert 0 <= self._admission.accepted_bytes
        task.mark_appended(tick, self._saver.now_ms())
        self._saver.save_soon(task)
        live.outcome.set_result(tick)
        return tick

    async def _append_accepted(self, live: LiveBroadcast, batch: Batch, barrier_tick: int) -> Tick:
        """Append an accepted broadcast; wait while there are no ticks, because a restart would append it, too.

        The end of the node cancels the wait.
        """
        waits = False
        while True:
            try:
                return await self._append(live, batch, barrier_tick)
            except MetadataUnavailableError as error:
                if not waits:
                    _log.warning("broadcast_waits", broadcast_id=live.task.record.broadcast_id, problem=error.message)
                waits = True
                await asyncio.sleep(_TICKS_AGAIN_S)
            except (StorageFailedError, OwnershipLostError) as error:
                # Always unknown: a restart may resume it.
                raise error.with_effect(Effect.UNKNOWN) from error

    async def _append(self, live: LiveBroadcast, batch: Batch, barrier_tick: int) -> Tick:
        """Append an accepted broadcast, and return its tick once it is durable."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_settled(_: Append) -> None:
            if not settled.done():
                settled.set_result(None)

        append = BroadcastAppend(
            self._node.shared, live.task.record.broadcast_id, live.targets, batch,
            barrier_tick=barrier_tick, take_unneeded=self._saver.take_unneeded, on_settled=on_settled,
        )  # fmt: skip
        await self._node.shared.submit(append)
        await settled
        if append.failure is not None:
            raise append.failure.with_effect(Effect.UNKNOWN)
        return append.entries[0].base_tick

    # -- Inspection ----------------------------------------------------------------------------------------

    def find(self, broadcast_id: int) -> Task | Tombstone | None:
        """Return a broadcast, including one that is being accepted; None if the id is unknown."""
        live = self._live.get(broadcast_id)
        return self.table.find(broadcast_id) if live is None else live.task

    def describe(self, broadcast_id: int) -> Task | Tombstone:
        """Return a broadcast. Raises BroadcastNotExistError if the id is unknown."""
        found = self.table.find(broadcast_id)
        if found is None:
            raise BroadcastNotExistError(broadcast_id)
        return found

    @to_its_end
    async def abort(self, broadcast_id: int, reason: str) -> Tombstone:
        """Abort a broadcast durably and return its tombstone. Its keys are released; its message stays in the log.

        No effect on a finished broadcast. Cancelling does not stop it.

        Raises:
            BroadcastNotExistError: The id is unknown. Nothing happened.
        """
        self._node.admission.check_storage()
        if (live := self._live.get(broadcast_id)) is not None:
            # An accepted broadcast always reaches the log; it can be aborted only then.
            await asyncio.shield(live.outcome)
        found = self.describe(broadcast_id)
        if isinstance(found, Task):
            # A pending broadcast that is not live was interrupted by a failure or by the shutdown.
            self._node.admission.check_storage()
            record, is_aborted = found.record, found.mark_aborted(reason, self._saver.now_ms())
            await self._saver.saved(found)
            tombstone = self.table.find(broadcast_id)
            assert isinstance(tombstone, Tombstone)
            found = tombstone
            if is_aborted:
                self._node.metrics.broadcasts_aborted.inc()
                _log.warning(
                    "broadcast_aborted", broadcast_id=broadcast_id, reason=reason, tick=found.tick,
                    acked=found.acked, vchannels=found.vchannels,
                    resource_keys=[f"{key.name.domain}/{key.name.key} {key.mode}" for key in record.resource_keys],
                )  # fmt: skip
        return found

    def refresh_metrics(self) -> None:
        """Update the metrics that are computed on demand."""
        metrics, tasks = self._node.metrics, self.table.open.values()
        pending = sum(task.state is BroadcastState.PENDING for task in tasks)
        metrics.broadcasts_open.labels(BroadcastState.PENDING).set(pending)
        metrics.broadcasts_open.labels(BroadcastState.WAIT_ACK).set(len(tasks) - pending)
        metrics.broadcast_tombstones.set(self.table.finished)
        now_ms = self._saver.now_ms()
        oldest_ms = min((task.record.created_ms for task in tasks), default=now_ms)
        metrics.broadcast_oldest_seconds.set(max(0, now_ms - oldest_ms) / 1_000)
        metrics.broadcast_waiters.labels("keys").set(self._keys.waiters)
        metrics.broadcast_waiters.labels("acks").set(self._saver.waiters_usage.total - self._keys.waiters)

    # -- Channels that grow or are destroyed ---------------------------------------------------------------

    @asynccontextmanager
    async def growing(self, channels: Sequence[str]) -> AsyncIterator[None]:
        """Delay broadcasts to channels that get vchannels in this block; enter it once none is in progress.

        Why: a broadcast to a channel is on all vchannels that the channel has at its tick.
        """
        with self._admission.growing(channels):
            await self._settled(set(channels))
            yield

    @asynccontextmanager
    async def leaving(self, channels: Sequence[str]) -> AsyncIterator[None]:
        """Refuse broadcasts to channels that are destroyed in this block; enter it once none is in progress.

        Why: a restart checks whether a broadcast is in the log by the window on its first vchannel. So that vchannel
        must exist until WAIT_ACK is persisted.
        """
        going = set(channels)
        self._admission.leaving |= going
        try:
            await self._settled(going)
            yield
        finally:
            self._admission.leaving -= going

    async def _settled(self, channels: set[str]) -> None:
        """Wait until the broadcasts that are in progress on channels are in the log, and known to be."""
        for live in list(self._live.values()):
            if channels & live.task.channels:
                await live.has_left.wait()

    async def left(self, channels: Sequence[str]) -> None:
        """Acknowledge, durably, for the vchannels of destroyed channels, which no client can acknowledge any more."""
        going = set(channels)
        # Deduplicated: a broadcast may include several of the channels.
        tasks = list({id(task): task for channel in channels for task in self.table.of_channel(channel)}.values())
        for task in tasks:
            gone = (bit for bit, name in enumerate(task.record.vchannels) if name.partition("/")[0] in going)
            task.mark_acked(sum(1 << bit for bit in gone), self._saver.now_ms())
            # There may be thousands: yield to other work on the event loop.
            await asyncio.sleep(0)
        await asyncio.gather(*(self._saver.saved(task) for task in tasks))

    def _gone(self, task: Task) -> int:
        """Return the bitmap of vchannels that no longer exist; a vchannel re-created under a name is another one."""
        places = zip(task.record.vchannels, task.record.vchannel_ids, strict=True)
        return sum(1 << bit for bit, place in enumerate(places) if self._target(*place) is None)

    def _target(self, name: str, vchannel_id: int) -> Place | None:
        try:
            target = self._find(name)
        except (ChannelNotExistError, InvalidRequestError):
            return None
        return target if target.vchannel.vchannel_id == vchannel_id else None

    def _targets_of(self, task: Task) -> list[Place]:
        """Return the targets of a recovered broadcast. Raises DataLossError if one is missing.

        Channels are not destroyed while a broadcast to them is pending.
        """
        places = zip(task.record.vchannels, task.record.vchannel_ids, strict=True)
        targets = [target for place in places if (target := self._target(*place)) is not None]
        check_targets(task, len(targets))
        return targets


def _acquired(conflict: Conflict) -> ResourceAcquiredError:
    key = conflict.key
    return ResourceAcquiredError(domain=key.name.domain, key=key.name.key, mode=key.mode, broadcast_id=conflict.owner)
