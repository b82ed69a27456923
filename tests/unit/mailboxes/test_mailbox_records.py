"""The records of mailboxes have the documented bytes, and damaged ones are refused.

Method: the example of docs/reference/format.md, intact and damaged; a catalog on a metadata store in memory.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.mailboxes import DEFAULT_SETTINGS, MailboxSettings
from tidelog_server.mailboxes.catalog import MailboxCatalog, MailboxRecord, check_mailboxes
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_server.metadata.store import RevisionConflictError, Versioned, Watched

RECORD = MailboxRecord("b@remote", 7, MailboxSettings(dead_letter="dead", backoff_ms=(1_000, 5_000)), 1_764_000_000_000)
STORED = (
    b'{"version":1,"id":7,"created_ms":1764000000000,"settings":{"lease_ms":30000,"max_lease_ms":43200000,'
    b'"max_deliveries":0,"dead_letter":"dead","backoff_ms":[1000,5000],"delay_ms":0,"ttl_ms":0,'
    b'"dedup_window_ms":300000,"max_in_flight":100000,"max_messages":1000000,"max_body_bytes":1048576}}'
)


def test_a_record_is_stored_as_documented() -> None:
    assert RECORD.encode() == STORED
    assert MailboxRecord.decode(RECORD.name, STORED, 0) == RECORD
    assert RECORD.channel == "_mailbox.7"


@pytest.mark.parametrize(
    ("part", "other"),
    [
        (b'"version":1', b'"version":2'),
        (b'"id":7', b'"id":"7"'),
        (b'"id":7', b'"id":0'),
        (b'"id":7', b'"id":true'),
        (b'"id"', b'"key"'),
        (b'"created_ms":1764000000000', b'"created_ms":-1'),
        (b'"created_ms":1764000000000,', b""),
        (b'"lease_ms":30000', b'"lease_ms":0'),
        (b'"lease_ms":30000', b'"lease_ms":30000.5'),
        (b'"lease_ms":30000,', b""),
        (b'"lease_ms":30000,', b'"lease_ms":30000,"more":1,'),
        (b'"dead_letter":"dead"', b'"dead_letter":7'),
        (b"[1000,5000]", b'["1000"]'),
        (b"[1000,5000]", b"1000"),
        (b'"settings":{', b'"settings":[{'),
        (b"}}", b"}"),
    ],
)
def test_a_damaged_or_unknown_record_is_refused(part: bytes, other: bytes) -> None:
    assert part in STORED
    with pytest.raises(DataLossError, match="b@remote"):
        MailboxRecord.decode(RECORD.name, STORED.replace(part, other), 1)


@given(st.integers(0, len(STORED) - 1), st.binary(max_size=3))
def test_other_bytes_are_refused_or_are_a_valid_record(index: int, other: bytes) -> None:
    damaged = STORED[:index] + other + STORED[index + 1 :]
    try:
        found = MailboxRecord.decode(RECORD.name, damaged, 0)
    except DataLossError:
        return
    found.settings.check()
    assert MailboxRecord.decode(RECORD.name, found.encode(), 0) == found


def test_a_mailbox_without_its_channel_or_its_mailbox_for_dead_letters_is_reported() -> None:
    dead = MailboxRecord("dead", 8, DEFAULT_SETTINGS, 0)
    both = {"b@remote": RECORD, "dead": dead}
    check_mailboxes(both, {"_mailbox.7", "_mailbox.8"})
    with pytest.raises(DataLossError, match=r"'dead' has no record of its channel _mailbox\.8"):
        check_mailboxes(both, {"_mailbox.7"})
    with pytest.raises(DataLossError, match="'b@remote' has no record of its mailbox for dead letters, 'dead'"):
        check_mailboxes({"b@remote": RECORD}, {"_mailbox.7"})


async def test_a_catalog_follows_another_node() -> None:
    shared = SharedMemory()
    here, there = MemoryMetadataStore(shared), MemoryMetadataStore(shared)
    mine, theirs = MailboxCatalog(here, "root"), MailboxCatalog(there, "root")
    await mine.open()
    revision = await there.commit([theirs.put(RECORD)])
    stored = theirs.committed(RECORD, revision)
    with pytest.raises(RevisionConflictError):
        await here.commit([mine.put(RECORD)])
    mine.follow(Watched(revision, {f"{mine.prefix}b@remote": Versioned(STORED, revision)}, is_snapshot=True))
    assert mine.records == theirs.records == {"b@remote": stored}
    assert mine.channel_of("b@remote") == "_mailbox.7"

    await here.commit([mine.delete(stored)])
    await theirs.refresh(["b@remote"])
    mine.follow(Watched(revision + 1, {}, frozenset((f"{mine.prefix}b@remote",))))
    assert mine.records == theirs.records == {}
    assert mine.channel_of("b@remote") is None


def filled(**dead_letters: str) -> MailboxCatalog:
    """Return a catalog of mailboxes with these mailboxes for dead letters."""
    catalog = MailboxCatalog(MemoryMetadataStore(), "root")
    for index, (name, dead_letter) in enumerate(dead_letters.items(), 1):
        catalog.learn(MailboxRecord(name, index, MailboxSettings(dead_letter=dead_letter), 0))
    return catalog


def test_dead_letters_are_followed_over_any_number_of_mailboxes() -> None:
    catalog = filled(a="b", b="c", c="", x="y", y="x", z="missing")
    assert catalog.dead_letters_reach("a", "c")
    assert catalog.dead_letters_reach("a", "a")
    assert not catalog.dead_letters_reach("c", "a")
    # Stored cycles and missing mailboxes end the search.
    assert not catalog.dead_letters_reach("x", "a")
    assert not catalog.dead_letters_reach("z", "a")
    assert catalog.sender_of_dead_letters("c") == "b"
    assert catalog.sender_of_dead_letters("a") == ""


def test_mailboxes_are_listed_in_order_of_name() -> None:
    catalog = filled(**dict.fromkeys(["orders/2", "orders/10", "other", "ä", "orders"], ""))
    assert catalog.names.page(9) == ["orders", "orders/10", "orders/2", "other", "ä"]
    assert catalog.names.page(9, prefix="orders/") == ["orders/10", "orders/2"]
    assert catalog.names.page(9, prefix="orders", after="orders/10") == ["orders/2"]
