"""A node compares revisions with the newest records, also with those that its watch has not reported.

Method: a node without a watch on a metadata store in memory, whose records the test changes as another node would.
"""

import pytest

from tidelog_server.core.callers import NO_TENANT
from tidelog_server.core.errors.journals import JournalRevisionMismatchError
from tidelog_server.journals.catalog import ANY_REVISION, Journal, JournalCatalog, JournalChange
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_server.metadata.store import Put
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_testing.parts.nodes import running_node

NAME, OTHER = "a/topic/part-000", "a/topic/part-001"


async def test_changes_of_other_nodes_count_at_once() -> None:
    shared = SharedMemory()
    elsewhere = MemoryMetadataStore(shared)
    async with running_node(MemoryLogStore(), metadata=MemoryMetadataStore(shared)) as node:
        (created,) = await node.journals.apply([JournalChange(NAME, (), 0)], NO_TENANT)
        prefix = JournalCatalog(elsewhere, "tidelog").prefix
        altered = Journal(NAME, created.journal_id, (("by", "another"),))
        revision = await elsewhere.commit([Put(f"{prefix}{NAME}", altered.encode(), created.revision)])

        with pytest.raises(JournalRevisionMismatchError) as refused:
            await node.journals.apply([JournalChange(NAME, (), created.revision)], NO_TENANT)
        assert refused.value.values["revision"] == str(revision)
        (again,) = await node.journals.apply([JournalChange(NAME, (("by", "me"),), revision)], NO_TENANT)
        assert (again.labels, again.journal_id) == ((("by", "me"),), created.journal_id)

        # A journal that this node has never heard of is deleted, too.
        await elsewhere.commit([Put(f"{prefix}{OTHER}", Journal(OTHER, 99, ()).encode(), 0)])
        await node.journals.apply([JournalChange(OTHER, None, ANY_REVISION)], NO_TENANT)
        assert list(await elsewhere.list(prefix)) == [f"{prefix}{NAME}"]
