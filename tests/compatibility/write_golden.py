"""Writes the golden files, with the server, the client and the jobs of commit b2ad59b. README.md has the commands.

Usage: ``python write_golden.py CHECKOUT``, with the interpreter of an environment in which the packages of that
commit are installed, and in its checkout.
"""

import json
import lzma
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from compatibility.content import dump, dump_audit, dump_tokens, numbered_batch, plain, prepare_parts, probe
from compatibility.mailbox_content import dump_mailboxes, probe_mailboxes
from compatibility.write_mailboxes import write_first_mailboxes, write_second_mailboxes

import tidelog
from tidelog import At, Client, Message, PositionCommit, ProducerSequence, ResourceKey, Retention, TidelogError

COMMIT: Final = "b2ad59b"
GOLDEN: Final = Path(__file__).resolve().parent / "golden" / COMMIT
# What the tests of the old client do without.
_LEFT_OUT: Final = ("spark", "msgstream", "rocksmq", "testing", "tracing", "pandora", "gazette")
# The server has tables with thousands of rows before it evicts one, and logs of megabytes before it shortens one. These
# are lower, so that small files have the rows that remain of what was evicted, snapshots and copied messages.
_AS_IT_IS: Final = """
import sys
from tidelog_cli import main
main(["serve", *sys.argv[1:]])
"""
_LOWER: Final = (
    """
from tidelog_server.core import limits
limits.MAX_PRODUCERS, limits.MAX_TXN_OUTCOMES, limits.MAX_TOMBSTONES = 16, 6, 6
limits.MAX_APPS = limits.MAX_FINISHED_APPS = 6
from tidelog_server.fold import keeping
keeping.SNAPSHOT_AFTER_CHANGES, keeping.TRIM_ABOVE_BYTES, keeping.CLEAN_ABOVE_BYTES = 20, 1 << 10, 4 << 10
"""
    + _AS_IT_IS
)
# What a running process puts into a folder, and RocksDB's text log.
_NOT_PACKED: Final = frozenset({"LOCK", "bootstrap-token", "LOG", "lock"})


class Server:
    """A server of the commit, as a process.

    Attributes:
        endpoint: ``host:port``.
    """

    def __init__(self, folder: Path, program: str = _LOWER, failpoint: str = "", **settings: object) -> None:
        flags = {
            "server.grpc_port": 0, "server.http_port": 0, "storage.data_dir": folder, "log.level": "warning",
            "limits.min_free_disk_bytes": 0, **{name.replace("__", "."): value for name, value in settings.items()},
        }  # fmt: skip
        arguments = [text for name, value in flags.items() for text in (f"--{name}", str(value))]
        environment = os.environ | {"TIDELOG_FAILPOINT": failpoint}
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        self.endpoint = str(json.loads(self.process.stdout.readline())["grpc"])

    def end(self, number: signal.Signals) -> None:
        """End it with a signal, if it still runs."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait()


def main() -> None:
    """Write everything into the folder ``golden``."""
    checkout = Path(sys.argv[1]).resolve()
    assert Path(tidelog.__file__).is_relative_to(checkout), f"the client is {tidelog.__file__}"
    _write_protocol_and_client(checkout)
    with tempfile.TemporaryDirectory(prefix="tidelog-golden-") as name, ExitStack() as servers:
        folder = Path(name)

        def server(**settings: Any) -> Server:
            started = Server(folder / "data", **settings)
            servers.callback(started.end, signal.SIGKILL)
            return started

        expected: dict[str, Any] = {"commit": COMMIT}
        # The blobs that nothing refers to are collected, and the others copied, while the first server runs.
        first = server(mailboxes__blob_grace_s=1.0)
        with Client(first.endpoint, client_id="golden-first") as client:
            facts = write_first(client)
            write_first_mailboxes(client, facts)
            _backup(folder / "backup", first.endpoint)
            expected["backup"] = dump(client, facts["txn_ids"]) | dump_mailboxes(client, facts)
            expected["backup"]["tick"] = client.allocate_ticks()[0]
            expected["archive"] = _archive(folder / "archive", first.endpoint, client)
            client.append("orders/0", [b"behind the archive"])
        first.end(signal.SIGTERM)
        second = server(auth__kind="on")
        bootstrap = (folder / "data" / "bootstrap-token").read_text().strip()
        with Client(second.endpoint, token=bootstrap) as client:
            admin = client.create_token("administrator of the golden folder", everything(), lifetime_s=366 * 86_400)
        facts["token"] = admin.token
        with Client(second.endpoint, client_id="golden-second", token=admin.token) as client:
            write_second(client, facts)
            write_second_mailboxes(client, facts)
            expected["folder"] = everything_of(client, facts)
            expected["audit"] = dump_audit(client)
            expected["time_ms"] = client.allocate_ticks()[0] >> 18
            leave_open(client)
            # Ended without a chance to finish anything, so the folder has a WAL that a start must replay.
            second.end(signal.SIGKILL)
        expected["facts"] = facts
        write_pending(folder / "pending")
        for what in ("data", "backup", "archive", "pending"):
            _pack(folder / what, GOLDEN / f"{what}.tar.xz")
        # The answers to repetitions come from another run on a copy, because they change epochs.
        third = server(program=_AS_IT_IS, auth__kind="on")
        with Client(third.endpoint, token=admin.token) as client:
            recovered = everything_of(client, facts)
            changed = {
                name: (recovered[name], was) for name, was in expected["folder"].items() if was != recovered[name]
            }
            assert not changed, json.dumps(changed, indent=1)
            expected["probe"] = probe(client, facts)
            expected["mailbox_probe"] = probe_mailboxes(client, facts)
        third.end(signal.SIGKILL)
    _write(expected)


def everything_of(client: Client, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return all that the data folder must have, read by an administrator."""
    return dump(client, facts["txn_ids"]) | dump_mailboxes(client, facts) | {"tokens": dump_tokens(client)}


