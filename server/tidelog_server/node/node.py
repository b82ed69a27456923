"""The broker: the channels of this node, and every operation on a channel by name."""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

import structlog

from tidelog_server.broadcast.service import Broadcasts
from tidelog_server.broadcast.store import BroadcastRecords
from tidelog_server.channels.catalog import ROOT, Catalog, ChannelRecord, NewChannels, Owner, check_owners
from tidelog_server.channels.ownership import Ownership
from tidelog_server.channels.retention import DEFAULT_CHECK_INTERVAL_MS, Retainer
from tidelog_server.cluster.cluster import Cluster
from tidelog_server.core.errors import (
    ChannelAlreadyExistsError,
    ChannelNotExistError,
    FencingTokenMismatchError,
    InvalidRequestError,
)
from tidelog_server.core.errors.cluster import MetadataUnavailableError
from tidelog_server.core.groups import GroupKey
from tidelog_server.core.limits import MAX_CREATE_ATTEMPTS
from tidelog_server.core.names import is_system_channel, parse_vchannel_name, system_channel_name
from tidelog_server.core.nodes import ChannelOwner
from tidelog_server.core.producers import ProducerWindow
from tidelog_server.core.retention import KEEP_FOR_EVER, Retention, RetentionChange
from tidelog_server.core.tenants import NO_TENANT, Tenant
from tidelog_server.core.ticks import NO_TICK, Tick, compose
from tidelog_server.groups.groups import Groups
from tidelog_server.groups.lag import LagMeter
from tidelog_server.log.channel_log import ChannelLog, VchannelLog
from tidelog_server.log.node import LogNode
from tidelog_server.log.oracle import TickOracle
from tidelog_server.log.protocols import Place
from tidelog_server.log.scan.planner import ScanPlanner
from tidelog_server.log.scan.scanner import Scanner, ScanPlan, ScanSource
from tidelog_server.log.take_over import take_over
from tidelog_server.metadata.shared_commits import SharedCommits
from tidelog_server.metadata.store import MetadataStore, RevisionConflictError, SharedMetadataStore
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.log_store import VchannelTail
from tidelog_server.txn.prepared import PreparedTransactions
from tidelog_server.txn.staged import Transactions

_READERS: Final = 4
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class VchannelState:
    """The state of a vchannel."""

    name: str
    tail: VchannelTail


@dataclass(frozen=True, slots=True)
class ChannelState:
    """The state of a channel. For another node's channel, vchannels are empty and the watermark is 0."""

    record: ChannelRecord
    watermark: Tick
    stopped_by: str
    vchannels: list[VchannelState]
    owner: ChannelOwner


