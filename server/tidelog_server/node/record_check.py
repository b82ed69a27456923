"""The checks of metadata records that opening a node makes, without changing any record."""

from collections.abc import Iterable, Mapping

from tidelog_server.broadcast.keys import ResourceKeys
from tidelog_server.broadcast.store import BroadcastRecords, check_targets, take_keys_again
from tidelog_server.broadcast.table import Task
from tidelog_server.channels.catalog import Catalog, ChannelRecord, check_owners
from tidelog_server.core.broadcasts import BroadcastState
from tidelog_server.core.groups import GroupKey
from tidelog_server.groups.catalog import GroupCatalog, check_positions
from tidelog_server.journals.catalog import JournalCatalog, check_journals
from tidelog_server.mailboxes.catalog import MailboxCatalog, check_mailboxes
from tidelog_server.metadata.shared_commits import SharedCommits
from tidelog_server.metadata.store import MetadataStore
from tidelog_server.runtime.tasks import TaskOwner


async def check_records(
    metadata: MetadataStore, root: str, batches: Mapping[int, int], positions: Iterable[GroupKey]
) -> Mapping[str, ChannelRecord]:
    """Check the records of a standalone node; return those of its channels, by name.

    Args:
        metadata: The records; they are not changed.
        root: Prefix of their keys.
        batches: Number of entries of each vchannel in the log, by id.
        positions: Positions of groups in the log's store.

    Raises:
        DataLossError: A record is unreadable, or contradicts another one or the log.
    """
    catalog = Catalog(metadata, root)
    await catalog.open()
    check_owners(catalog.own.values(), batches)
    journals = JournalCatalog(metadata, root)
    await journals.open()
    check_journals(journals.records.values(), catalog.own)
    mailboxes = MailboxCatalog(metadata, root)
    await mailboxes.open()
    check_mailboxes(mailboxes.records, catalog.own)
    commits = SharedCommits(metadata, TaskOwner(_no_task))
    groups = GroupCatalog(metadata, commits, root)
    await groups.open()
    check_positions(groups.records, positions)
    broadcasts = await BroadcastRecords(metadata, commits, root).load()
    _check_broadcasts(broadcasts.tasks, catalog.own)
    return catalog.own


def _check_broadcasts(tasks: Iterable[Task], channels: Mapping[str, ChannelRecord]) -> None:
    places = {
        (f"{channel.name}/{index}", number)
        for channel in channels.values()
        for index, number in enumerate(channel.vchannel_ids)
    }
    keys = ResourceKeys()
    for task in tasks:
        take_keys_again(keys, task)
        if task.state is BroadcastState.PENDING:
            wanted = zip(task.record.vchannels, task.record.vchannel_ids, strict=True)
            check_targets(task, sum(place in places for place in wanted))


def _no_task(name: str, _: BaseException) -> None:
    raise AssertionError(f"a check must not start tasks, but started {name}")
