"""Creates, configures, finds and deletes mailboxes.

A mailbox is two metadata records: its own, with its settings, and that of the channel with its events,
``_mailbox.<id>``. One commit of the metadata store creates both. A delete commits only the removal of the first, which
alone decides whether the mailbox exists; ``channels.orphans`` then destroys the channel with the messages.

In a cluster the owner of the channel alone configures and deletes a mailbox. Dead letters stay on one node: a mailbox
that names another one for its dead letters is created on the node of that one, by that node. So the node that deletes
a mailbox knows all mailboxes whose dead letters go there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidelog_server.channels.catalog import Catalog, ChannelRecord, NewChannels, Owner
from tidelog_server.channels.contents import Content, ContentKind
from tidelog_server.channels.directory import Directory
from tidelog_server.channels.lifecycle import Lifecycle
from tidelog_server.channels.orphans import Orphans
from tidelog_server.core.callers import Tenant
from tidelog_server.core.errors import ChannelNotExistError, InvalidRequestError
from tidelog_server.core.errors.cluster import MetadataUnavailableError
from tidelog_server.core.errors.mailboxes import (
    DeadLetterCycleError,
    MailboxAlreadyExistsError,
    MailboxInUseError,
    MailboxNotExistError,
)
from tidelog_server.core.limits import MAX_CREATE_ATTEMPTS
from tidelog_server.core.mailboxes import DEFAULT_SETTINGS, MailboxSettings
from tidelog_server.core.names import check_new_mailbox_name
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Place
from tidelog_server.mailboxes.catalog import MailboxCatalog, MailboxRecord
from tidelog_server.metadata.store import Change, MetadataStore, RevisionConflictError, SharedMetadataStore
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.tasks import TaskOwner

_OWNER: Final = Owner(role="mailbox")


class Registry:
    """The mailboxes of this node, or of the whole cluster. Lives on the event loop.

    Attributes:
        catalog: Their records; set when the node opens.
        orphans: Channels of deleted mailboxes; set when the node opens.
        on_configured: Called with the new record once settings of a mailbox of this node have changed.
        on_deleted: Called with the last record once a mailbox of this node is deleted, before its channel is destroyed.
    """

    def __init__(self, node: LogNode, tasks: TaskOwner, directory: Directory, lifecycle: Lifecycle) -> None:
        self._node = node
        self._tasks = tasks
        self._directory = directory
        self._lifecycle = lifecycle
        self._channels: Catalog
        self._metadata: MetadataStore
        self.catalog: MailboxCatalog
        self.orphans: Orphans
        # Names by id, as of a version of the catalog.
        self._names: dict[int, str] = {}
        self._names_version = -1
        self.on_configured: Callable[[MailboxRecord], None] = lambda _: None
        self.on_deleted: Callable[[MailboxRecord], None] = lambda _: None

    async def open(self, metadata: MetadataStore, channels: Catalog, root: str) -> None:
        """Load all records, and destroy this node's channels whose mailbox was deleted before a crash.

        Raises:
            DataLossError: A record is unreadable.
        """
        self._metadata = metadata
        self._channels = channels
        self.catalog = MailboxCatalog(metadata, root)
        await self.catalog.open()
        self._lifecycle.on_noted[ContentKind.MAILBOX] = self.catalog.refresh
        self.orphans = Orphans(ContentKind.MAILBOX, self.catalog, channels, self._directory, self._lifecycle)
        await self.orphans.destroy()

    def find(self, name: str) -> tuple[MailboxRecord, Place]:
        """Return a mailbox of this node, and the vchannel with its events.

        Raises:
            MailboxNotExistError: The mailbox does not exist.
            NotOwnerError: Another node owns its channel.
        """
        record = self._record(name)
        if record.channel not in self._directory.logs:
            self._directory.ownership.check_here(record.channel, name)
        try:
            log = self._directory.find_channel(record.channel)
        except ChannelNotExistError as error:
            # Its creation or its delete is in progress.
            raise MailboxNotExistError(name) from error
        return record, Place(log, log.vchannels[0])

    def name_of(self, mailbox_id: int) -> str:
        """Return the name of a mailbox of any node; empty if it was deleted."""
        if self._names_version != self.catalog.version:
            self._names = {record.mailbox_id: record.name for record in self.catalog.records.values()}
            self._names_version = self.catalog.version
        return self._names.get(mailbox_id, "")

    def is_own(self, name: str) -> bool:
        """Return whether this node has a mailbox."""
        record = self.catalog.records.get(name)
        return record is not None and record.channel in self._directory.logs

    def own_names(self) -> Sequence[str]:
        """Return the names of the mailboxes of this node."""
        logs = self._directory.logs
        return [record.name for record in self.catalog.records.values() if record.channel in logs]

    async def create(
        self, name: str, changes: Mapping[str, Any], tenant: Tenant, *, if_not_exists: bool = False
    ) -> tuple[MailboxRecord, bool]:
        """Create a mailbox, durably; return it, and whether this call created it. Cancelling does not stop it.

        Args:
            name: Its name, checked.
            changes: Settings that differ from the defaults, as fields of MailboxSettings.
            tenant: Tenant of the caller, to which the channel counts.
            if_not_exists: True to return an existing mailbox, whatever its settings.

        Raises:
            InvalidRequestError: A setting is out of its range, or contradicts another one. Nothing happened.
            InvalidNameError: The mailbox does not exist, and its name is not plain. Nothing happened.
            MailboxAlreadyExistsError: The name is taken. Nothing happened.
            MailboxNotExistError: The mailbox for dead letters does not exist. Nothing happened.
            DeadLetterCycleError: It is the mailbox for its own dead letters. Nothing happened.
            NotOwnerError: Another node owns the mailbox for dead letters. Nothing happened.
            RateLimitRejectedError: There are too many channels. Nothing happened.
        """
        settings = DEFAULT_SETTINGS.changed(**changes)
        self._node.admission.check()
        self._directory.ownership.check_metadata()
        return await self._tasks.finish(self._create(name, settings, tenant, if_not_exists=if_not_exists))

    async def _create(
        self, name: str, settings: MailboxSettings, tenant: Tenant, *, if_not_exists: bool
    ) -> tuple[MailboxRecord, bool]:
        async with self._directory.changes:
            for _ in range(MAX_CREATE_ATTEMPTS):
                # The caller may know a change of another node that this node's watch has not reported yet.
                await self.catalog.refresh([name, settings.dead_letter] if settings.dead_letter else [name])
                found = self.catalog.records.get(name)
                if found is not None and if_not_exists:
                    return found, False
                if found is not None:
                    raise MailboxAlreadyExistsError(name)
                check_new_mailbox_name(name)
                if settings.dead_letter and settings.dead_letter != name:
                    target = self._record(settings.dead_letter)
                    self._directory.ownership.check_here(target.channel, target.name)
                self._check_cycle(name, settings)
                try:
                    record, channels = await self._commit_new(name, settings, tenant)
                    break
                except RevisionConflictError:
                    # Another node was faster.
                    await self._channels.refresh(())
            else:
                raise _conflicts()
            hit(Failpoint.MAILBOX_MID_CREATE)
            await self._lifecycle.open_created(channels)
        await self._directory.ownership.notify(channels)
        return record, True

    async def _commit_new(
        self, name: str, settings: MailboxSettings, tenant: Tenant
    ) -> tuple[MailboxRecord, Sequence[ChannelRecord]]:
        """Commit the records of a new mailbox and its channel."""
        record = MailboxRecord(name, 0, settings, self._node.clock.wall_ms())

        def also(channels: Sequence[ChannelRecord]) -> Sequence[Change]:
            nonlocal record
            record = MailboxRecord(name, channels[0].vchannel_ids[0], settings, record.created_ms)
            return [self.catalog.put(record)]

        wanted = NewChannels(
            owner=_OWNER, tenant=tenant, contents=(Content(ContentKind.MAILBOX, name),),
            is_placed=not settings.dead_letter,
        )  # fmt: skip
        channels = await self._lifecycle.create_with(wanted, also)
        return self.catalog.committed(record, self._channels.revision_of(record.channel)), channels

    async def configure(self, name: str, changes: Mapping[str, Any]) -> MailboxRecord:
        """Change settings of a mailbox of this node, durably; return it. Cancelling does not stop it.

        Args:
            name: The mailbox.
            changes: New values of fields of MailboxSettings.

        Raises:
            MailboxNotExistError: The mailbox, or that for its dead letters, does not exist. Nothing happened.
            NotOwnerError: Another node owns its channel. Nothing happened.
            InvalidRequestError: A setting is out of its range, or contradicts another one, or another node owns the
                mailbox for dead letters. Nothing happened.
            DeadLetterCycleError: Dead letters would form a cycle. Nothing happened.
        """
        self._node.admission.check_storage()
        self._directory.ownership.check_metadata()
        return await self._tasks.finish(self._configure(name, changes))

    async def _configure(self, name: str, changes: Mapping[str, Any]) -> MailboxRecord:
        async with self._directory.changes:
            for _ in range(MAX_CREATE_ATTEMPTS):
                record = await self._own(name)
                settings = record.settings.changed(**changes)
                if settings == record.settings:
                    return record
                if settings.dead_letter:
                    target = self._record(settings.dead_letter)
                    self._check_same_node(record, target)
                    self._check_cycle(name, settings)
                altered = MailboxRecord(name, record.mailbox_id, settings, record.created_ms, record.revision)
                try:
                    revision = await self._metadata.commit([self.catalog.put(altered)])
                except RevisionConflictError:
                    continue
                altered = self.catalog.committed(altered, revision)
                self.on_configured(altered)
                return altered
            raise _conflicts()

    async def delete(self, name: str, *, ignore_missing: bool = False) -> bool:
        """Delete a mailbox of this node with its messages, durably; return whether it existed.

        Cancelling does not stop it.

        Raises:
            MailboxNotExistError: It does not exist, and ``ignore_missing`` is not set. Nothing happened.
            NotOwnerError: Another node owns its channel. Nothing happened.
            MailboxInUseError: Dead letters of another mailbox go there. Nothing happened.
        """
        self._node.admission.check_storage()
        self._directory.ownership.check_metadata()
        return await self._tasks.finish(self._delete(name, ignore_missing=ignore_missing))

    async def _delete(self, name: str, *, ignore_missing: bool) -> bool:
        async with self._directory.changes:
            for _ in range(MAX_CREATE_ATTEMPTS):
                try:
                    record = await self._own(name)
                except MailboxNotExistError:
                    if ignore_missing:
                        return False
                    raise
                if sender := self.catalog.sender_of_dead_letters(name):
                    raise MailboxInUseError(name, sender)
                try:
                    await self._metadata.commit([self.catalog.delete(record)])
                except RevisionConflictError:
                    continue
                self.catalog.forget(name)
                self.on_deleted(record)
                break
            else:
                raise _conflicts()
        hit(Failpoint.MAILBOX_MID_DELETE)
        # The delete is committed: an error would say that it had no effect.
        await self.orphans.try_to_destroy()
        return True

    async def follow(self, metadata: SharedMetadataStore) -> None:
        """Apply other nodes' changes of mailboxes. Never returns."""
        await self.catalog.run(metadata, self._directory.changes, self.orphans.may_exist.set)

    def _record(self, name: str) -> MailboxRecord:
        """Return a mailbox of any node. Raises MailboxNotExistError."""
        record = self.catalog.records.get(name)
        if record is None:
            raise MailboxNotExistError(name)
        return record

    async def _own(self, name: str) -> MailboxRecord:
        """Return the stored record of a mailbox of this node. Raises MailboxNotExistError, NotOwnerError."""
        await self.catalog.refresh([name])
        record = self._record(name)
        self._directory.ownership.check_here(record.channel, name)
        return record

    def _check_same_node(self, record: MailboxRecord, target: MailboxRecord) -> None:
        owner = self._directory.ownership.owner(target.channel)
        if owner is not None and owner.node_id != self._directory.ownership.node_id:
            raise InvalidRequestError(
                f"dead letters of mailbox '{record.name}' cannot go to '{target.name}', which belongs to node "
                f"'{owner.node_id}': choose a mailbox of node '{self._directory.ownership.node_id}', or create "
                "the mailbox again with this dead_letter, which places it there",
                field="dead_letter",
            )

    def _check_cycle(self, name: str, settings: MailboxSettings) -> None:
        if settings.dead_letter and self.catalog.dead_letters_reach(settings.dead_letter, name):
            raise DeadLetterCycleError(name, settings.dead_letter)


def _conflicts() -> MetadataUnavailableError:
    return MetadataUnavailableError(f"{MAX_CREATE_ATTEMPTS} attempts conflicted with those of other nodes")
