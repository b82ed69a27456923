"""The records of journals have the documented bytes, and changes are planned by their revisions.

Method: the example of docs/reference/format.md, intact and damaged; a catalog on a metadata store in memory.
"""

import pytest

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.journals import JournalRevisionMismatchError
from tidelog_server.journals.catalog import ANY_REVISION, Journal, JournalCatalog, JournalChange, check_journals
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_server.metadata.store import RevisionConflictError, Versioned, Watched

JOURNAL = Journal("a/topic/part-000", 7, (("content-type", "application/x-ndjson"), ("topic", "a")))
STORED = b'{"version":1,"id":7,"labels":[["content-type","application/x-ndjson"],["topic","a"]]}'


def test_a_record_is_stored_as_documented() -> None:
    assert JOURNAL.encode() == STORED
    assert Journal.decode(JOURNAL.name, STORED, 0) == JOURNAL
    assert JOURNAL.channel == "_journal.7"


@pytest.mark.parametrize(
    ("part", "other"), [(b'"version":1', b'"version":2'), (b'"id":7', b'"id":"x"'), (b'"id"', b'"key"'), (b"]]}", b"]")]
)
def test_a_damaged_or_unknown_record_is_refused(part: bytes, other: bytes) -> None:
    with pytest.raises(DataLossError):
        Journal.decode("a/b/c", STORED.replace(part, other), 1)


def test_a_journal_without_its_channel_is_reported() -> None:
    check_journals([JOURNAL], {"_journal.7"})
    with pytest.raises(DataLossError, match="a/topic/part-000"):
        check_journals([JOURNAL], {"_journal.8"})


async def committed(catalog: JournalCatalog, metadata: MemoryMetadataStore, *changes: JournalChange) -> int:
    """Apply changes, with ids from 10 on for new journals; return the revision."""
    plan = catalog.plan(changes)
    created = [Journal(name, 10 + index, labels) for index, (name, labels) in enumerate(plan.new.items())]
    revision = await metadata.commit(catalog.changes_of(plan, created))
    catalog.committed(plan, created, revision)
    return revision


async def test_changes_are_checked_against_the_revisions() -> None:
    metadata = MemoryMetadataStore()
    catalog = JournalCatalog(metadata, "root")
    await catalog.open()
    first = await committed(catalog, metadata, JournalChange("some/one", (), 0), JournalChange("some/two", (), -1))
    assert {name: each.revision for name, each in catalog.records.items()} == {"some/one": first, "some/two": first}
    second = await committed(catalog, metadata, JournalChange("some/one", (("ab", "1"),), first))
    assert catalog.records["some/one"] == Journal("some/one", 10, (("ab", "1"),), second)
    for name, expected in (("some/one", first), ("some/one", 0), ("some/three", 5)):
        with pytest.raises(JournalRevisionMismatchError) as conflict:
            catalog.plan([JournalChange("some/two", None, ANY_REVISION), JournalChange(name, (), expected)])
        found = catalog.records.get(name)
        assert conflict.value.values["revision"] == str(found.revision if found else 0)
    await committed(catalog, metadata, JournalChange("some/one", None, second))
    assert catalog.plan([JournalChange("some/one", None, ANY_REVISION)]).gone == []

    again = JournalCatalog(metadata, "root")
    await again.open()
    assert again.records == catalog.records == {"some/two": Journal("some/two", 11, (), first)}


async def test_a_catalog_follows_another_node() -> None:
    shared = SharedMemory()
    here, there = MemoryMetadataStore(shared), MemoryMetadataStore(shared)
    mine, theirs = JournalCatalog(here, "root"), JournalCatalog(there, "root")
    revision = await committed(theirs, there, JournalChange("some/one", (), 0))
    plan = mine.plan([JournalChange("some/one", (), 0)])
    with pytest.raises(RevisionConflictError):
        await here.commit(mine.changes_of(plan, [Journal("some/one", 99, ())]))
    await mine.refresh(["some/one", "some/other"])
    assert mine.records == theirs.records

    version = mine.version
    key = f"{mine.prefix}some/one"
    mine.follow(Watched(revision, {key: Versioned(theirs.records["some/one"].encode(), revision)}, is_snapshot=True))
    assert mine.version == version
    mine.follow(Watched(revision + 1, {}, frozenset((key,))))
    assert mine.records == {}
    await mine.refresh(["some/one"])
    mine.follow(Watched(revision + 1, {}, is_snapshot=True))
    assert mine.records == {}


async def test_names_of_journals_follow_the_records() -> None:
    metadata = MemoryMetadataStore()
    catalog = JournalCatalog(metadata, "root")
    await catalog.open()
    await committed(catalog, metadata, *(JournalChange(f"some/{index}", (), 0) for index in range(5)))
    await committed(catalog, metadata, JournalChange("some/3", None, ANY_REVISION))

    assert list(catalog.names) == ["some/0", "some/1", "some/2", "some/4"] == sorted(catalog.records)
    assert catalog.changes.since(catalog.version - 1) == ["some/3"]


async def test_stored_labels_that_new_ones_may_not_have_still_open() -> None:
    """An empty content type, and a message type without one: journals of earlier versions may have them."""
    labels = (("app.gazette.dev/message-type", "M"), ("content-type", ""))
    stored = Journal("a/topic/part-000", 7, labels, 3)
    assert Journal.decode(stored.name, stored.encode(), 3) == stored
