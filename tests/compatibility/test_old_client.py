"""Goal: a client of an earlier version works against the current server.

Method: the client of the commit of each set of golden files, unpacked, in a process of its own with no other client on
its path. The current client reads what the old one wrote, and the other way round.
"""

import json
import subprocess
import sys
import sysconfig
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from compatibility.golden import GoldenSet, each_set
from tidelog import Client, Message
from tidelog.testing import TestServer

PROGRAM = Path(__file__).with_name("old_client.py")
WITHIN_S = 120


def run_old_client(golden: GoldenSet, folder: Path, endpoint: str) -> Any:
    sites = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    command = [
        sys.executable,
        "-I",
        "-S",
        str(PROGRAM),
        str(golden.unpack("client", folder).parent),
        *sites,
        "--",
        endpoint,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write_current(client: Client) -> None:
    client.create_channel("current", vchannels=2)
    when = datetime(2026, 1, 2, tzinfo=UTC)
    client.append("current/0", [b"a", Message(b"b", key=b"k", type=7, properties={"p": "1"}, event_time=when)])
    with client.scan("current/0") as scan:
        columns = next(iter(scan)).columns
    with client.txn() as txn:
        txn.append("current/0", b"txn")
        txn.append("current/1", b"txn")
    with client.txn() as txn:
        txn.append_columns("current/1", columns)
    client.broadcast(["current/0", "current/1"], b"broadcast")


@each_set
def test_an_old_client_writes_commits_broadcasts_and_consumes_and_reads_what_the_current_one_wrote(
    golden: GoldenSet, tidelog_server: TestServer, tidelog_client: Client, tmp_path: Path
) -> None:
    write_current(tidelog_client)

    answers = run_old_client(golden, tmp_path, tidelog_server.endpoint)

    check_written(answers, tidelog_client)
    check_read(answers, tidelog_client)


def check_written(answers: Any, tidelog_client: Client) -> None:
    sent = [f"sent {number}" for number in range(100)]
    # A status of today has more than the detail that this client knows.
    assert answers["refused"].startswith("LastTickMismatchError none ['expected_last_tick'")
    assert (answers["duplicates"], answers["is_same"]) == ([False, True], True)
    assert answers["scanned"] == sorted(["a", "b", "c", "numbered", *sent])
    assert answers["staged_state"] == "committed"
    assert (answers["commits"], answers["is_one_commit"]) == ([[2, False], [2, True]], True)
    assert (answers["broadcast_state"], answers["open_broadcasts"][1:]) == ("done", [])
    written = {
        lane: [payload.decode() for batch in tidelog_client.scan(lane) for payload in batch.payloads]
        for lane in ("old/0", "old/1")
    }
    assert written == {
        "old/0": ["a", "b", "c", *sent, "txn", "numbered", "prepared", "broadcast"],
        "old/1": ["numbered", "txn", "staged", "prepared", "broadcast"],
    }
    group = tidelog_client.describe_group("old-group")
    assert (answers["called"], answers["delivered"], group.lag_messages) == (3, sum(map(len, written.values())), 0)


def check_read(answers: Any, tidelog_client: Client) -> None:
    with tidelog_client.scan(["current/0", "current/1"]) as scan:
        found = [
            [
                each.vchannel, each.tick, each.payload.decode(), (each.key or b"").decode(), each.type,
                dict(each.properties), each.event_time_ms, each.txn_id, each.broadcast_id,
            ]
            for batch in scan
            for each in batch
        ]  # fmt: skip
    assert answers["current"] == found
    assert answers["planned"] == len(found) == 8
