"""Creates, alters, destroys and describes channels."""

from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager
from dataclasses import dataclass
from typing import Protocol

import structlog

from tidelog_server.channels.catalog import Catalog, ChannelRecord, NewChannels, Owner, check_owners
from tidelog_server.channels.changes import ChannelChange
from tidelog_server.channels.contents import ContentKind
from tidelog_server.channels.directory import Directory
from tidelog_server.channels.retention import Retainer
from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import ChannelAlreadyExistsError, Effect, StorageFailedError
from tidelog_server.core.errors.cluster import MetadataUnavailableError, OwnershipLostError, cause_of
from tidelog_server.core.limits import MAX_CREATE_ATTEMPTS
from tidelog_server.core.names import is_readable_system_channel, system_channel_name
from tidelog_server.core.nodes import ChannelOwner
from tidelog_server.core.retention import KEEP_FOR_EVER, Retention
from tidelog_server.core.ticks import NO_TICK, Tick
from tidelog_server.log.channel_log import ChannelLog
from tidelog_server.log.node import LogNode
from tidelog_server.metadata.store import Change, RevisionConflictError, SharedMetadataStore
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.tasks import TaskOwner, to_its_end
from tidelog_server.storage.log_store import VchannelTail
from tidelog_server.storage.rows import Row

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


class GroupsOfChannels(Protocol):
    """What groups do when channels get vchannels, or are destroyed."""

    def check_growth(self, growing: Iterable[tuple[ChannelLog, int]]) -> None:
        """Raise RateLimitRejectedError if groups have no room for positions on vchannels, a number of each channel."""
        ...

    def channel_grown(self, log: ChannelLog, vchannels: int) -> list[Row]:
        """Subscribe the groups of the first ``vchannels`` vchannels to the others; return the changes to write."""
        ...

    def growth_written(self, changes: Iterable[Row]) -> None:
        """Assign vchannels to members, once the changes that ``channel_grown`` returned are durable."""
        ...

    def check_channels_unused(self, vchannels: Iterable[str]) -> None:
        """Raise GroupInUseError if a member of any group holds one of these vchannels."""
        ...

    def stored_on(self, vchannel_ids: Container[int]) -> list[Row]:
        """Return the changes that delete the positions on vchannels, whose removal a crash interrupted."""
        ...

    def channels_left(self, vchannels: Sequence[str]) -> list[Row]:
        """Remove the positions on vchannels that are being destroyed, and return the changes that delete them."""
        ...

    def channels_gone(self, changes: Iterable[Row]) -> None:
        """Remove positions that the store has deleted."""
        ...


class BroadcastsToChannels(Protocol):
    """What broadcasts do when channels get vchannels, or are destroyed."""

    def growing(self, channels: Sequence[str]) -> AbstractAsyncContextManager[None]:
        """Delay broadcasts to channels that get vchannels in this block; enter it once none is in progress."""
        ...

    def leaving(self, channels: Sequence[str]) -> AbstractAsyncContextManager[None]:
        """Refuse broadcasts to channels that are destroyed in this block; enter it once none is in progress."""
        ...

    async def left(self, channels: Sequence[str]) -> None:
        """Acknowledge for the vchannels of destroyed channels."""
        ...


class TransactionsOnChannels(Protocol):
    """What transactions do when channels are destroyed."""

    def channel_destroyed(self, log: ChannelLog) -> None:
        """Abort the transactions on a channel."""
        ...


@contextmanager
def _after_commit() -> Iterator[None]:
    """Run what follows a durable change of the catalog. It may fail, but the next start completes the change."""
    try:
        yield
    except (StorageFailedError, OwnershipLostError, MetadataUnavailableError) as error:
        raise error.with_effect(Effect.UNKNOWN) from error


