"""``tidelog mailbox``: send, fetch, ack, headers, peek, purge, pause, resume, reenqueue and redrive.

Method: one real server for the module, and each command in a separate process, without a terminal.
"""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import Commands, records

COMMANDS = Commands("mailbox")
run, succeeds, refused = COMMANDS.run, COMMANDS.succeeds, COMMANDS.refused


@pytest.fixture
def jobs(endpoint: str) -> str:
    """Create a mailbox, and return its name."""
    name = f"cli/{uuid.uuid4().hex[:8]}"
    succeeds(endpoint, "create", name)
    return name


def counts(endpoint: str, name: str) -> tuple[int, int, int, int]:
    [found] = records(succeeds(endpoint, "describe", name))
    return found["available"], found["delayed"], found["leased"], found["dead"]


def test_lines_are_sent_fetched_and_confirmed(endpoint: str, jobs: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(2_500))
    [sent] = records(succeeds(endpoint, "send", jobs, stdin=lines))
    assert (sent["mailbox"], sent["messages"], sent["bytes"]) == (jobs, 2_500, len(lines) - 2_500)
    assert counts(endpoint, jobs) == (2_500, 0, 0, 0)

    fetched = succeeds(endpoint, "fetch", jobs, "-n", "3", "--lease", "1m")
    assert [each["body"] for each in records(fetched)] == ["0", "1", "2"]
    assert records(fetched)[0]["id"] == sent["first_id"]
    assert counts(endpoint, jobs) == (2_497, 0, 3, 0)
    succeeds(endpoint, "ack", jobs, "-", stdin=fetched)
    assert counts(endpoint, jobs) == (2_497, 0, 0, 0)
    assert succeeds(endpoint, "fetch", jobs, "-n", "2", "--ack", "-o", "text") == b"3\n4\n"
    assert counts(endpoint, jobs) == (2_495, 0, 0, 0)


def test_options_are_those_of_the_message(endpoint: str, jobs: str) -> None:
    options = ("--header", "kind=resize", "-H", "to=a=b", "--priority", "7", "--group", "g", "--dedup-key", "k")
    [first] = records(succeeds(endpoint, "send", jobs, "--body", "job", *options))
    [again] = records(succeeds(endpoint, "send", jobs, "--body", "job", *options))
    assert (again["first_id"], again["duplicates"]) == (first["first_id"], 1)
    succeeds(endpoint, "send", jobs, "--body", "later", "--delay", "1h")
    in_an_hour = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    succeeds(endpoint, "send", jobs, "--body", "later", "--due", in_an_hour, "--ttl", "0s")
    assert counts(endpoint, jobs) == (1, 2, 0, 0)

    [delivery] = records(succeeds(endpoint, "fetch", jobs))
    assert delivery["headers"] == {"kind": "resize", "to": "a=b"}
    assert (delivery["priority"], delivery["group"], delivery["delivery_count"]) == (7, "g", 1)
    succeeds(endpoint, "ack", jobs, delivery["lock_id"], "--reject", "--delay", "1h")
    assert counts(endpoint, jobs) == (0, 3, 0, 0)
    assert "was acknowledged before" in refused(endpoint, ExitCode.CONFLICT, "ack", jobs, delivery["lock_id"])


def test_what_peek_prints_can_be_sent_again(endpoint: str, jobs: str) -> None:
    lines = (
        b'{"body": "a", "headers": {"x": "y"}, "priority": 3}\n\n'
        b'{"body_base64": "/w==", "group": "g", "delay_ms": 3600000}\n'
    )
    succeeds(endpoint, "send", jobs, "--framing", "jsonl", stdin=lines)
    peeked = succeeds(endpoint, "peek", jobs)
    assert [(each.get("body"), each.get("body_base64"), each["state"]) for each in records(peeked)] == [
        ("a", None, "available"), (None, "/w==", "delayed"),
    ]  # fmt: skip
    copy = f"{jobs}-copy"
    succeeds(endpoint, "create", copy)
    succeeds(endpoint, "send", copy, "--framing", "jsonl", stdin=peeked)
    [first, second] = records(succeeds(endpoint, "fetch", copy, "-n", "5"))
    assert (first["body"], first["headers"], first["priority"]) == ("a", {"x": "y"}, 3)
    assert (second["body_base64"], second["group"]) == ("/w==", "g")
    assert "line 1 of the input: unknown field 'payload'" in refused(
        endpoint, ExitCode.USAGE, "send", jobs, "--framing", "jsonl", stdin=b'{"payload": "a"}\n'
    )