def everything() -> list[str]:
    """Return the grants that permit all calls."""
    from tidelog_server.security.grants import NAMELESS, Verb

    return [verb.value if verb in NAMELESS else f"{verb.value}:*" for verb in Verb]


def write_first(client: Client) -> dict[str, Any]:
    """Write with authentication off; return what the tests must know to repeat calls."""
    facts: dict[str, Any] = {"last_sequences": {}, "applications": {}, "consume_calls": [], "fencing_tokens": {}}
    _evict(client, "evicted")
    retention = Retention(age=timedelta(days=36_500), bytes=1 << 40, hard_bytes=1 << 41)
    client.create_channel("orders", vchannels=2, retention=retention)
    client.create_channel("payments")
    client.create_channel("events", vchannels=3)
    client.create_channel("gone")
    client.append("gone", [b"lost with its channel"] * 3)
    client.channel("gone").destroy()
    client.create_channel("again")
    client.append("again", [b"of the first channel of this name"])
    client.channel("again").destroy()
    client.create_channel("again", vchannels=2)
    client.append("again/1", [b"of the second channel of this name"])
    _append_messages(client)
    _append_numbered(client, facts, "payments/0", "till-1", batches=70, opens=1)
    _append_numbered(client, facts, "payments/0", "till-2", batches=3, opens=2)
    _append_numbered(client, facts, "events/1", "sensor", batches=5, opens=1)
    client.fence("orders/1", 7)
    client.append("orders/1", [b"with the fencing token"], fencing_token=7)
    facts["fencing_tokens"]["orders/1"] = 6
    _write_groups(client, facts)
    facts["txn_ids"] = [_transact(client)]
    # Without authentication, so it belongs to no principal, and the probe, which is one, cannot repeat it.
    client.commit_prepared(prepare_parts(client, "etl", 5), "etl", 5, is_first=True)
    _broadcast(client)
    [first, *_] = next(iter(client.scan("payments"))).ticks
    client.trim("payments/0", At.tick(first + 4))
    client.append("events/2", [b"trimmed"] * 3)
    client.trim("events/2", everything=True)
    return facts


def _evict(client: Client, channel: str) -> None:
    """Fill every table that evicts with rows that will be evicted, or are."""
    client.create_channel(channel, vchannels=2)
    lanes = [f"{channel}/0", f"{channel}/1"]
    client.append(lanes[0], [b"columns"])
    with client.scan(lanes[0]) as scan:
        columns = next(iter(scan)).columns
    for number in range(10):
        opened = client.open_producer(lanes[0], f"{channel}-{number}", accept_forgotten=True)
        client.append(lanes[0], [b"numbered"], producer=opened.sequence(1))
        with client.producer(lanes[0]) as producer:
            producer.send(b"by a producer of one process")
        with client.txn() as txn:
            txn.append_columns(lanes[1], columns)
        client.commit_prepared([], f"{channel}-{number}", 1, is_first=True)
        client.commit_prepared([], f"{channel}-last-{number}", 1, is_first=True, is_last=True, query_id="query")
        client.ack(client.broadcast(lanes, b"evicted").broadcast_id, lanes)


