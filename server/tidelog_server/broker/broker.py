"""The broker: which channels this node has, and everything that is done to one by name."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import structlog

from tidelog_server.broker.broadcast_store import BroadcastStore
from tidelog_server.broker.broadcasts import Broadcasts
from tidelog_server.broker.catalog import Catalog, ChannelRecord, Owner
from tidelog_server.broker.transactions import Transactions
from tidelog_server.core.errors import (
    ChannelAlreadyExistsError,
    ChannelNotExistError,
    DataLossError,
    FencingTokenMismatchError,
    InvalidRequestError,
)
from tidelog_server.core.names import parse_vchannel_name
from tidelog_server.core.producers import UNKNOWN_PRODUCER, ProducerWindow
from tidelog_server.core.ticks import Tick, compose
from tidelog_server.log.channel_log import ChannelLog, VchannelLog
from tidelog_server.log.node import LogNode
from tidelog_server.log.planner import ScanPlanner
from tidelog_server.log.scanner import Scanner, ScanPlan, ScanSource
from tidelog_server.metadata.shared_commits import SharedCommits
from tidelog_server.metadata.store import MetadataStore
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.log_store import Beside, VchannelTail

_READERS: Final = 4
_ROOT: Final = "tidelog"
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class VchannelState:
    """What can be told about a vchannel."""

    name: str
    tail: VchannelTail


@dataclass(frozen=True, slots=True)
class ChannelState:
    """What can be told about a channel."""

    record: ChannelRecord
    watermark: Tick
    stopped_by: str
    vchannels: list[VchannelState]


class Broker:
    """Channels of this node by name. Lives on the event loop."""

    def __init__(self, node: LogNode, tasks: TaskOwner) -> None:
        self._node = node
        self._tasks = tasks
        self._logs: dict[str, ChannelLog] = {}
        # Serialises changes of the catalog; appends and scans never take it.
        self._changes = asyncio.Lock()
        self._reclaim_wanted = asyncio.Event()
        self._readers: Executor = ThreadPoolExecutor(_READERS, thread_name_prefix="tidelog-reader")
        self.transactions = Transactions(node, tasks, self._reclaim_wanted.set)
        self._catalog: Catalog
        self.planner: ScanPlanner
        self._broadcasts: Broadcasts | None = None

    async def open(self, metadata: MetadataStore) -> None:
        """Load the catalog, finish what a crash interrupted, and open all channels.

        Raises:
            DataLossError: Catalog and store contradict each other.
        """
        self._catalog = Catalog(metadata, _ROOT)
        await self._catalog.open()
        await self._node.open(metadata, self._catalog.oracle_key)
        self.planner = ScanPlanner(self._node.shared, self._readers)
        self._check_catalog()
        records = list(self._catalog.records().values())
        destroying = [record for record in records if record.is_destroying]
        await self._destroy_marked(destroying)
        # A crash between the catalog's record and the store's vchannels leaves only the record. That an entry was
        # lost with its vchannel is ruled out: the start-up gate compares the number of entries.
        kept = [record for record in records if not record.is_destroying]
        store = self._node.store
        await self._node.committer.run(
            lambda: store.create_vchannels([number for record in kept for number in record.vchannel_ids])
        )
        for record in kept:
            self._logs[record.name] = self._node.add(record.name, record.vchannel_ids)
        await self.transactions.open()
        broadcasts = BroadcastStore(metadata, SharedCommits(metadata, self._tasks), _ROOT)
        self._broadcasts = Broadcasts(self._node, self._tasks, broadcasts, self.find)
        await self._broadcasts.open()
        self._tasks.start("reclaim", self._reclaim())

    async def close(self) -> None:
        """Release the reader threads. Idempotent; also where ``open`` has failed."""
        if self._broadcasts is not None:
            self._broadcasts.close()
        await asyncio.to_thread(self._readers.shutdown)

    @property
    def broadcasts(self) -> Broadcasts:
        """The broadcasts of this node, once it is open."""
        assert self._broadcasts is not None
        return self._broadcasts

    # -- Channels ------------------------------------------------------------------------------------------

    async def create_channels(
        self, names: Sequence[str], number: int, vchannels: int, owner: Owner, *, if_not_exists: bool
    ) -> list[ChannelState]:
        """Create channels, all or none, durably; return them in the order asked for. Cancelling does not stop it.

        Raises:
            ChannelAlreadyExistsError: A name is taken (with ``if_not_exists``: by a channel of another shape).
            RateLimitRejectedError: There are too many channels.
        """
        self._node.admission.check()
        return await self._tasks.finish(self._create(names, number, vchannels, owner, if_not_exists=if_not_exists))

    async def _create(
        self, names: Sequence[str], number: int, vchannels: int, owner: Owner, *, if_not_exists: bool
    ) -> list[ChannelState]:
        async with self._changes:
            missing = [name for name in names if not (if_not_exists and self._is_same(name, vchannels))]
            created: list[ChannelRecord] = []
            if missing or not names:
                tick = await self._node.shared.oracle.allocate(1)
                created = await self._catalog.create(missing, number, vchannels, owner, tick)
                ids = [number for record in created for number in record.vchannel_ids]
                await self._node.committer.run(lambda: self._node.store.create_vchannels(ids))
            for record in created:
                self._logs[record.name] = self._node.add(record.name, record.vchannel_ids)
        return [self.describe(name) for name in names or [record.name for record in created]]

    async def destroy_channels(self, names: Sequence[str], *, ignore_missing: bool) -> list[str]:
        """Remove channels with their entries, all or none, durably; return those that existed.

        Cancelling does not stop it.

        Raises:
            ChannelNotExistError: One does not exist. Nothing happened.
        """
        self._node.admission.check_storage()
        return await self._tasks.finish(self._destroy(names, ignore_missing=ignore_missing))

    async def _destroy(self, names: Sequence[str], *, ignore_missing: bool) -> list[str]:
        async with self._changes:
            present = [name for name in names if name in self._logs]
            if len(present) < len(names) and not ignore_missing:
                raise ChannelNotExistError(next(name for name in names if name not in self._logs))
            if present:
                async with self.broadcasts.leaving(present):
                    records = await self._catalog.mark_destroying(present)
                    for name in present:
                        log = self._logs.pop(name)
                        self.transactions.channel_destroyed(log)
                        await self._node.remove(log)
                    await self._destroy_marked(records)
                    await self.broadcasts.left(present)
            return present

    def describe(self, name: str) -> ChannelState:
        """Return what can be told about a channel. Raises ChannelNotExistError."""
        log = self._logs.get(name)
        if log is None:
            raise ChannelNotExistError(name)
        failure = self._node.admission.failure
        return ChannelState(
            self._catalog.records()[name],
            log.watermark(),
            failure.values["cause"] if failure else "",
            [VchannelState(vchannel.name, self._node.store.tail(vchannel.vchannel_id)) for vchannel in log.vchannels],
        )

    def names(self, prefix: str) -> list[str]:
        """Return the names of all channels that begin with ``prefix``, in order."""
        return sorted(name for name in self._logs if name.startswith(prefix))

    def find(self, name: str) -> tuple[ChannelLog, VchannelLog]:
        """Return the vchannel called ``name`` (``channel/index``, or ``channel`` if it has only one).

        Raises:
            InvalidNameError: No vchannel can be called so.
            ChannelNotExistError: None is.
            InvalidRequestError: The channel has several vchannels and the index was left out.
        """
        parsed = parse_vchannel_name(name)
        log = self._logs.get(parsed.channel)
        if log is None:
            raise ChannelNotExistError(parsed.channel)
        count = len(log.vchannels)
        if parsed.index is None:
            if count > 1:
                raise InvalidRequestError(
                    f"'{name}' has {count} vchannels: say which, '{name}/0' to '{name}/{count - 1}'", field="vchannel"
                )
            return log, log.vchannels[0]
        if parsed.index >= count:
            raise ChannelNotExistError(name, f"does not exist: '{parsed.channel}' has vchannels 0 to {count - 1}")
        return log, log.vchannels[parsed.index]

    def vchannel_name(self, vchannel_id: int) -> str | None:
        """Return the name of a vchannel by its number in the store; None if it is gone."""
        return self._node.vchannel_name(vchannel_id)

    # -- Vchannels -----------------------------------------------------------------------------------------

    def scanner(self, sources: Sequence[ScanSource], plan: ScanPlan) -> Scanner:
        """Return a scanner over vchannels of this node."""
        return Scanner(self._node.shared, self._readers, self._node.metrics, sources, plan)

    async def fence(self, name: str, fencing_token: int) -> None:
        """Set the fencing token of a vchannel, durably. Setting the one that it has is no error.

        From the moment of the call, appends with another token are refused; those taken before it stand. Cancelling
        does not stop it.

        Raises:
            FencingTokenMismatchError: The vchannel has a greater one. Nothing happened.
        """
        self._node.admission.check_storage()
        _, vchannel = self.find(name)
        if fencing_token < vchannel.fencing_token:
            raise FencingTokenMismatchError(
                vchannel=vchannel.name, fencing_token=fencing_token, actual_fencing_token=vchannel.fencing_token
            )
        # Ordering: both at once. What is appended from here on with this token is written behind the token, and
        # nothing with an older one is appended any more. A drop of the vchannel would come behind it as well.
        vchannel.fencing_token = fencing_token
        await self._in_order(lambda: self._node.store.fence(vchannel.vchannel_id, fencing_token))

    async def open_producer(self, name: str, producer_id: str) -> ProducerWindow:
        """Take a producer over on a vchannel, durably: raise its epoch, and return its window as it is then.

        From the moment of the call, appends of older epochs are refused; those taken before it stand, and are durable
        when this returns. Cancelling does not stop it.
        """
        self._node.admission.check_storage()
        _, vchannel = self.find(name)
        key = (vchannel.vchannel_id, producer_id)
        producers, store = self._node.shared.producers, self._node.store
        window = (producers.window(key) or UNKNOWN_PRODUCER).opened()
        # Ordering: as in ``fence``.
        changes = dict(producers.put(key, window))

        def write() -> None:
            store.write([], Beside(changes))
            hit(Failpoint.MID_OPEN_PRODUCER)
            store.sync()

        await self._in_order(write)
        return window

    async def trim(self, name: str, *, before_tick: int | None = None, before_ms: int | None = None) -> Tick:
        """Remove a prefix of a vchannel, durably; return the first tick that is still available.

        With neither bound given, everything that was acknowledged is removed. Cancelling does not stop it.
        """
        self._node.admission.check_storage()
        log, vchannel = self.find(name)
        if before_ms is not None:
            before_tick = compose(before_ms)
        return await self._tasks.finish(self._trim(log, vchannel, before_tick))

    async def _trim(self, log: ChannelLog, vchannel: VchannelLog, before_tick: int | None) -> Tick:
        async with self._changes:
            log.check_open()
            # Ordering: never beyond what is durable, so that an append in flight is not half trimmed.
            end_tick = vchannel.durable_tick + 1
            cut = end_tick if before_tick is None else min(before_tick, end_tick)
            tail = await self._node.committer.run(lambda: self._node.store.trim(vchannel.vchannel_id, cut))
            vchannel.trim_tick = tail.trim_tick
        self._reclaim_wanted.set()
        return tail.trim_tick

    def refresh_metrics(self) -> None:
        """Bring the metrics up to date that are not kept so all the time."""
        self.broadcasts.refresh_metrics()
        self.transactions.refresh_metrics()

    # -- Private -------------------------------------------------------------------------------------------

    async def _in_order(self, change: Callable[[], None]) -> None:
        """Submit a change of the store in this very step of the event loop, and wait for it."""
        await self._tasks.finish(_ended(self._node.committer.submit_job(change)))

    def _is_same(self, name: str, vchannels: int) -> bool:
        log = self._logs.get(name)
        if log is None:
            return False
        if len(log.vchannels) != vchannels:
            raise ChannelAlreadyExistsError(
                name, f"exists already with {len(log.vchannels)} vchannels, not {vchannels}: use it as it is, or "
                "choose another name",
            )  # fmt: skip
        return True

    async def _destroy_marked(self, records: Sequence[ChannelRecord]) -> None:
        """Remove the entries, then the records: a crash in between goes on from the records."""
        if not records:
            return
        ids = [number for record in records for number in record.vchannel_ids]
        await self._node.committer.run(lambda: self._node.store.drop_vchannels(ids))
        self._node.shared.producers.forget(ids)
        await self._catalog.remove([record.name for record in records])
        self._reclaim_wanted.set()

    def _check_catalog(self) -> None:
        """Refuse to start with entries that belong to no channel: their records were lost."""
        known = {number for record in self._catalog.records().values() for number in record.vchannel_ids}
        orphans = [
            number
            for number in self._node.store.vchannel_ids()
            if number not in known and self._node.store.tail(number).batches
        ]
        if orphans:
            raise DataLossError(
                f"the log has {len(orphans)} vchannels that no channel in the metadata owns (first id {orphans[0]}): "
                "the metadata belongs to another data folder, or was lost; restore both from one backup",
                vchannel_ids=len(orphans),
            )

    async def _reclaim(self) -> None:
        """Give disk back after trims and drops, one run at a time, for ever."""
        while True:
            await self._reclaim_wanted.wait()
            self._reclaim_wanted.clear()
            await asyncio.to_thread(self._node.store.reclaim)
            _log.info("disk_reclaimed")


async def _ended(job: Future[None]) -> None:
    """Wait for a job of the committer. Cancelling ends the wait only: appends behind it rest on it."""
    await asyncio.shield(asyncio.wrap_future(job))
