"""Creates, alters, destroys and describes channels."""

from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Protocol

from tidelog_server.channels.catalog import Catalog, ChannelRecord, NewChannels, Owner, check_owners
from tidelog_server.channels.contents import ContentKind
from tidelog_server.channels.directory import Directory
from tidelog_server.channels.retention import Retainer
from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.errors import ChannelAlreadyExistsError
from tidelog_server.core.errors.cluster import MetadataUnavailableError
from tidelog_server.core.limits import MAX_CREATE_ATTEMPTS
from tidelog_server.core.names import is_readable_system_channel, system_channel_name
from tidelog_server.core.nodes import ChannelOwner
from tidelog_server.core.retention import KEEP_FOR_EVER, Retention, RetentionChange
from tidelog_server.core.ticks import NO_TICK, Tick
from tidelog_server.log.channel_log import ChannelLog
from tidelog_server.log.node import LogNode
from tidelog_server.metadata.store import Change, RevisionConflictError, SharedMetadataStore
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.log_store import VchannelTail
from tidelog_server.storage.rows import Row


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
    """What groups do when channels are destroyed."""

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
    """What broadcasts do when channels are destroyed."""

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

    async def create(
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
        self._directory.ownership.check_metadata()
        retention.check()
        wanted = NewChannels(number, vchannels, owner, retention, tenant=tenant)
        return await self._tasks.finish(self._create(names, wanted, if_not_exists=if_not_exists))

    async def ensure_system_channel(self, name: str) -> None:
        """Create a system channel, with one vchannel, if it does not exist."""
        assert is_readable_system_channel(name)
        wanted = NewChannels(vchannels=1, owner=Owner(role="tidelog"), is_placed=False)
        system_name = system_channel_name(name, self._directory.ownership.node_id)
        await self._tasks.finish(self._create([system_name], wanted, if_not_exists=True))

    async def _create(self, names: Sequence[str], wanted: NewChannels, *, if_not_exists: bool) -> list[ChannelState]:
        async with self._directory.changes:
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
            self._check_shapes(names, wanted.vchannels)
        if names and not missing:
            return []
        tick = await self._node.shared.oracle.allocate(1)
        ownership = self._directory.ownership
        nodes = ownership.place(len(missing) or wanted.number, wanted.vchannels) if wanted.is_placed else []
        percent = self._node.admission.limits.max_principal_percent
        return await self._catalog.create(missing, wanted, tick, nodes, percent=percent)

    async def create_with(
        self, wanted: NewChannels, also: Callable[[Sequence[ChannelRecord]], Sequence[Change]]
    ) -> list[ChannelRecord]:
        """Create the channels of ``wanted.contents`` in one commit with the changes that ``also`` returns for them.

        The caller holds the directory's ``changes``, and then calls ``open_created`` and notifies the other nodes.

        Raises:
            RateLimitRejectedError: There are too many channels.
            RevisionConflictError: Another node was faster. Nothing happened.
        """
        tick = await self._node.shared.oracle.allocate(1)
        nodes = self._directory.ownership.place(len(wanted.contents), wanted.vchannels) if wanted.is_placed else []
        percent = self._node.admission.limits.max_principal_percent
        return await self._catalog.create((), wanted, tick, nodes, percent=percent, also=also)

    async def open_created(self, created: Sequence[ChannelRecord]) -> None:
        """Open new channels of this node, and list those of other nodes. The caller holds ``changes``."""
        await self._open([record for record in created if record.name in self._catalog.own])
        for record in created:
            if record.name in self._catalog.foreign:
                self._directory.add_foreign(record.name)

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

    async def note_created(self, names: Sequence[str]) -> None:
        """Load the records of channels that another node created, and open those that this node owns."""
        self._node.admission.check_storage()
        await self._tasks.finish(self._note_created(names))

    async def _note_created(self, names: Sequence[str]) -> None:
        async with self._directory.changes:
            await self._catalog.refresh(names)
            contents = list(filter(None, map(self._catalog.content_of, names)))
            for kind, noted in self.on_noted.items():
                await noted([content.name for content in contents if content.kind is kind])
            await self._open_new()

    async def follow(self, metadata: SharedMetadataStore) -> None:
        """Apply other nodes' changes of channels, and open channels that they place on this node. Never returns."""
        async with aclosing(metadata.watch(self._catalog.prefix)) as changes:
            async for watched in changes:
                async with self._directory.changes:
                    self._catalog.follow(watched)
                    await self._open_new()

    async def _open_new(self) -> None:
        """Open this node's channels that are not open yet, and refresh the list of all names."""
        await self._open([record for record in self._catalog.own.values() if not record.is_destroying])
        self._directory.list_again(self._catalog.foreign)

    async def _open(self, records: Iterable[ChannelRecord]) -> None:
        # Skip channels that another task has opened meanwhile.
        records = [record for record in records if record.name not in self._directory.logs]
        if not records:
            return
        ids = [number for record in records for number in record.vchannel_ids]
        await self._node.committer.run(lambda: self._node.store.create_vchannels(ids))
        for record in records:
            self._retainer.watch(record, self._directory.add(record))
        for kind, opened in self.on_opened.items():
            if any(record.holds(kind) for record in records):
                opened()

    async def alter(self, names: Sequence[str], change: RetentionChange) -> list[ChannelState]:
        """Change settings of channels, all or none, durably; return them in the order requested.

        Cancelling does not stop it.

        Raises:
            ChannelNotExistError: Some do not exist. Nothing happened.
            InvalidRequestError: The new settings of a channel contradict each other. Nothing happened.
        """
        self._node.admission.check_storage()
        self._directory.ownership.check_metadata()
        return await self._tasks.finish(self._alter(names, change))

    async def _alter(self, names: Sequence[str], change: RetentionChange) -> list[ChannelState]:
        async with self._directory.changes:
            self._directory.check_exist(names)
            for record in await self._catalog.alter(names, change):
                self._retainer.watch(record, self._directory.logs[record.name])
            return [self.describe(name) for name in names]

    async def destroy(self, names: Sequence[str], *, ignore_missing: bool, force: bool = False) -> list[str]:
        """Delete channels with their entries, all or none, durably; return those that existed.

        Cancelling does not stop it.

        Raises:
            ChannelNotExistError: Some do not exist, and ``ignore_missing`` is not set. Nothing happened.
            GroupInUseError: Members of a group consume one, and ``force`` is not set. Nothing happened.
        """
        self._node.admission.check_storage()
        self._directory.ownership.check_metadata()
        return await self._tasks.finish(self._destroy(names, ignore_missing=ignore_missing, force=force))

    async def _destroy(self, names: Sequence[str], *, ignore_missing: bool, force: bool) -> list[str]:
        directory = self._directory
        async with directory.changes:
            for name in names:
                directory.ownership.check_here(name, name)
            if not ignore_missing:
                directory.check_exist(names)
            present = [name for name in names if name in directory.logs]
            if present:
                vchannels = [vchannel.name for name in present for vchannel in directory.logs[name].vchannels]
                if not force:
                    self._groups.check_channels_unused(vchannels)
                async with self._broadcasts.leaving(present):
                    records = await self._catalog.mark_destroying(present)
                    logs = [directory.remove(name) for name in present]
                    # Ordering: in one step with the channels, so that no group can gain a position on them.
                    positions = self._groups.channels_left(vchannels)
                    for name in present:
                        self._retainer.forget(name)
                    for log in logs:
                        self._transactions.channel_destroyed(log)
                        await self._node.remove(log)
                    await self._destroy_marked(records, positions)
                    self._groups.channels_gone(positions)
                    await self._broadcasts.left(present)
            return present

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
            failure.values["cause"] if failure else "",
            [VchannelState(vchannel.name, self._node.store.tail(vchannel.vchannel_id)) for vchannel in log.vchannels],
            self._directory.ownership.owner(name) or ChannelOwner(name, ""),
        )

    def describe_anywhere(self, name: str) -> ChannelState:
        """Return the state of any node's channel as this node knows it. Raises ChannelNotExistError."""
        record = self._directory.ownership.foreign().get(name)
        if record is None:
            return self.describe(name)
        owner = self._directory.ownership.owner(name) or ChannelOwner(name, record.node_id)
        return ChannelState(record, NO_TICK, "", [], owner)