class Lifecycle:
    """The channels of this node from their creation to their end. Lives on the event loop.

    Attributes:
        on_opened: Called after channels with contents of this kind were opened.
        on_noted: Called with the names of contents of this kind whose channels another node has created.
    """

    def __init__(
        self,
        node: LogNode,
        tasks: TaskOwner,
        directory: Directory,
        *,
        retainer: Retainer,
        groups: GroupsOfChannels,
        transactions: TransactionsOnChannels,
    ) -> None:
        self._node = node
        self._tasks = tasks
        self._directory = directory
        self._retainer = retainer
        self._groups = groups
        self._transactions = transactions
        self.on_opened: dict[ContentKind, Callable[[], None]] = {}
        self.on_noted: dict[ContentKind, Callable[[Sequence[str]], Awaitable[None]]] = {}
        self._catalog: Catalog
        self._broadcasts: BroadcastsToChannels

    async def open(self, catalog: Catalog, broadcasts: BroadcastsToChannels) -> None:
        """Complete destroys that a crash interrupted, and open this node's channels.

        Args:
            catalog: The catalog, open.
            broadcasts: Broadcasts; they may open later, but before the first channel is destroyed.

        Raises:
            DataLossError: Entries belong to no channel: their records were lost.
        """
        self._catalog = catalog
        self._broadcasts = broadcasts
        store, records = self._node.store, catalog.own
        check_owners(records.values(), {number: store.tail(number).batches for number in store.vchannel_ids()})
        self._directory.list_again(catalog.foreign)
        destroying = [record for record in records.values() if record.is_destroying]
        await self._destroy_marked(destroying)
        # A crash between writing the catalog's record and the store's vchannels leaves only the record. This cannot
        # hide lost entries: the start gate compares the number of entries.
        await self._open_new()
        # The caller then opens the groups, and calls ``finish_growths``.

    async def create(
        self,
        names: Sequence[str],
        number: int,
        vchannels: int | None,
        owner: Owner,
        *,
        if_not_exists: bool,
        retention: Retention = KEEP_FOR_EVER,
        tenant: Tenant = NO_TENANT,
    ) -> list[ChannelState]:
        """Create channels, all or none, durably; return them in the order requested. Cancelling does not stop it.

        Raises:
            ChannelAlreadyExistsError: Names are taken (with ``if_not_exists``: by channels with another number of
                vchannels than ``vchannels``, unless that is None, which makes 1).
            InvalidRequestError: The retention settings contradict each other.
            RateLimitRejectedError: There are too many channels.
        """
        self._node.admission.check()
        self._directory.ownership.check_metadata()
        retention.check()
        wanted = NewChannels(number, vchannels or 1, owner, retention, tenant=tenant, accepts_any=vchannels is None)
        return await self._tasks.finish(self._create(names, wanted, if_not_exists=if_not_exists))

    async def ensure_system_channel(self, name: str) -> None:
        """Create a system channel, with one vchannel, if it does not exist."""
        assert is_readable_system_channel(name)
        wanted = NewChannels(vchannels=1, owner=Owner(role="tidelog"), is_placed=False)
        system_name = system_channel_name(name, self._directory.ownership.node_id)
        await self._tasks.finish(self._create([system_name], wanted, if_not_exists=True))

    async def _create(self, names: Sequence[str], wanted: NewChannels, *, if_not_exists: bool) -> list[ChannelState]:
        async with self._directory.changes:
            # Another node may have destroyed one, which the watch has not reported yet.
            await self._catalog.refresh_foreign(names)
            for _ in range(MAX_CREATE_ATTEMPTS):
                try:
                    created = await self._create_missing(names, wanted, if_not_exists=if_not_exists)
                    break
                except RevisionConflictError:
                    # Another node created channels at the same time: reload and retry.
                    await self._catalog.refresh(names)
            else:
                raise MetadataUnavailableError(f"{MAX_CREATE_ATTEMPTS} attempts conflicted with those of other nodes")
            await self.open_created(created)
        if wanted.is_placed:
            await self._directory.ownership.notify(created)
        return [self.describe_anywhere(name) for name in names or [record.name for record in created]]

    async def _create_missing(
        self, names: Sequence[str], wanted: NewChannels, *, if_not_exists: bool
    ) -> list[ChannelRecord]:
        """Create the channels that do not exist, in the catalog only."""
        missing = names
        if if_not_exists:
            missing = [name for name in names if self._record(name) is None]
            if not wanted.accepts_any:
                self._check_shapes(names, wanted.vchannels)
        if names and not missing:
            return []
        return await self.create_with(wanted, lambda _: (), missing)

    async def create_with(
        self,
        wanted: NewChannels,
        also: Callable[[Sequence[ChannelRecord]], Sequence[Change]],
        names: Sequence[str] = (),
    ) -> list[ChannelRecord]:
        """Create records of channels in one commit with the changes that ``also`` returns for them.

        They are called ``names``, or the server names them; see ``Catalog.create``. The caller holds the directory's
        ``changes``, and then calls ``open_created`` and notifies the other nodes.

        Raises:
            RateLimitRejectedError: There are too many channels.
            RevisionConflictError: Another node was faster. Nothing happened.
        """
        tick = await self._node.shared.oracle.allocate(1)
        count = len(names) or len(wanted.contents) or wanted.number
        nodes = self._directory.ownership.place(count, wanted.vchannels) if wanted.is_placed else []
        percent = self._node.admission.limits.max_principal_percent
        return await self._catalog.create(names, wanted, tick, nodes, percent=percent, also=also)

    async def open_created(self, created: Sequence[ChannelRecord]) -> None:
        """Open new channels of this node, and list those of other nodes. The caller holds ``changes``."""
        with _after_commit():
            await self._open([record for record in created if record.name in self._catalog.own])
        for record in created:
            if record.name in self._catalog.foreign:
                self._directory.names.add(record.name)

    def _record(self, name: str) -> ChannelRecord | None:
        """Return the record of any node's channel; None if it does not exist or is being destroyed on this node."""
        if name in self._directory.logs:
            return self._catalog.own[name]
        return self._catalog.foreign.get(name)

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

    @to_its_end
    async def note_created(self, names: Sequence[str]) -> None:
        """Load the records of channels that another node created, and open those that this node owns."""
        self._node.admission.check_storage()
        async with self._directory.changes:
            await self._catalog.refresh(names)
            contents = list(filter(None, map(self._catalog.content_of, names)))
            for kind, noted in self.on_noted.items():
                await noted([content.name for content in contents if content.kind is kind])
            await self._open_new()
            await self.finish_growths()

    async def follow(self, metadata: SharedMetadataStore) -> None:
        """Apply other nodes' changes of channels, and open channels that they place on this node. Never returns."""
        async with aclosing(metadata.watch(self._catalog.prefix)) as changes:
            async for watched in changes:
                async with self._directory.changes:
                    self._catalog.follow(watched)
                    await self._open_new()
                    await self.finish_growths()

    async def _open_new(self) -> None:
        """Open this node's channels and vchannels that are not open yet, and refresh the list of all names."""
        records = [record for record in self._catalog.own.values() if self._is_to_open(record)]
        async with self._broadcasts.growing([each.name for each in records if each.name in self._directory.logs]):
            await self._open(records)
        self._directory.list_again(self._catalog.foreign)

    def _is_to_open(self, record: ChannelRecord) -> bool:
        log = self._directory.logs.get(record.name)
        return not record.is_destroying and (log is None or len(log.vchannels) < len(record.vchannel_ids))

    async def _open(self, records: Iterable[ChannelRecord]) -> None:
        """Open channels, and vchannels that were added to open ones, about which ``broadcasts.growing`` knows."""
        # Skip channels that another task has opened meanwhile.
        records = [record for record in records if self._is_to_open(record)]
        if not records:
            return
        ids = [number for record in records for number in record.vchannel_ids]
        await self._node.committer.run(lambda: self._node.store.create_vchannels(ids))
        for record in records:
            self._retainer.watch(record, self._directory.add(record))
        for kind, opened in self.on_opened.items():
            if any(record.holds(kind) for record in records):
                opened()

    async def finish_growths(self) -> None:
        """Subscribe groups to vchannels that were added to their channels, durably. The caller holds ``changes``.

        Ordering: in the step of the event loop in which the vchannels were opened, so the positions are written before
        the first message on them, and a group that subscribes to the channel later finds them open. After a crash in
        between, the start repeats it before anything is served: a record grows until this is durable.
        """
        logs = self._directory.logs
        growing = [each for each in self._catalog.own.values() if each.is_growing and each.name in logs]
        if not growing:
            return
        changes = [
            change
            for record in growing
            for change in self._groups.channel_grown(logs[record.name], record.growths[-1].vchannels)
        ]
        hit(Failpoint.CHANNEL_GROWTH_OPENED)
        if changes:
            await self._node.committer.submit_rows(changes)
        self._groups.growth_written(changes)
        hit(Failpoint.CHANNEL_GROWTH_SUBSCRIBED)
        try:
            await self._catalog.finish_growth(growing)
        except (MetadataUnavailableError, OwnershipLostError) as error:
            # The growth is complete and durable; only the next start, or the next change, will look at it again.
            _log.warning("growth_not_noted", channels=[record.name for record in growing], problem=error.message)

    @to_its_end
    async def alter(self, names: Sequence[str], change: ChannelChange) -> list[ChannelState]:
        """Change settings of channels, all or none, durably; return them in the order requested.

        Cancelling does not stop it. Vchannels are added by the commit of the records: a crash leaves the old number on
        all channels, or the new one. Broadcasts to the channels wait meanwhile, so one whose tick is above that of the
        growth reaches all vchannels.

        Raises:
            ChannelNotExistError: Some do not exist. Nothing happened.
            InvalidRequestError: The new settings of a channel contradict each other, or vchannels cannot be added to
                it. Nothing happened.
            RateLimitRejectedError: There would be too many vchannels, or positions of groups on them. Nothing happened.
        """
        admission = self._node.admission
        if change.vchannels:
            admission.check()
        else:
            admission.check_storage()
        self._directory.ownership.check_metadata()
        async with self._directory.changes:
            self._directory.check_exist(names)
            async with self._broadcasts.growing(names if change.vchannels else ()):
                await self._alter(names, change)
                with _after_commit():
                    await self._open([self._catalog.own[name] for name in names])
                    await self.finish_growths()
            for name in names:
                self._retainer.watch(self._catalog.own[name], self._directory.logs[name])
            return [self.describe(name) for name in names]

    async def _alter(self, names: Sequence[str], change: ChannelChange) -> None:
        """Change the records of channels of this node."""
        logs = [self._directory.logs[name] for name in names]
        more = [(log, change.vchannels - len(log.vchannels)) for log in logs]
        self._groups.check_growth((log, added) for log, added in more if added > 0)
        percent = self._node.admission.limits.max_principal_percent
        for _ in range(MAX_CREATE_ATTEMPTS):
            tick = await self._node.shared.oracle.allocate(1)
            try:
                await self._catalog.alter(names, change, tick, percent=percent)
            except RevisionConflictError:
                # Another node took ids of vchannels at the same time: reload and retry.
                await self._catalog.refresh(names)
            else:
                hit(Failpoint.CHANNEL_GROWTH_COMMITTED)
                return
        raise MetadataUnavailableError(f"{MAX_CREATE_ATTEMPTS} attempts conflicted with those of other nodes")

    @to_its_end
    async def destroy(self, names: Sequence[str], *, ignore_missing: bool, force: bool = False) -> list[str]:
        """Delete channels with their entries, all or none, durably; return those that existed.

        Cancelling does not stop it.

        Raises:
            ChannelNotExistError: Some do not exist, and ``ignore_missing`` is not set. Nothing happened.
            GroupInUseError: Members of a group consume one, and ``force`` is not set. Nothing happened.
        """
        self._node.admission.check_storage()
        directory = self._directory
        directory.ownership.check_metadata()
        async with directory.changes:
            directory.check_exist(names, ignore_missing=ignore_missing)
            present = [name for name in names if name in directory.logs]
            if present:
                vchannels = [vchannel.name for name in present for vchannel in directory.logs[name].vchannels]
                if not force:
                    self._groups.check_channels_unused(vchannels)
                async with self._broadcasts.leaving(present):
                    records = await self._catalog.mark_destroying(present)
                    with _after_commit():
                        await self._remove(present, vchannels, records)
            return present

    async def _remove(self, names: Sequence[str], vchannels: Sequence[str], records: Sequence[ChannelRecord]) -> None:
        """Close channels of this node whose records are marked, and delete what they have."""
        logs = [self._directory.remove(name) for name in names]
        # Ordering: in one step with the channels, so that no group can gain a position on them.
        positions = self._groups.channels_left(vchannels)
        for name in names:
            self._retainer.forget(name)
        for log in logs:
            self._transactions.channel_destroyed(log)
            await self._node.remove(log)
        await self._destroy_marked(records, positions)
        self._groups.channels_gone(positions)
        await self._broadcasts.left(names)

    async def _destroy_marked(self, records: Sequence[ChannelRecord], positions: Sequence[Row] | None = None) -> None:
        """Delete the entries and the positions on them, then the records.

        After a crash in between, a restart resumes from the records; then the positions are those in the store.
        """
        if not records:
            return
        ids = [number for record in records for number in record.vchannel_ids]
        if positions is None:
            positions = self._groups.stored_on(frozenset(ids))
        await self._node.committer.run(lambda: self._node.store.drop_vchannels(ids, positions))
        self._node.shared.producers.forget(ids)
        await self._catalog.remove([record.name for record in records])
        self._node.reclaim_wanted.set()

    def describe(self, name: str) -> ChannelState:
        """Return the state of a channel. Raises ChannelNotExistError, NotOwnerError."""
        log = self._directory.find_channel(name)
        failure = self._node.admission.failure
        return ChannelState(
            self._catalog.own[name],
            log.watermark(),
            cause_of(failure) if failure else "",
            [VchannelState(vchannel.name, self._node.store.tail(vchannel.vchannel_id)) for vchannel in log.vchannels],
            self._directory.ownership.owner(name) or ChannelOwner(name, ""),
        )

    def describe_anywhere(self, name: str) -> ChannelState:
        """Return the state of any node's channel as this node knows it. Raises ChannelNotExistError."""
        record = self._catalog.foreign.get(name)
        if record is None:
            return self.describe(name)
        owner = self._directory.ownership.owner(name) or ChannelOwner(name, record.node_id)
        return ChannelState(record, NO_TICK, "", [], owner)