def test_messages_are_looked_at(endpoint: str, jobs: str) -> None:
    [sent] = records(succeeds(endpoint, "send", jobs, stdin=b"a\nb\nc\n"))
    [leased] = records(succeeds(endpoint, "fetch", jobs))
    headers = records(succeeds(endpoint, "headers", jobs, "--after", "-1h"))
    assert [each["id"] for each in headers][-1] == sent["last_id"]
    assert len(headers) == 2
    assert records(succeeds(endpoint, "headers", jobs, "--after-id", headers[0]["id"])) == headers[1:]
    [found] = records(succeeds(endpoint, "peek", jobs, "--state", "leased"))
    assert (found["id"], found["leased_until"]) == (leased["id"], leased["leased_until"])
    assert succeeds(endpoint, "peek", jobs, "--id", sent["last_id"], "-o", "text") == b"c\n"
    assert b"leased" in succeeds(endpoint, "peek", jobs, "-o", "table")
    assert "expected one of available" in refused(endpoint, ExitCode.USAGE, "peek", jobs, "--state", "gone")


def test_an_operator_pauses_ends_leases_and_purges(endpoint: str, jobs: str) -> None:
    succeeds(endpoint, "send", jobs, stdin=b"a\nb\n")
    succeeds(endpoint, "pause", jobs)
    done = run(endpoint, "fetch", jobs)
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.OK, b"", f"{jobs} is paused: resume it\n".encode())
    succeeds(endpoint, "resume", jobs)
    [delivery] = records(succeeds(endpoint, "fetch", jobs, "--wait", "10s"))
    assert run(endpoint, "reenqueue", jobs, delivery["id"]).stderr == b"ended 1 leases\n"
    assert "pass --yes" in refused(endpoint, ExitCode.USAGE, "purge", jobs)
    assert run(endpoint, "purge", jobs, "--yes").stderr == b"deleted 2 messages\n"
    assert run(endpoint, "fetch", jobs).stderr == b"there is no message\n"
    assert counts(endpoint, jobs) == (0, 0, 0, 0)


def test_dead_messages_are_redriven(endpoint: str, jobs: str) -> None:
    succeeds(endpoint, "send", jobs, stdin=b"a\nb\n")
    fetched = succeeds(endpoint, "fetch", jobs, "-n", "2")
    succeeds(endpoint, "ack", jobs, "-", "--final", stdin=fetched)
    assert counts(endpoint, jobs) == (0, 0, 0, 2)
    [one] = records(succeeds(endpoint, "redrive", jobs, records(fetched)[0]["id"]))
    assert (one["moved"], one["total"]) == (1, 1)
    [rest] = records(succeeds(endpoint, "redrive", jobs, "--rate", "100"))
    assert rest["moved"] == 1
    assert counts(endpoint, jobs) == (2, 0, 0, 0)


def test_mistakes_are_reported(endpoint: str, jobs: str) -> None:
    for command in ("send", "fetch", "headers", "peek", "purge", "pause", "resume", "reenqueue", "redrive"):
        assert "missing" in refused(endpoint, ExitCode.NOT_FOUND, command, "missing")
    assert "expected 40 hexadecimal digits" in refused(endpoint, ExitCode.USAGE, "ack", jobs, "abc")
    assert "expected NAME=VALUE" in refused(endpoint, ExitCode.USAGE, "send", jobs, "-H", "kind")
    assert "use one of them" in refused(endpoint, ExitCode.USAGE, "send", jobs, "--delay", "1s", "--due", "2100-01-01")
    assert "use one of them" in refused(endpoint, ExitCode.USAGE, "send", jobs, "--body", "a", "--input", "file")
    assert "is for one message" in refused(endpoint, ExitCode.USAGE, "send", jobs, "--dedup-key", "k")
    assert "without --final" in refused(endpoint, ExitCode.USAGE, "ack", jobs, "00" * 20, "--final", "--delay", "1s")
    assert "for --reject" in refused(endpoint, ExitCode.USAGE, "ack", jobs, "00" * 20, "--delay", "1s")
    assert "expected that of a message" in refused(endpoint, ExitCode.USAGE, "redrive", jobs, "x")
    assert "lease" in refused(endpoint, ExitCode.USAGE, "fetch", jobs, "--lease", "30d")
