"""What a start finds out about the records in the metadata, without changing any: all that opening a broker refuses."""

from collections.abc import Iterable, Mapping

from tidelog_server.broker.broadcast_store import BroadcastStore, check_targets, take_keys_again
from tidelog_server.broker.broadcast_table import Task
from tidelog_server.broker.catalog import Catalog, ChannelRecord, check_owners
from tidelog_server.broker.group_catalog import GroupCatalog, check_positions
from tidelog_server.broker.resource_keys import ResourceKeys
from tidelog_server.core.broadcasts import BroadcastState
from tidelog_server.core.groups import GroupKey
from tidelog_server.metadata.shared_commits import SharedCommits
from tidelog_server.metadata.store import MetadataStore
from tidelog_server.runtime.tasks import TaskOwner


async def check_records(
    metadata: MetadataStore, root: str, batches: Mapping[int, int], positions: Iterable[GroupKey]
) -> Mapping[str, ChannelRecord]:
    """Check the records of a node that has its metadata by itself; return those of its channels, by name.

    Args:
        metadata: The records; nothing is changed.
        root: What their keys begin with.
        batches: How many entries each vchannel of the log has, by id.
        positions: The positions of groups beside the log.

    Raises:
        DataLossError: A record cannot be read, or records and log contradict each other.
    """
    catalog = Catalog(metadata, root)
    await catalog.open()
    check_owners(catalog.records().values(), batches)
    commits = SharedCommits(metadata, TaskOwner(_no_task))
    groups = GroupCatalog(metadata, commits, root)
    await groups.open()
    check_positions(groups.records, positions)
    broadcasts = await BroadcastStore(metadata, commits, root).load()
    _check_broadcasts(broadcasts.tasks, catalog.records())
    return catalog.records()


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
    raise AssertionError(f"a check begins no task, and not {name}")