def _append_messages(client: Client) -> None:
    """Append messages with every kind of field, in batches of every size; close a chunk."""
    last = client.append("orders/0", b"single").last_tick
    client.append("orders/0", [b"expected"], expected_last_tick=last)
    client.append("orders/0", [f"plain {number}".encode() for number in range(100)], durability="os")
    when = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    client.append(
        "orders/0",
        [
            Message(b"", key=b""),
            Message(b"\x00\xff", key=b"\x00key", type=4_294_967_295),
            Message("grün".encode(), properties={"color": "grün", "empty": ""}),
            Message(b"dated", event_time=when, type=7),
            Message(b"old", event_time=datetime(1, 1, 1, tzinfo=UTC)),
            Message(b"all", key=b"k", type=1, properties={"a": "1", "b": "2"}, event_time=when),
        ],
    )
    client.append("orders/1", [Message(b"%d" % n, key=b"k%d" % (n % 7), type=n % 3) for n in range(50)])
    # More than 4 MiB of columns close a chunk, and large columns go to blob files.
    for number in range(5):
        client.append("events/0", [bytes([number]) * 900_000, b"beside it"])
    for number in range(40):
        client.append("events/0", [b"event %d" % number])


def _append_numbered(
    client: Client, facts: dict[str, Any], lane: str, producer_id: str, *, batches: int, opens: int
) -> None:
    epoch = 0
    for _ in range(opens):
        epoch = client.open_producer(lane, producer_id).epoch
    for number in range(1, batches + 1):
        client.append(lane, numbered_batch(producer_id, number), producer=ProducerSequence(producer_id, number, epoch))
    facts["last_sequences"][f"{lane} {producer_id}"] = [batches, epoch]


def _write_groups(client: Client, facts: dict[str, Any]) -> None:
    client.create_group("billing", ["orders", "events"])
    client.create_group("audit", ["payments"], start=At.latest())
    client.create_group("replay", ["orders"])
    consumed = client.consume("billing", "orders/0", 10, commit=True, consume_id=4_711)
    assert len(consumed) == 10
    facts["consume_calls"].append(["billing", "orders/0", 10, 4_711])
    with client.scan("events/0") as scan:
        ticks = [message.tick for batch in scan for message in batch]
    client.commit_positions([PositionCommit("billing", "events/0", ticks[4])])
    with client.scan("orders/1") as scan:
        middle = next(iter(scan)).ticks[20]
    client.seek_group("replay", At.tick(middle), ["orders/1"])


def _transact(client: Client) -> int:
    """Commit a transaction in one request and a staged one, and roll another back; return the id of the staged one."""
    with client.scan("orders/1") as scan:
        columns = next(iter(scan)).columns
    with client.txn() as txn:
        txn.append("orders/0", [b"one request a", b"one request b"])
        txn.append("payments/0", b"one request c")
        txn.commit_positions([PositionCommit("billing", "orders/1", client.latest_mvcc_tick("orders/1"))])
    with client.txn() as txn:
        txn.append_columns("events/1", columns)
        txn.append("events/1", b"staged a")
        txn.append("again/0", b"staged b")
    staged = txn.result.txn_id
    rolled_back = client.txn()
    rolled_back.append_columns("events/1", columns)
    rolled_back.rollback()
    return staged


def _broadcast(client: Client) -> None:
    """Leave broadcasts in every state but PENDING."""
    everywhere = ["orders/0", "orders/1", "payments/0", "events/0"]
    done = client.broadcast(everywhere, Message(b"done", key=b"k", type=3), resource_keys=[ResourceKey("table", "a")])
    client.ack(done.broadcast_id, everywhere)
    half = client.broadcast(
        everywhere, b"half", resource_keys=[ResourceKey("table", "b"), ResourceKey("database", "d", shared=True)]
    )
    client.ack(half.broadcast_id, everywhere[1:3])
    client.broadcast(["events/0", "events/1"], b"not acknowledged", resource_keys=[ResourceKey("database", "d", True)])
    aborted = client.broadcast(["payments/0", "again/0"], b"aborted")
    client.abort_broadcast(aborted.broadcast_id, "as an example")


def write_second(client: Client, facts: dict[str, Any]) -> None:
    """Write with authentication on, so that rows have a tenant."""
    _evict(client, "evicted-secured")
    client.create_token("reader", ["read:orders", "group.consume:orders.*"], lifetime_s=366 * 86_400)
    revoked = client.create_token("revoked", ["read:*"])
    client.revoke_token(revoked.description.token_id)
    client.create_channel("secured", vchannels=2)
    client.append("secured/0", [b"of a principal"] * 3)
    _append_numbered(client, facts, "secured/0", "writer", batches=4, opens=1)
    client.create_group("secured-group", ["secured"])
    assert len(client.consume("secured-group", "secured/0", 2, commit=True, consume_id=99)) == 2
    facts["consume_calls"].append(["secured-group", "secured/0", 2, 99])
    with client.scan("secured/0") as scan:
        columns = next(iter(scan)).columns
    with client.txn() as txn:
        txn.append_columns("secured/1", columns)
    facts["txn_ids"].append(txn.result.txn_id)
    client.commit_prepared(prepare_parts(client, "secured-etl", 2), "secured-etl", 2, is_first=True)
    facts["applications"]["secured-etl"] = 2
    sent = client.broadcast(["secured/0", "secured/1"], b"secured", resource_keys=[ResourceKey("table", "s")])
    client.ack(sent.broadcast_id, ["secured/1"])


