"""Applies, lists and watches journals.

A journal is two metadata records: its specification, and the channel with its frames, ``_journal.<id>``. One commit of
the metadata store creates both, so a crash leaves both or neither; the store's vchannel follows from the record of the
channel, at the latest at the next start. A delete commits only the removal of the specification, which alone decides
whether the journal exists. The owner of the channel then destroys every channel whose specification is gone: at once if
the delete ran on this node, when it learns of it in a cluster, and at its start after a crash in between.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

import structlog

from tidelog_server.channels.catalog import Catalog, ChannelRecord, NewChannels, Owner
from tidelog_server.channels.directory import Directory
from tidelog_server.channels.lifecycle import Lifecycle
from tidelog_server.core.callers import Tenant
from tidelog_server.core.errors import TidelogServerError
from tidelog_server.core.errors.cluster import MetadataUnavailableError
from tidelog_server.core.limits import MAX_CREATE_ATTEMPTS
from tidelog_server.journals.catalog import Journal, JournalCatalog, JournalChange, Plan
from tidelog_server.journals.labels import EVERY_JOURNAL, Selector
from tidelog_server.log.node import LogNode
from tidelog_server.metadata.store import Change, MetadataStore, RevisionConflictError, SharedMetadataStore
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.tasks import TaskOwner

_OWNER: Final = Owner(role="journal")
_log = structlog.get_logger()


class Journals:
    """The journals of this node, or of the whole cluster. Lives on the event loop.

    Attributes:
        catalog: Their records; set when the node opens.
        watchers: Events that are set when a record has changed.
    """

    def __init__(self, node: LogNode, tasks: TaskOwner, directory: Directory, lifecycle: Lifecycle) -> None:
        self._node = node
        self._tasks = tasks
        self._directory = directory
        self._lifecycle = lifecycle
        self._channels: Catalog
        self._metadata: MetadataStore
        self.catalog: JournalCatalog
        self.watchers: set[asyncio.Event] = set()
        # Set when a channel may have lost its journal.
        self._may_have_orphans = asyncio.Event()

    async def open(self, metadata: MetadataStore, channels: Catalog, root: str) -> None:
        """Load all records, and destroy this node's channels whose journal was deleted before a crash.

        Raises:
            DataLossError: A record is unreadable.
        """
        self._metadata = metadata
        self._channels = channels
        self.catalog = JournalCatalog(metadata, root)
        await self.catalog.open()
        self._lifecycle.on_journals_opened = self._may_have_orphans.set
        await self._collect()

    def name_of(self, channel: str) -> str:
        """Return the journal whose frames ``channel`` holds; empty for other channels."""
        return self._channels.journal_of(channel) or ""

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
        return await self._tasks.finish(self._apply(changes, tenant))

    async def _apply(self, changes: Sequence[JournalChange], tenant: Tenant) -> list[Journal]:
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
        self._wake()
        await self._directory.ownership.notify(created)
        if plan.gone:
            hit(Failpoint.JOURNAL_MID_DELETE)
            # The delete is committed: an error would say that it had no effect.
            await self._try_to_collect()
        return result

    async def _commit(self, plan: Plan, tenant: Tenant) -> list[ChannelRecord]:
        """Commit a plan in one change of the metadata store, and open the new channels; return their records."""
        catalog, created, channels = self.catalog, list[Journal](), list[ChannelRecord]()

        def also(records: Sequence[ChannelRecord]) -> list[Change]:
            nonlocal created
            created = [Journal(each.journal, each.vchannel_ids[0], plan.new[each.journal]) for each in records]
            return catalog.changes_of(plan, created)

        if plan.new:
            wanted = NewChannels(owner=_OWNER, tenant=tenant, journals=tuple(plan.new))
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

    def select(self, selector: Selector = EVERY_JOURNAL, after: str = "") -> list[Journal]:
        """Return the journals that ``selector`` matches with names greater than ``after``, in order of name."""
        found = self.catalog.after(after, selector.journals())
        return [journal for journal in found if selector.matches(journal.all_labels)]

    async def follow(self, metadata: SharedMetadataStore) -> None:
        """Apply other nodes' changes of journals. Never returns."""
        async with aclosing(metadata.watch(self.catalog.prefix)) as changes:
            async for watched in changes:
                async with self._directory.changes:
                    version = self.catalog.version
                    self.catalog.follow(watched)
                if version != self.catalog.version:
                    self._wake()
                    self._may_have_orphans.set()

    async def collect(self) -> None:
        """Destroy this node's channels whose journals other nodes delete. Never returns."""
        while True:
            await self._may_have_orphans.wait()
            self._may_have_orphans.clear()
            await self._try_to_collect()

    async def _try_to_collect(self) -> None:
        try:
            await self._collect()
        except TidelogServerError as error:
            # The channels cannot be found by name any more; they are destroyed at the next delete, or the next change
            # in a cluster, or the next start.
            _log.warning("journals_not_collected", error=str(error))

    async def _collect(self) -> None:
        async with self._directory.changes:
            suspects = [
                record
                for record in self._channels.records().values()
                if record.journal and not record.is_destroying and not self._has_journal(record)
            ]
            # In a cluster, this node may know the channel before it knows the journal. One commit wrote both, so the
            # metadata store decides.
            await self.catalog.refresh([record.journal for record in suspects])
            orphans = [record.name for record in suspects if not self._has_journal(record)]
        if orphans:
            await self._lifecycle.destroy(orphans, ignore_missing=True, force=True)

    def _has_journal(self, record: ChannelRecord) -> bool:
        journal = self.catalog.records.get(record.journal)
        return journal is not None and journal.channel == record.name

    def _wake(self) -> None:
        for watcher in self.watchers:
            watcher.set()