class Broker:
    """Channels of this node by name. Lives on the event loop."""

    def __init__(
        self, node: LogNode, tasks: TaskOwner, *, retention_check_interval_ms: int = DEFAULT_CHECK_INTERVAL_MS
    ) -> None:
        self._node = node
        self._tasks = tasks
        self._logs: dict[str, ChannelLog] = {}
        # Names of all nodes' channels, sorted.
        self._names: list[str] = []
        # Serialises changes of the catalog; appends and scans never take it.
        self._changes = asyncio.Lock()
        self._reclaim_wanted = asyncio.Event()
        self._readers: Executor = ThreadPoolExecutor(_READERS, thread_name_prefix="tidelog-reader")
        self.transactions = Transactions(node, tasks, self._reclaim_wanted.set)
        self.prepared = PreparedTransactions(node, tasks, self.transactions)
        self._retainer = Retainer(node, tasks, self._readers, self._changes)
        self._retention_check_interval_s = retention_check_interval_ms / 1_000
        self._catalog: Catalog
        self.ownership: Ownership
        # None for a standalone server.
        self.cluster: Cluster | None = None
        self.planner: ScanPlanner
        self._broadcasts: Broadcasts | None = None
        self.lag_meter: LagMeter
        self.groups = Groups(node, tasks, self._readers, self.find, self.find_channel)

    async def open(self, metadata: MetadataStore) -> None:
        """Load the catalog, finish operations that a crash interrupted, and open all channels.

        Raises:
            DataLossError: Catalog and store contradict each other.
        """
        catalog = Catalog(metadata, ROOT)
        oracle = TickOracle(self._node.clock, metadata, catalog.oracle_key)
        await oracle.open(self._node.store.head.last_tick)
        self._node.open(oracle)
        await self._open(metadata, catalog, ROOT)

    async def open_in_cluster(self, metadata: SharedMetadataStore, cluster: Cluster) -> None:
        """As ``open``, for a node of a cluster: opens this node's channels. ``cluster`` must be open.

        Raises:
            DataLossError: Catalog and store contradict each other.
        """
        self.cluster = cluster
        self._node.hold_lease(cluster.lease)
        self._node.open(cluster.oracle)
        catalog = Catalog(metadata, ROOT, cluster.node_id)
        # Groups and broadcasts are local to this node, so their records have a root of their own.
        await self._open(metadata, catalog, f"{ROOT}/local/{cluster.node_id}")
        self._tasks.start("channels", self._follow_channels(metadata))

    async def _open(self, metadata: MetadataStore, catalog: Catalog, root: str) -> None:
        self._catalog = catalog
        await catalog.open()
        self.ownership = Ownership(catalog, self.cluster)
        for name in catalog.foreign():
            insort(self._names, name)
        self.planner = ScanPlanner(self._node.shared, self._readers)
        self._check_catalog()
        records = list(self._catalog.records().values())
        destroying = [record for record in records if record.is_destroying]
        await self._destroy_marked(destroying, self._positions_of(destroying))
        # A crash between writing the catalog's record and the store's vchannels leaves only the record. This cannot
        # hide lost entries: the start gate compares the number of entries.
        self._retainer.open(self._catalog, self._pinned_tick, self._reclaim_wanted.set)
        await self._open_channels([record for record in records if not record.is_destroying])
        await self.transactions.open()
        self.prepared.open()
        commits = SharedCommits(metadata, self._tasks)
        await self.groups.open(metadata, commits, root)
        broadcasts = BroadcastRecords(metadata, commits, root)
        self._broadcasts = Broadcasts(self._node, self._tasks, broadcasts, self.find)
        await self._broadcasts.open()
        self.lag_meter = LagMeter(
            self._node.store, self.groups.durable, self._readers, self._node.clock, self._node.metrics
        )
        self._tasks.start("lag", self.lag_meter.run())
        self._tasks.start("reclaim", self._reclaim())
        self._tasks.start("retention", self._retainer.run(self._retention_check_interval_s))

    async def close(self) -> None:
        """Release the reader threads. Idempotent; may be called after ``open`` failed."""
        if self._broadcasts is not None:
            self._broadcasts.close()
        await asyncio.to_thread(self._readers.shutdown)

    @property
    def broadcasts(self) -> Broadcasts:
        """The broadcasts of this node. Only after ``open``."""
        assert self._broadcasts is not None
        return self._broadcasts

    # -- Channels ------------------------------------------------------------------------------------------

    async def create_channels(
        self,
        names: Sequence[str],
        number: int,
        vchannels: int,
        owner: Owner,
        *,
        if_not_exists: bool,
        retention: Retention = KEEP_FOR_EVER,
        tenant: Tenant = NO_TENANT,
    ) -> list[ChannelState]:
        """Create channels, all or none, durably; return them in the order requested. Cancelling does not stop it.

        Raises:
            ChannelAlreadyExistsError: Names are taken (with ``if_not_exists``: by channels with another number of
                vchannels).
            InvalidRequestError: The retention settings contradict each other.
            RateLimitRejectedError: There are too many channels.
        """
        self._node.admission.check()
        self._check_metadata()
        retention.check()
        wanted = NewChannels(number, vchannels, owner, retention, tenant=tenant)
        return await self._tasks.finish(self._create(names, wanted, if_not_exists=if_not_exists))

    async def _create(self, names: Sequence[str], wanted: NewChannels, *, if_not_exists: bool) -> list[ChannelState]:
        async with self._changes:
            for _ in range(MAX_CREATE_ATTEMPTS):
                try:
                    created = await self._create_missing(names, wanted, if_not_exists=if_not_exists)
                    break
                except RevisionConflictError:
                    # Another node created channels at the same time: reload and retry.
                    await self._catalog.refresh(names)
            else:
                raise MetadataUnavailableError(f"{MAX_CREATE_ATTEMPTS} attempts conflicted with those of other nodes")
            await self._open_channels([record for record in created if record.name in self._catalog.records()])
            for record in created:
                if record.name in self._catalog.foreign():
                    insort(self._names, record.name)
        if wanted.is_placed:
            await self.ownership.notify(created)
        return [self.describe_anywhere(name) for name in names or [record.name for record in created]]

    async def _create_missing(
        self, names: Sequence[str], wanted: NewChannels, *, if_not_exists: bool
    ) -> list[ChannelRecord]:
        """Create the channels that do not exist, in the catalog only."""
        missing = names
        if if_not_exists:
            missing = [name for name in names if self._record(name) is None]
            self._check_shapes(names, wanted.vchannels)
        if names and not missing:
            return []
        tick = await self._node.shared.oracle.allocate(1)
        nodes = self.ownership.place(len(missing) or wanted.number, wanted.vchannels) if wanted.is_placed else []
        percent = self._node.admission.limits.max_principal_percent
        return await self._catalog.create(missing, wanted, tick, nodes, percent=percent)

    async def note_created(self, names: Sequence[str]) -> None:
        """Load the records of channels that another node created, and open those that this node owns."""
        self._node.admission.check_storage()
        await self._tasks.finish(self._note_created(names))

    async def _note_created(self, names: Sequence[str]) -> None:
        async with self._changes:
            await self._catalog.refresh(names)
            await self._open_new()

    async def alter_channels(self, names: Sequence[str], change: RetentionChange) -> list[ChannelState]:
        """Change settings of channels, all or none, durably; return them in the order requested.

        Cancelling does not stop it.

        Raises:
            ChannelNotExistError: Some do not exist. Nothing happened.
            InvalidRequestError: The new settings of a channel contradict each other. Nothing happened.
        """
        self._node.admission.check_storage()
        self._check_metadata()
        return await self._tasks.finish(self._alter(names, change))

    async def _alter(self, names: Sequence[str], change: RetentionChange) -> list[ChannelState]:
        async with self._changes:
            self.check_exist(names)
            for record in await self._catalog.alter(names, change):
                self._retainer.watch(record, self._logs[record.name])
            return [self.describe(name) for name in names]

    async def destroy_channels(self, names: Sequence[str], *, ignore_missing: bool, force: bool = False) -> list[str]:
        """Delete channels with their entries, all or none, durably; return those that existed.

        Cancelling does not stop it.

        Raises:
            ChannelNotExistError: Some do not exist, and ``ignore_missing`` is not set. Nothing happened.
            GroupInUseError: Members of a group consume one, and ``force`` is not set. Nothing happened.
        """
        self._node.admission.check_storage()
        self._check_metadata()
        return await self._tasks.finish(self._destroy(names, ignore_missing=ignore_missing, force=force))

    async def _destroy(self, names: Sequence[str], *, ignore_missing: bool, force: bool) -> list[str]:
        async with self._changes:
            for name in names:
                self.ownership.check_here(name, name)
            if not ignore_missing:
                self.check_exist(names)
            present = [name for name in names if name in self._logs]
            if present:
                vchannels = [vchannel.name for name in present for vchannel in self._logs[name].vchannels]
                if not force:
                    self.groups.check_channels_unused(vchannels)
                async with self.broadcasts.leaving(present):
                    records = await self._catalog.mark_destroying(present)
                    logs = [self._logs.pop(name) for name in present]
                    # Ordering: in one step with the channels, so that no group can gain a position on them.
                    positions = self.groups.channels_left(vchannels)
                    for name in present:
                        del self._names[bisect_left(self._names, name)]
                        self._retainer.forget(name)
                    for log in logs:
                        self.transactions.channel_destroyed(log)
                        await self._node.remove(log)
                    await self._destroy_marked(records, positions)
                    self.groups.channels_gone(positions)
                    await self.broadcasts.left(present)
            return present

    def describe(self, name: str) -> ChannelState:
        """Return the state of a channel. Raises ChannelNotExistError, NotOwnerError."""
        log = self._log_of(name, name)
        failure = self._node.admission.failure
        return ChannelState(
            self._catalog.records()[name],
            log.watermark(),
            failure.values["cause"] if failure else "",
            [VchannelState(vchannel.name, self._node.store.tail(vchannel.vchannel_id)) for vchannel in log.vchannels],
            self.ownership.owner(name) or ChannelOwner(name, ""),
        )

    def describe_anywhere(self, name: str) -> ChannelState:
        """Return the state of any node's channel as this node knows it. Raises ChannelNotExistError."""
        record = self.ownership.foreign().get(name)
        if record is None:
            return self.describe(name)
        owner = self.ownership.owner(name) or ChannelOwner(name, record.node_id)
        return ChannelState(record, NO_TICK, "", [], owner)

    def check_exist(self, names: Sequence[str]) -> None:
        """Raise ChannelNotExistError, which names all missing channels, if any does not exist.

        Raises NotOwnerError if another node owns one.
        """
        for name in names:
            self.ownership.check_here(name, name)
        if missing := self.missing(names):
            raise ChannelNotExistError.of(missing)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the channels that do not exist, in the order requested."""
        return [name for name in names if name not in self._logs]

    def names(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[str]:
        """Return up to ``limit`` names of channels that begin with ``prefix`` and are greater than ``after``, sorted.

        The time is proportional to the number of names returned.
        """
        begin = max(bisect_left(self._names, prefix), bisect_right(self._names, after))
        names = self._names[begin : None if limit is None else begin + limit]
        return list(takewhile(lambda name: name.startswith(prefix), names))

    def find(self, name: str) -> Place:
        """Return the vchannel called ``name`` (``channel/index``, or ``channel`` if it has only one vchannel).

        Raises:
            InvalidNameError: The name is invalid.
            ChannelNotExistError: The vchannel does not exist.
            NotOwnerError: Another node owns the channel.
            InvalidRequestError: The channel has several vchannels and the name has no index.
        """
        parsed = parse_vchannel_name(name)
        log = self._log_of(parsed.channel, name)
        count = len(log.vchannels)
        if parsed.index is None:
            if count > 1:
                raise InvalidRequestError(
                    f"'{name}' has {count} vchannels: name one, '{name}/0' to '{name}/{count - 1}'", field="vchannel"
                )
            return Place(log, log.vchannels[0])
        if parsed.index >= count:
            raise ChannelNotExistError(name, f"does not exist: '{parsed.channel}' has vchannels 0 to {count - 1}")
        return Place(log, log.vchannels[parsed.index])

    def find_to_read(self, name: str) -> Place:
        """As ``find``; ``name`` may also be a system channel."""
        channel, _, index = name.partition("/")
        if not is_system_channel(channel) or index not in ("", "0"):
            return self.find(name)
        log = self.find_channel(system_channel_name(channel, self._node_id))
        return Place(log, log.vchannels[0])

    async def ensure_own_channel(self, name: str) -> None:
        """Create a system channel, with one vchannel, if it does not exist."""
        assert is_system_channel(name)
        wanted = NewChannels(vchannels=1, owner=Owner(role="tidelog"), is_placed=False)
        system_name = system_channel_name(name, self._node_id)
        await self._tasks.finish(self._create([system_name], wanted, if_not_exists=True))

    def find_channel(self, name: str) -> ChannelLog:
        """Return the channel called ``name``. Raises ChannelNotExistError, NotOwnerError."""
        return self._log_of(name, name)

    def vchannel_name(self, vchannel_id: int) -> str | None:
        """Return the name of a vchannel by its id in the store; None if it was destroyed."""
        return self._node.vchannel_name(vchannel_id)

    # -- Vchannels -----------------------------------------------------------------------------------------

    def scanner(self, sources: Sequence[ScanSource], plan: ScanPlan, reader: str = "") -> Scanner:
        """Return a scanner over this node's vchannels; its memory is charged to ``reader``, or if empty to the node."""
        memory = self._node.read_budget.memory(reader)
        return Scanner(self._node.shared, self._readers, self._node.metrics, sources, plan, memory=memory)

    async def fence(self, name: str, fencing_token: int) -> None:
        """Set the fencing token of a vchannel, durably. Setting its current token succeeds.

        From the call on, appends with another token are refused; appends accepted before are not affected. Cancelling
        does not stop it.

        Raises:
            FencingTokenMismatchError: The vchannel's token is greater. Nothing happened.
        """
        self._node.admission.check_storage()
        _, vchannel = self.find(name)
        if fencing_token < vchannel.fencing_token:
            raise FencingTokenMismatchError(
                vchannel=vchannel.name, fencing_token=fencing_token, actual_fencing_token=vchannel.fencing_token
            )
        # Ordering: set and submit in one step. Appends with the new token are written after the token, and appends
        # with an older one are refused from here on. A later drop of the vchannel is also written after the token.
        vchannel.fencing_token = fencing_token
        await self._in_order(lambda: self._node.store.fence(vchannel.vchannel_id, fencing_token))

    async def open_producer(
        self, name: str, producer_id: str, tenant: Tenant = NO_TENANT, *, accept_forgotten: bool = False
    ) -> ProducerWindow:
        """Open a producer on a vchannel, durably: increment its epoch, and return its resulting window.

        From the call on, appends of older epochs are refused; appends accepted before are durable when this returns.
        Cancelling does not stop it.

        Raises:
            ProducerForgottenError: The producer is unknown and may have been evicted, and ``accept_forgotten`` is not
                set. Nothing happened.
        """
        self._node.admission.check_storage()
        _, vchannel = self.find(name)
        window, rows = take_over(self._node.shared, vchannel, producer_id, tenant, accept_forgotten=accept_forgotten)
        await self._tasks.finish(self._node.committer.submit_rows(windows=rows))
        return window

    async def trim(
        self, name: str, *, before_tick: int | None = None, before_ms: int | None = None, is_system: bool = False
    ) -> Tick:
        """Trim a vchannel, durably; return the first tick that is still available. Cancelling does not stop it.

        Args:
            name: The vchannel.
            before_tick: Messages with smaller ticks are removed; with neither bound, all acknowledged messages are.
            before_ms: The same by time, in milliseconds since the epoch; overrides ``before_tick``.
            is_system: True to accept system channels, of which the newest message is kept.
        """
        self._node.admission.check_storage()
        log, vchannel = self.find_to_read(name) if is_system else self.find(name)
        if before_ms is not None:
            before_tick = compose(before_ms)
        return await self._tasks.finish(self._trim(log, vchannel, before_tick))

    async def _trim(self, log: ChannelLog, vchannel: VchannelLog, before_tick: int | None) -> Tick:
        async with self._changes:
            log.check_open()
            # Ordering: trim durable messages only, so that an append in flight is not half trimmed.
            end_tick = vchannel.durable_tick + (not is_system_channel(log.name))
            cut = end_tick if before_tick is None else min(before_tick, end_tick)
            tail = await self._node.committer.run(lambda: self._node.store.trim(vchannel.vchannel_id, cut))
            vchannel.trim_tick = tail.trim_tick
        self._reclaim_wanted.set()
        return tail.trim_tick

    def refresh_metrics(self, *, per_group: bool = False) -> None:
        """Update the metrics that are computed on demand; with ``per_group``, also those of each group."""
        self.broadcasts.refresh_metrics()
        self.groups.refresh_metrics()
        self.transactions.refresh_metrics()
        self.lag_meter.refresh_metrics(per_group=per_group)

    # -- Private -------------------------------------------------------------------------------------------

    def _log_of(self, channel: str, name: str) -> ChannelLog:
        """Return the log of ``channel``; ``name`` is the requested name, for errors. Raises as ``find``."""
        if self.cluster is not None:
            self.cluster.lease.check()
        log = self._logs.get(channel)
        if log is None:
            self.ownership.check_here(channel, name)
            raise ChannelNotExistError(channel)
        return log

    @property
    def _node_id(self) -> str:
        return self.cluster.node_id if self.cluster is not None else ""

    def _record(self, name: str) -> ChannelRecord | None:
        """Return the record of any node's channel; None if it does not exist or is being destroyed on this node."""
        if name in self._logs:
            return self._catalog.records()[name]
        return self._catalog.foreign().get(name)

    def _check_metadata(self) -> None:
        """Raise MetadataUnavailableError (effect: none) while the metadata store does not answer."""
        if self.cluster is not None:
            self.cluster.check_metadata()

    async def _follow_channels(self, metadata: SharedMetadataStore) -> None:
        """Apply other nodes' changes of channels, and open channels that they place on this node. Never returns."""
        async with aclosing(metadata.watch(self._catalog.channel_prefix)) as changes:
            async for watched in changes:
                async with self._changes:
                    self._catalog.follow(watched)
                    await self._open_new()

    async def _open_new(self) -> None:
        """Open this node's channels that are not open yet, and refresh the list of all names."""
        new = [
            record
            for record in self._catalog.records().values()
            if record.name not in self._logs and not record.is_destroying
        ]
        if new:
            await self._open_channels(new)
        self._names = sorted({*self._logs, *self._catalog.foreign()})

    async def _open_channels(self, records: Sequence[ChannelRecord]) -> None:
        # Skip channels that another task has opened meanwhile.
        records = [record for record in records if record.name not in self._logs]
        ids = [number for record in records for number in record.vchannel_ids]
        await self._node.committer.run(lambda: self._node.store.create_vchannels(ids))
        for record in records:
            self._add(record)

    async def _in_order(self, change: Callable[[], None]) -> None:
        """Submit a change of the store without yielding to the event loop, and wait for it."""
        await self._tasks.finish(_ended(self._node.committer.submit_job(change)))

    def _pinned_tick(self, vchannel_name: str) -> tuple[int, str] | None:
        """Return a vchannel's pinned tick, the smallest next tick of its groups, and that group; None without one."""
        # Both durable and submitted positions count: a group may have just subscribed, or seek back.
        tables = (self.groups.durable, self.groups.positions)
        pins = (table.pinned_tick(vchannel_name) for table in tables)
        return min((pin for pin in pins if pin is not None), default=None)

    def _add(self, record: ChannelRecord) -> None:
        # Another node may have created it: no message and no watermark of a channel precedes its creation.
        self._node.shared.oracle.leave_behind(record.created_tick)
        log = self._logs[record.name] = self._node.add(record.name, record.vchannel_ids, record.created_tick)
        insort(self._names, record.name)
        self._retainer.watch(record, log)

    def _check_shapes(self, names: Sequence[str], vchannels: int) -> None:
        """Raise ChannelAlreadyExistsError if any exist with another number of vchannels."""
        counts = {name: len(record.vchannel_ids) for name in names if (record := self._record(name)) is not None}
        others = [name for name in counts if counts[name] != vchannels]
        if len(others) == 1:
            raise ChannelAlreadyExistsError(
                others[0], f"exists already with {counts[others[0]]} vchannels, not {vchannels}: use it as it is, or "
                "choose another name",
            )  # fmt: skip
        if others:
            raise ChannelAlreadyExistsError(
                others[0], f"exist already with numbers of vchannels other than {vchannels}: use them as they are, or "
                "choose other names", *others[1:],
            )  # fmt: skip

    def _positions_of(self, records: Sequence[ChannelRecord]) -> list[GroupKey]:
        """Return the remaining group positions on channels whose removal a crash interrupted."""
        if not records:
            return []
        ids = {number for record in records for number in record.vchannel_ids}
        return [key for key, position in self._node.store.group_positions().items() if position.vchannel_id in ids]

    async def _destroy_marked(self, records: Sequence[ChannelRecord], positions: Sequence[GroupKey]) -> None:
        """Delete the entries, then the records. After a crash in between, a restart resumes from the records."""
        if not records:
            return
        ids = [number for record in records for number in record.vchannel_ids]
        await self._node.committer.run(lambda: self._node.store.drop_vchannels(ids, positions))
        self._node.shared.producers.forget(ids)
        await self._catalog.remove([record.name for record in records])
        self._reclaim_wanted.set()

    def _check_catalog(self) -> None:
        """Raise DataLossError if entries belong to no channel: their records were lost."""
        store = self._node.store
        batches = {number: store.tail(number).batches for number in store.vchannel_ids()}
        check_owners(self._catalog.records().values(), batches)

    async def _reclaim(self) -> None:
        """Reclaim disk space after trims and drops, one run at a time. Never returns."""
        while True:
            await self._reclaim_wanted.wait()
            self._reclaim_wanted.clear()
            await asyncio.to_thread(self._node.store.reclaim)
            _log.debug("disk_reclaimed")


async def _ended(job: Future[None]) -> None:
    """Wait for a job of the committer. Cancelling ends the wait only: later appends depend on the job."""
    await asyncio.shield(asyncio.wrap_future(job))
