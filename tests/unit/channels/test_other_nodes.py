"""A channel that another node has destroyed no longer takes its name, also before the watch reports it.

Method: a node without a watch on a metadata store in memory, whose records the test changes as another node would.
"""

from tidelog_server.channels.catalog import Catalog, ChannelRecord, NewChannels, Owner
from tidelog_server.core.ticks import Tick
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_server.metadata.store import Delete
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_testing.parts.nodes import running_node

NAMES = ["first", "second", "third"]


async def test_a_name_is_free_once_another_node_has_destroyed_its_channel() -> None:
    shared = SharedMemory()
    elsewhere = MemoryMetadataStore(shared)
    other = Catalog(elsewhere, "tidelog", "other")
    await other.open()
    records = await other.create(NAMES, NewChannels(vchannels=2, owner=Owner()), Tick(1))
    async with running_node(MemoryLogStore(), metadata=MemoryMetadataStore(shared)) as node:
        assert set(node.catalog.foreign) == set(NAMES)

        async def created(name: str, *, if_not_exists: bool) -> None:
            [state] = await node.lifecycle.create([name], 0, 1, Owner(), if_not_exists=if_not_exists)
            assert (state.record.name, len(state.vchannels)) == (name, 1)

        await destroyed(elsewhere, other, records[:2])
        await created("first", if_not_exists=False)
        await created("second", if_not_exists=True)
        assert set(node.directory.logs) >= {"first", "second"}
        assert set(node.catalog.foreign) == {"third"}


async def destroyed(elsewhere: MemoryMetadataStore, other: Catalog, records: list[ChannelRecord]) -> None:
    await elsewhere.commit([Delete(other.key(record.name), record.revision) for record in records])
