"""Writes that leave rows in every table of a server, a round at a time: each round changes every table.

A round is over when its call returns: nothing of it continues in the background.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest

from tidelog import At, Client, Columns, Message, PositionCommit, ProducerSequence, ResourceKey, TidelogError
from tidelog.admin.mailbox_types import MailboxSettings
from tidelog.journals.labels import LabelSet
from tidelog.journals.types import JournalUpsert
from tidelog.mailboxes.types import OutgoingMessage
from tidelog_server.app import Server
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.servers.secured import EVERYTHING, ONCE

CHANNELS: Final = {"orders": 2, "payments": 1, "trimmed": 1, "doomed": 2, "pending": 2, "source": 1}
LANES: Final = ("orders/0", "orders/1", "payments/0", "doomed/0", "doomed/1")
MAILBOXES: Final = ("jobs", "burying", "dead", "doomed-box")
BROADCASTS_PER_ROUND: Final = 3
LARGE: Final = bytes(9_000)
"""A payload whose columns are in a blob file."""
_YEAR: Final = timedelta(days=365)
_LEASE: Final = timedelta(hours=12)
_WEEK_MS: Final = 7 * 86_400_000
_WITHIN_S: Final = 20.0
# So that a few rows of these tables evict others, whose floors remain.
_MAXIMUM: Final = 4
_LIMITS: Final = (
    "tidelog_server.txn.applications.MAX_APPS",
    "tidelog_server.txn.applications.MAX_FINISHED_APPS",
    "tidelog_server.txn.table.MAX_TXN_OUTCOMES",
    "tidelog_server.broadcast.table.MAX_TOMBSTONES",
)


@dataclass
class Facts:
    """What a dump must know.

    Attributes:
        txn_ids: Staged transactions that were committed and whose outcomes are known.
        blobs: Keys of blobs, hexadecimal.
        dedup_keys: Keys of deduplication that the mailboxes ``jobs`` and ``doomed-box`` remember.
        half: The last broadcast that was acknowledged in part.
    """

    txn_ids: list[int] = field(default_factory=list)
    blobs: list[str] = field(default_factory=list)
    dedup_keys: list[str] = field(default_factory=list)
    half: int = 0


def begin(folder: Path) -> Facts:
    """Make a data folder with rows in every table but those of one round; its servers stopped cleanly.

    The first server writes a round, and snapshots of the mailboxes and blobs. Its tables are small, so they evict. So
    are those of the second one, which has authentication on, so that rows have a tenant.
    """
    facts = Facts()
    with pytest.MonkeyPatch.context() as patch:
        for name in _LIMITS:
            patch.setattr(name, _MAXIMUM)
        asyncio.run(_run_first(folder, facts))
        asyncio.run(_run_secured(folder))
    # The second server has evicted their outcomes.
    facts.txn_ids.clear()
    return facts


async def _run_first(folder: Path, facts: Facts) -> None:
    async with running_server(folder) as server:
        await asyncio.to_thread(_with_client, server, lambda client: _create(client, facts))
        await write_snapshots(server, MAILBOXES, trims=True)
        # So that events lie behind the snapshots.
        await asyncio.to_thread(_with_client, server, lambda client: write_round(client, facts, 1))


async def _run_secured(folder: Path) -> None:
    async with running_server(folder, auth__kind="on") as server:
        token = (folder / "bootstrap-token").read_text().strip()

        def write(client: Client) -> None:
            admin = client.create_token("administrator", EVERYTHING, lifetime_s=366 * 86_400).token
            with Client(server.grpc_endpoint, token=admin, client_id="secured") as other:
                _evict(other, "secured")
                other.append("payments/0", b"numbered", producer=ProducerSequence("secured", 1))

        await asyncio.to_thread(_with_client, server, write, token)


def _with_client(server: Server, work: Callable[[Client], None], token: str | None = None) -> None:
    with Client(server.grpc_endpoint, token=token, client_id="writer") as client:
        work(client)


async def write_snapshots(server: Server, mailboxes: Iterable[str], *, trims: bool = False) -> None:
    """Do the housekeeping of mailboxes and of the blobs now; ``trims`` if what it makes useless is deleted, too."""
    opened = server._node.opened_mailboxes
    assert opened is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidelog_server.fold.keeping.SNAPSHOT_AFTER_CHANGES", 0)
        patch.setattr("tidelog_server.fold.keeping._SNAPSHOT_RATIO", 0)
        if trims:
            patch.setattr("tidelog_server.fold.keeping.TRIM_ABOVE_BYTES", 0)
            patch.setattr(opened.blobs, "_grace_ticks", 0)
        for name in mailboxes:
            await opened.housekeeper.keep(await opened.open(name))
        await opened.blobs.keep()


def _create(client: Client, facts: Facts) -> None:
    for name, vchannels in CHANNELS.items():
        client.create_channel(name, vchannels=vchannels)
    client.append("source/0", [b"staged", LARGE])
    client.create_group("billing", ["orders", "payments"])
    client.create_group("doomed-group", ["orders", "doomed"])
    client.create_group("leaving", ["doomed"])
    client.mailboxes.create("dead")
    settings = MailboxSettings(max_lease_ms=_WEEK_MS, max_deliveries=5, dedup_window_ms=_WEEK_MS, dead_letter="dead")
    client.mailboxes.create("jobs", settings)
    client.mailboxes.create("doomed-box", settings)
    client.mailboxes.create("burying", MailboxSettings(max_deliveries=1, max_lease_ms=_WEEK_MS))
    _evict(client, "first")
    # More than 4 MiB of columns close a chunk.
    for lane in ("orders/0", "doomed/0"):
        for number in range(5):
            client.append(lane, [bytes([number]) * 900_000])
    jobs = client.mailbox("jobs")
    jobs.send(b"trimmed")
    jobs.ack_many(jobs.fetch(1))
    jobs.send_many([b"before the snapshot %d" % number for number in range(3)])
    client.blobs.put(b"collected, and trimmed")
    kept = client.blobs.put(b"before the snapshot")
    client.blobs.update_ref_count(kept, 1)
    facts.blobs.append(kept.hex())


def _evict(client: Client, name: str) -> None:
    """Make more rows than there is room for in the tables that evict."""
    for number in range(_MAXIMUM + 2):
        _stage_and_commit(client, ["payments/0"], b"evicted")
        client.commit_prepared([], f"{name}-{number}", 1, is_first=True)
        client.commit_prepared([], f"{name}-last-{number}", 1, is_first=True, is_last=True, query_id="query")
        sent = client.broadcast(["payments/0", "orders/1"], b"evicted")
        client.ack(sent.broadcast_id, ["payments/0", "orders/1"])


def write_round(client: Client, facts: Facts, number: int) -> None:
    """Change every table. Numbers begin at 1 and grow."""
    for lane in LANES:
        client.append(lane, [Message(b"%d" % number, key=b"k", type=7, properties={"a": "b"}), b"second"])
        client.append(lane, [b"large %d " % number + LARGE])
    _append_numbered(client, number)
    _transact(client, facts, number)
    _consume(client, number)
    client.fence("orders/1", 7 * number)
    client.fence("doomed/1", number)
    first = client.append("trimmed/0", [b"trimmed %d.%d" % (number, each) for each in range(4)]).first_tick
    client.trim("trimmed/0", At.tick(first + 2))
    _send(client, facts, number)
    _put_blobs(client, facts, number)
    name = f"journals/{number}"
    client.journals.apply([JournalUpsert(name, LabelSet.of({"content-type": "application/x-ndjson"}))])
    for journal in client.journals.list().journals:
        client.append(f"{journal.channel}/0", [b'{"frame":%d}\n' % number])
    _broadcast(client, facts, number)


def _append_numbered(client: Client, number: int) -> None:
    for lane in ("orders/0", "doomed/0", "doomed/1"):
        for producer_id in ("till", f"till-{number}"):
            opened = client.open_producer(lane, producer_id)
            for each in range(3):
                numbered = opened.sequence(opened.last_sequence + 1 + each)
                client.append(lane, [b"numbered %d.%d" % (number, each)] * (1 + each % 2), producer=numbered)


def _stage_and_commit(client: Client, lanes: list[str], payload: bytes) -> int:
    """Commit a transaction with staged batches, small and large ones; return its id."""
    columns = _columns(client)
    with client.txn() as txn:
        for lane in lanes:
            txn.append_columns(lane, columns)
            txn.append(lane, payload)
    return txn.result.txn_id


def _transact(client: Client, facts: Facts, number: int) -> None:
    """Commit a staged transaction, one in one request, one of an application; roll a staged one back."""
    facts.txn_ids.append(_stage_and_commit(client, ["orders/0", "doomed/0"], b"staged %d" % number))
    with client.txn() as txn:
        txn.append("orders/1", [b"one request"] * 2)
        txn.append("doomed/0", b"one request")
        txn.commit_positions([PositionCommit("billing", "orders/1", client.latest_mvcc_tick("orders/1"))])
    rolled_back = client.txn()
    _stage(client, rolled_back)
    rolled_back.rollback()
    for app_id in ("etl", f"etl-{number}"):
        prepared = client.txn()
        prepared.append("orders/1", b"of an application %d" % number)
        handle = prepared.prepare(app_id, app_version=number)
        assert handle is not None
        client.commit_prepared([handle], app_id, number, is_first=app_id != "etl" or number == 1)


def _stage(client: Client, txn: Any) -> None:
    for lane in ("orders/0", "doomed/1"):
        txn.append_columns(lane, _columns(client))


def _columns(client: Client) -> Columns:
    with client.scan("source/0") as scan:
        return next(iter(scan)).columns


def _consume(client: Client, number: int) -> None:
    for group, lane in (("billing", "orders/0"), ("doomed-group", "doomed/0"), ("leaving", "doomed/1")):
        assert len(client.consume(group, lane, 2, commit=True, consume_id=4_711 + number)) > 0
    client.commit_positions([PositionCommit("billing", "payments/0", client.latest_mvcc_tick("payments/0") + 1)])
    client.create_group(f"group-{number}", ["payments"], start=At.earliest())
    client.consume(f"group-{number}", "payments/0", 1, commit=True)


def _send(client: Client, facts: Facts, number: int) -> None:
    """Leave messages that wait, are leased, delayed, grouped, dead and dead letters, and keys of deduplication."""
    # A body of this size is a blob.
    body = bytes([number]) * 100_000
    facts.blobs.append(sha256(body).hexdigest())
    facts.dedup_keys.append(f"key-{number}")
    for name in ("jobs", "doomed-box"):
        mailbox = client.mailbox(name)
        mailbox.send_many(
            [
                *[b"plain %d.%d" % (number, each) for each in range(6)],
                OutgoingMessage(b"grouped", group=f"g{number}", priority=3),
                OutgoingMessage(b"second of the group", group=f"g{number}", headers={"a": "b"}),
                OutgoingMessage(b"delayed", delay=_YEAR, dedup_key=f"key-{number}"),
                OutgoingMessage(body, ttl=_YEAR),
            ]
        )
        leased = mailbox.fetch(4, lease=_LEASE)
        leased[0].ack()
        leased[1].reject(delay=_YEAR)
        leased[2].reject(final=True)
    burying = client.mailbox("burying")
    burying.send_many([b"dead %d" % number, b"waiting"])
    burying.reject_many(burying.fetch(1, lease=_LEASE))
    # Each of the two mailboxes moves one dead letter per round.
    _wait(lambda: client.mailbox("dead").counts().available == 2 * number, "the dead letters have moved")


def _put_blobs(client: Client, facts: Facts, number: int) -> None:
    counted = client.blobs.put(b"counted %d" % number)
    client.blobs.update_ref_count(counted, number)
    large = client.blobs.put(bytes([0x40 + number]) * 1_200_000)
    uncounted = client.blobs.put(b"without references %d" % number, algorithm="sha1")
    client.blobs.update_ref_count(bytes.fromhex(facts.blobs[0]), 1)
    facts.blobs += [counted.hex(), large.hex(), uncounted.hex()]


def _broadcast(client: Client, facts: Facts, number: int) -> None:
    """Leave one that is done, one that was aborted, and last one that is acknowledged in part.

    That of the round before is acknowledged on one more vchannel.
    """
    everywhere = ["doomed/0", "orders/0", "payments/0"]
    done = client.broadcast(everywhere, Message(b"done %d" % number, key=b"k"))
    client.ack(done.broadcast_id, everywhere)
    client.abort_broadcast(client.broadcast(["payments/0", "orders/1"], b"aborted").broadcast_id, "as an example")
    keys = [ResourceKey("table", f"t{number}"), ResourceKey("database", "d", shared=True)]
    half = client.broadcast(everywhere, b"half %d" % number, resource_keys=keys)
    client.ack(half.broadcast_id, everywhere[1:2])
    if facts.half:
        client.ack(facts.half, everywhere[2:])
    facts.half = half.broadcast_id


def leave_open(client: Client) -> None:
    """Stage a transaction and prepare another; the next start ends both."""
    for txn in (client.txn(keepalive_s=600), prepared := client.txn(keepalive_s=600)):
        _stage(client, txn)
    prepared.prepare("abandoned", app_version=1, keepalive_s=3_600)


def broadcast_until_killed(endpoint: str) -> None:
    """Send a broadcast to a server that a failpoint kills."""
    with Client(endpoint, retry=ONCE, timeout_s=30) as client, suppress(TidelogError):
        client.broadcast(["pending/0", "pending/1"], Message(b"pending", key=b"k"))


def _wait(is_true: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + _WITHIN_S
    while not is_true():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.01)
