"""Applies, lists and watches journals.

A journal is two metadata records: its specification, and the channel with its frames, ``_journal.<id>``. One commit of
the metadata store creates both, so a crash leaves both or neither; the store's vchannel follows from the record of the
channel, at the latest at the next start. A delete commits only the removal of the specification, which alone decides
whether the journal exists; ``channels.orphans`` then destroys the channel.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tidelog_server.channels.catalog import Catalog, ChannelRecord, NewChannels, Owner
from tidelog_server.channels.contents import Content, ContentKind
from tidelog_server.channels.directory import Directory
from tidelog_server.channels.lifecycle import Lifecycle
from tidelog_server.channels.orphans import Orphans
from tidelog_server.core.callers import Tenant
from tidelog_server.core.errors.cluster import MetadataUnavailableError
from tidelog_server.core.limits import MAX_CREATE_ATTEMPTS
from tidelog_server.journals.catalog import Journal, JournalCatalog, JournalChange, Plan
from tidelog_server.log.node import LogNode
from tidelog_server.metadata.store import Change, MetadataStore, RevisionConflictError, SharedMetadataStore
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.tasks import TaskOwner, to_its_end

_OWNER: Final = Owner(role="journal")


class Journals:
    """The journals of this node, or of the whole cluster. Lives on the event loop.

    Attributes:
        catalog: Their records; set when the node opens.
        orphans: Channels of deleted journals; set when the node opens.
        on_changed: Called when a record has changed.
    """

    def __init__(self, node: LogNode, tasks: TaskOwner, directory: Directory, lifecycle: Lifecycle) -> None:
        self._node = node
        self._tasks = tasks
        self._directory = directory
        self._lifecycle = lifecycle
        self._channels: Catalog
        self._metadata: MetadataStore
        self.catalog: JournalCatalog
        self.orphans: Orphans
        self.on_changed: Callable[[], None] = lambda: None

    async def open(self, metadata: MetadataStore, channels: Catalog, root: str) -> None:
        """Load all records, and destroy this node's channels whose journal was deleted before a crash.

        Raises:
            DataLossError: A record is unreadable.
        """
        self._metadata = metadata
        self._channels = channels
        self.catalog = JournalCatalog(metadata, root)
        await self.catalog.open()
        self.orphans = Orphans(ContentKind.JOURNAL, self.catalog, channels, self._directory, self._lifecycle)
        await self.orphans.destroy()

    @to_its_end
    async def apply(self, changes: Sequence[JournalChange], tenant: Tenant) -> list[Journal]:
        """Create, change and delete journals, all or none, durably; return those that were not deleted, in order.

        A delete also ends the use of the journal by members of groups. Cancelling does not stop it.

        Args:
            changes: 1 to MAX_JOURNALS_PER_REQUEST changes of different journals.
            tenant: Tenant of the caller, to which new channels count.

        Raises:
            JournalRevisionMismatchError: A journal has another revision than expected. Nothing happened.
            RateLimitRejectedError: There are too many channels. Nothing happened.
        """
        if any(change.labels is not None for change in changes):
            self._node.admission.check()
        self._node.admission.check_storage()
        self._directory.ownership.check_metadata()
        names = [change.name for change in changes]
        async with self._directory.changes:
            for _ in range(MAX_CREATE_ATTEMPTS):
                # The caller may know a change of another node that this node's watch has not reported yet.
                await self.catalog.refresh(names)
                plan = self.catalog.plan(changes)
                try:
                    created = await self._commit(plan, tenant)
                    break
                except RevisionConflictError:
                    # Another node was faster: reload and check the expected revisions again.
                    await self._channels.refresh(())
            else:
                raise MetadataUnavailableError(f"{MAX_CREATE_ATTEMPTS} attempts conflicted with those of other nodes")
            records = self.catalog.records
            result = [records[change.name] for change in changes if change.labels is not None]
        self.on_changed()
        await self._directory.ownership.notify(created)
        if plan.gone:
            hit(Failpoint.JOURNAL_MID_DELETE)
            # The delete is committed: an error would say that it had no effect.
            await self.orphans.try_to_destroy()
        return result

    async def _commit(self, plan: Plan, tenant: Tenant) -> list[ChannelRecord]:
        """Commit a plan in one change of the metadata store, and open the new channels; return their records."""
        catalog, created, channels = self.catalog, list[Journal](), list[ChannelRecord]()

        def also(records: Sequence[ChannelRecord]) -> list[Change]:
            nonlocal created
            names = [each.content_name for each in records]
            created = [
                Journal(name, each.vchannel_ids[0], plan.new[name]) for name, each in zip(names, records, strict=True)
            ]
            return catalog.changes_of(plan, created)

        if plan.new:
            contents = tuple(Content(ContentKind.JOURNAL, name) for name in plan.new)
            wanted = NewChannels(owner=_OWNER, tenant=tenant, contents=contents)
            channels = await self._lifecycle.create_with(wanted, also)
            revision = self._channels.revision_of(channels[0].name)
        elif changes := catalog.changes_of(plan, ()):
            revision = await self._metadata.commit(changes)
        else:
            return []
        catalog.committed(plan, created, revision)
        hit(Failpoint.JOURNAL_MID_APPLY)
        await self._lifecycle.open_created(channels)
        return channels

    async def follow(self, metadata: SharedMetadataStore) -> None:
        """Apply other nodes' changes of journals. Never returns."""
        await self.catalog.run(metadata, self._directory.changes, self._changed_elsewhere)

    def _changed_elsewhere(self) -> None:
        self.on_changed()
        self.orphans.may_exist.set()
