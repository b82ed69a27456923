"""Writes the mailboxes, journals and blobs of the golden files: a part of ``write_golden``.

Afterwards the logs of the mailboxes and of the blobs have every kind of event. Those of the mailbox ``shortened`` and
of the blobs have a snapshot, copies and a trimmed beginning.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tidelog import At, Client
from tidelog.admin.journal_types import JournalDelete, JournalUpsert
from tidelog.admin.labels import LabelSet
from tidelog.admin.mailbox_types import MailboxSettings
from tidelog.mailboxes.errors import BlobNotFoundError
from tidelog.mailboxes.types import MessageState, OutgoingMessage

_YEAR = timedelta(days=365)
_LEASE = timedelta(hours=12)
_WEEK_MS = 7 * 86_400_000


def write_first_mailboxes(client: Client, facts: dict[str, Any]) -> None:
    """Write with authentication off."""
    facts |= {"dedup_keys": [], "locks": [], "blobs": []}
    _write_journals(client)
    _write_blobs(client, facts)
    _write_mailboxes(client, facts)
    _write_dead_letters(client, facts)
    _write_states(client)
    _shorten(client, "shortened", facts)


def write_second_mailboxes(client: Client, facts: dict[str, Any]) -> None:
    """Write with authentication on."""
    tasks = client.mailbox("tasks")
    tasks.send(b"of a principal", dedup_key="secured", headers={"by": "a principal"})
    facts["dedup_keys"].append(["tasks", "secured"])
    (held,) = tasks.fetch(1, lease=_LEASE)
    facts["locks"].append(["tasks", held.lock.hex()])
    client.mailboxes.create("secured", MailboxSettings(max_lease_ms=86_400_000, dead_letter="dead"))
    client.mailbox("secured").send(_large(7))
    key = client.blobs.put(b"of a principal")
    client.blobs.update_ref_count(key, 2)
    facts["blobs"].append(key.hex())
    # A blob with a reference of the first server gets one more, and another blob is left without a reference.
    client.blobs.update_ref_count(bytes.fromhex(facts["blobs"][0]), 1)
    facts["blobs"].append(client.blobs.put(b"of a principal, without a reference", algorithm="sha1").hex())
    client.journals.apply([JournalUpsert("secured/journal", LabelSet.of({"content-type": "application/x-ndjson"}))])


def _large(number: int) -> bytes:
    """Return a body that is stored as a blob."""
    return bytes([number]) * 100_000


def _write_journals(client: Client) -> None:
    several = {"content-type": "application/x-ndjson", "topic": ("a", "b")}
    client.journals.apply(
        [JournalUpsert(f"golden/journal-{number}", LabelSet.of(several), expected_revision=0) for number in range(3)]
    )
    client.journals.apply([JournalUpsert("golden/journal-1", LabelSet.of({"changed": "yes"}))])
    client.journals.apply([JournalDelete("golden/journal-2")])
    for journal in client.journals.list().journals:
        client.append(f"{journal.channel}/0", [b'{"frame":1}\n', b'{"frame":2}\n'])


def _write_blobs(client: Client, facts: dict[str, Any]) -> None:
    """Leave blobs with references, and a log with copies of them, from which others were collected."""
    put = client.blobs.put
    kept = [put(b"with references"), put(b"", algorithm="sha1"), put(_large(1) * 12)]
    for number, key in enumerate(kept):
        client.blobs.update_ref_count(key, 5)
        client.blobs.update_ref_count(key, -number)
    facts["blobs"] += [key.hex() for key in kept]
    for number in range(30):
        client.blobs.put(_large(0x40 + number))
    _wait(lambda: client.channel("_blobs").describe().vchannels[0].trim_tick > 0)
    _wait_until_collected(client, client.blobs.put(b"collected behind the snapshot"))


def _write_mailboxes(client: Client, facts: dict[str, Any]) -> None:
    """Leave messages with every kind of field, in every state."""
    client.mailboxes.create("dead")
    settings = MailboxSettings(
        lease_ms=60_000, max_lease_ms=_WEEK_MS, max_deliveries=5, dead_letter="dead", backoff_ms=(1_000, 5_000),
        dedup_window_ms=_WEEK_MS, max_in_flight=1_000, max_messages=5_000, max_body_bytes=2 << 20,
    )  # fmt: skip
    client.mailboxes.create("tasks", settings)
    client.mailboxes.configure("tasks", MailboxSettings(delay_ms=0, backoff_ms=()))
    tasks = client.mailbox("tasks")
    tasks.send_many([b"body %d" % number for number in range(6)])
    when = datetime.now(UTC) + _YEAR
    tasks.send_many(
        [
            OutgoingMessage(b"all", {"a": "b", "grün": "ü"}, timedelta(0), None, 9, "group", "key", _YEAR),
            OutgoingMessage(b"delayed", delay=_YEAR, dedup_key="delayed"),
            OutgoingMessage(b"due", due=when),
            OutgoingMessage(b"second of the group", group="group", priority=9),
            OutgoingMessage(_large(2), headers={"large": "yes"}),
            OutgoingMessage(_large(2), group="group"),
            OutgoingMessage(b"", blob_key=client.blobs.put(b"a small blob that is a body")),
        ]
    )
    facts["dedup_keys"] += [["tasks", "key"], ["tasks", "delayed"]]
    leased = tasks.fetch(4, lease=_LEASE)
    leased[0].ack()
    leased[1].reject()
    leased[2].extend(2 * _LEASE)
    leased[3].reject(_YEAR)
    facts["locks"] += [["tasks", each.lock.hex()] for each in leased]
    (lost,) = tasks.fetch(1, lease=0.01)
    _wait(lambda: lost.id not in _ids(tasks, MessageState.LEASED))
    facts["locks"].append(["tasks", lost.lock.hex()])
    (ended,) = tasks.fetch(1, lease=_LEASE)
    tasks.reenqueue([ended.id])
    facts["locks"].append(["tasks", ended.lock.hex()])


def _write_dead_letters(client: Client, facts: dict[str, Any]) -> None:
    """Leave dead letters in a mailbox of their own, dead messages, and messages that were one of these before."""
    client.mailboxes.create("rejecting", MailboxSettings(max_deliveries=1, dead_letter="dead"))
    client.mailboxes.create("burying", MailboxSettings(max_deliveries=1))
    for name in ("rejecting", "burying"):
        mailbox = client.mailbox(name)
        mailbox.send_many([b"a", b"b", b"c", _large(3)])
        deliveries = mailbox.fetch(3, lease=_LEASE)
        mailbox.reject_many(deliveries)
        facts["locks"] += [[name, each.lock.hex()] for each in deliveries]
        (lost,) = mailbox.fetch(1, lease=0.01)
        _wait(lambda mailbox=mailbox, lost=lost: lost.id not in _ids(mailbox, MessageState.LEASED))
    _wait(lambda: client.mailbox("burying").counts().dead == 4 and client.mailbox("dead").counts().available == 4)
    burying = client.mailbox("burying")
    ids = _ids(burying, MessageState.DEAD)
    assert [each.moved for each in burying.redrive(ids[:1])][-1] == 1
    assert [each.moved for each in burying.redrive(ids[1:2], destination="dead")][-1] == 1
    dead = client.mailbox("dead")
    assert dead.counts().available == 5


def _write_states(client: Client) -> None:
    """Leave mailboxes that were purged, paused and deleted."""
    for name in ("purged", "paused", "deleted", "expiring"):
        client.mailboxes.create(name)
        client.mailbox(name).send_many([b"a", b"b", _large(4)])
    client.mailbox("purged").purge()
    client.mailbox("purged").send(b"after the purge")
    client.mailbox("paused").pause()
    client.mailbox("expiring").pause()
    client.mailbox("expiring").resume()
    client.mailboxes.delete("deleted")
    expiring = client.mailbox("expiring")
    expiring.send_many([OutgoingMessage(b"expired", ttl=0.01), OutgoingMessage(b"not expired", ttl=_YEAR)])
    _wait(lambda: expiring.counts().available == 4)


def _shorten(client: Client, name: str, facts: dict[str, Any]) -> None:
    """Leave a mailbox whose log has a snapshot, copies of old messages and a trimmed beginning."""
    client.mailboxes.create(name, MailboxSettings(dedup_window_ms=_WEEK_MS))
    mailbox = client.mailbox(name)
    mailbox.send_many([OutgoingMessage(b"old %d" % number, {"n": str(number)}, delay=_YEAR) for number in range(3)])
    mailbox.send(b"remembered", dedup_key="remembered", group="a group")
    mailbox.send(_large(5), delay=_YEAR)
    (held,) = mailbox.fetch(1, lease=_LEASE)
    facts["dedup_keys"].append([name, "remembered"])
    facts["locks"].append([name, held.lock.hex()])
    channel = client.mailboxes.describe(name).channel
    trim_tick = client.channel(channel).describe().vchannels[0].trim_tick
    for _ in range(10):
        mailbox.send_many([b"x" * 500] * 50)
        mailbox.ack_many(mailbox.fetch(50))
    _wait(lambda: client.channel(channel).describe().vchannels[0].trim_tick > trim_tick)
    # So that events lie behind the snapshot.
    mailbox.send(b"behind the snapshot", priority=3)
    client.create_group("reader-of-a-journal", [client.journals.list().journals[0].channel], start=At.latest())


def _wait_until_collected(client: Client, key: bytes) -> None:
    def is_collected() -> bool:
        try:
            client.blobs.describe(key)
        except BlobNotFoundError:
            return True
        return False

    _wait(is_collected)


def _ids(mailbox: Any, state: MessageState) -> list[int]:
    return [each.header.id for each in mailbox.peek(state, max_messages=100)]


def _wait(is_true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