def leave_open(client: Client) -> None:
    """Stage a transaction and prepare another; nothing of them may be in the log after the next start."""
    with client.scan("secured/0") as scan:
        columns = next(iter(scan)).columns
    staged, prepared = client.txn(keepalive_s=600), client.txn(keepalive_s=600)
    for txn in (staged, prepared):
        txn.append_columns("secured/0", columns)
        txn.append_columns("orders/0", columns)
    prepared.prepare("abandoned", app_version=1, keepalive_s=3_600)
    assert {each.state for each in client.list_txns()} == {"open", "prepared"}


def write_pending(folder: Path) -> None:
    """Leave a folder with a broadcast that was accepted, and is in the metadata only."""
    server = Server(folder, failpoint="broadcast_accepted")
    with Client(server.endpoint, timeout_s=2) as client:
        client.create_channel("pending", vchannels=2)
        with suppress(TidelogError):
            client.broadcast(["pending/0", "pending/1"], Message(b"pending", key=b"k"))
    assert server.process.wait() == -signal.SIGKILL


def _backup(folder: Path, endpoint: str) -> None:
    program = "from tidelog_cli import main; main()"
    command = [sys.executable, "-c", program, "backup", "create", str(folder), "--endpoint", endpoint]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _archive(root: Path, endpoint: str, client: Client) -> dict[str, Any]:
    """Archive in two runs with appends in between; return what a reader of the archive must find."""
    from pyspark.sql import SparkSession

    from tidelog.spark import TidelogDataSource
    from tidelog.spark.pipelines import archive, load_archive, verify

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    session.dataSource.register(TidelogDataSource)
    options = {"endpoint": endpoint, "channels": "orders,payments"}
    archive(session, root, options)
    client.append("orders/1", [Message(b"second run", key=b"k")])
    client.append("payments/0", [b"second run"])
    archive(session, root, options)
    report = verify(session, {**options, "archive": root, "archiveOnly": "true"})
    assert report.ok
    session.stop()
    lanes = ("orders/0", "orders/1", "payments/0")
    found = load_archive(root)
    return {
        "files": plain([_fields(file) for file in found.files]),
        "messages": {lane: dump(client)["messages"][lane] for lane in lanes},
        "digests": {"full": str(report.digests.full), "content": str(report.digests.content)},
    }


def _fields(file: Any) -> Mapping[str, Any]:
    return {name: getattr(file, name) for name in file.__dataclass_fields__}


def _write_protocol_and_client(checkout: Path) -> None:
    buf = Path(sys.executable).with_name("buf")
    image = GOLDEN / "protocol.binpb"
    subprocess.run([buf, "build", "proto", "--exclude-source-info", "-o", image], cwd=checkout, check=True)
    excluded = [f":(exclude)tidelog/{name}" for name in _LEFT_OUT]
    command = ["git", "archive", "--format=tar", f"{COMMIT}:client", "--", "tidelog", ":(exclude)*.pyi", *excluded]
    sources = subprocess.run(command, cwd=checkout, check=True, stdout=subprocess.PIPE).stdout
    (GOLDEN / "client.tar.xz").write_bytes(lzma.compress(sources, preset=9 | lzma.PRESET_EXTREME))


def _pack(folder: Path, target: Path) -> None:
    """Pack a folder."""

    def cleaned(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = Path(member.name).name
        if name in _NOT_PACKED or name.startswith("LOG.old"):
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(target, "w:xz", preset=9) as packed:
        packed.add(folder, folder.name, filter=cleaned)


def _write(expected: Mapping[str, Any]) -> None:
    """Write JSON with one line for each message."""
    lines = json.dumps(expected, indent=1, sort_keys=True)
    (GOLDEN / "expected.json").write_text(_with_short_lists(lines) + "\n")


def _with_short_lists(text: str) -> str:
    """Join the lines of lists and objects that contain no others, and of messages with properties."""
    joined = re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda found: " ".join(found[0].split()), text)
    return re.sub(r"\[\s+\d+,[^\[\]]*\]", lambda found: " ".join(found[0].split()), joined)


if __name__ == "__main__":
    main()
