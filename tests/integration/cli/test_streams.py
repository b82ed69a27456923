"""The standard streams of a command and of a server may be closed, full, or unable to show a character.

Method: the command line in processes of its own, started by a shell that closes or redirects its streams.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tidelog import Client
from tidelog_cli.child_environment import child_environment
from tidelog_testing.servers.commands import COMMAND
from tidelog_testing.servers.processes import ServerProcess

CLOSED = ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"]
_SERVE_WITHOUT_STREAMS = """
import os, sys
os.close(0), os.close(2)
from tidelog_cli import main
main(["serve", *sys.argv[1:]])
"""
NAME = "größe\U0001f600"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("streams") / "log") as process, Client(process.grpc) as client:
        client.create_channel("orders")
        client.mailboxes.create(NAME)
        yield process


def shell(
    arguments: list[str], redirections: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run ``tidelog ARGUMENTS REDIRECTIONS`` in a shell."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {redirections}', "sh", *COMMAND, *arguments],
        input=stdin, capture_output=True, timeout=120, env=child_environment() | dict(environment or {}), check=False,
    )  # fmt: skip


def last_payload(server: ServerProcess) -> bytes:
    with Client(server.grpc) as client:
        return [bytes(payload) for batch in client.scan("orders") for payload in batch.payloads][-1]


@pytest.mark.parametrize("closed", CLOSED)
def test_an_append_with_closed_streams_appends(server: ServerProcess, closed: str, tmp_path: Path) -> None:
    (tmp_path / "input").write_text(f"{closed}\n")
    done = shell(["append", "orders", "--endpoint", server.grpc, "-i", str(tmp_path / "input")], closed)

    assert done.returncode == 0, done.stderr
    assert last_payload(server) == closed.encode()


def test_an_append_from_a_pipe_with_closed_stderr_appends(server: ServerProcess) -> None:
    assert shell(["append", "orders", "--endpoint", server.grpc], "2>&-", b"from a pipe\n").returncode == 0
    assert last_payload(server) == b"from a pipe"


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["version"], 0), (["channel", "ls"], 0), (["scan", "nowhere"], 3), (["no-such-command"], 2), (["check"], 3)],
    ids=lambda each: " ".join(each) if isinstance(each, list) else str(each),
)
def test_closed_streams_change_no_exit_code(
    server: ServerProcess, arguments: list[str], code: int, closed: str
) -> None:
    done = shell(arguments, closed, environment={"TIDELOG_ENDPOINT": server.grpc})

    assert (done.returncode, b"Traceback" in done.stderr) == (code, False), done.stderr


def test_a_server_with_closed_streams_serves(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "log", program=["-c", _SERVE_WITHOUT_STREAMS]) as process,
        Client(process.grpc) as client,
    ):
        client.create_channel("orders")
        # Without /dev/null in its place, a file of the store would have number 2, and the log would be written into it.
        assert {os.readlink(f"/proc/{process.pid}/fd/{each}") for each in (0, 2)} == {os.devnull}
        assert client.append("orders", [b"x"]).first_tick


@pytest.mark.parametrize(
    "environment",
    [
        {"LANG": "C", "LC_ALL": "C"},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"TERM": "dumb"},
        {"TERM": "no-such-terminal"},
        {"COLUMNS": "1"},
        {"COLUMNS": "²", "LINES": "-1", "TERMINAL_WIDTH": "wide"},
        {"COLUMNS": "99999999999999999999"},
        {"NO_COLOR": "1", "FORCE_COLOR": "1"},
        {"TZ": "Nowhere/Else"},
        {"HOME": "/nonexistent"},
        {"TIDELOG_QUIET": ""},
    ],
    ids=str,
)
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_name_is_printed_on_every_terminal(server: ServerProcess, environment: dict[str, str], output: str) -> None:
    done = shell(["mailbox", "ls", "-o", output, "--endpoint", server.grpc], "", environment=environment)

    assert done.returncode == 0, done.stderr
    assert done.stdout
    if output == "json":
        assert [
            each["name"] for each in json.loads(done.stdout.decode(environment.get("PYTHONIOENCODING", "utf-8")))
        ] == [NAME]


@pytest.mark.parametrize("arguments", [["version"], ["channel", "ls"], ["--help"]], ids=" ".join)
def test_a_full_disk_is_one_sentence(server: ServerProcess, arguments: list[str]) -> None:
    done = shell(arguments, ">/dev/full", environment={"TIDELOG_ENDPOINT": server.grpc})

    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert b"No space left on device" in done.stderr


def test_a_fetch_that_cannot_print_releases_what_it_leased(server: ServerProcess) -> None:
    with Client(server.grpc) as client:
        client.mailboxes.create("jobs")
        for body in (b"a", b"\xff\x1b[2J", "größe".encode()):
            client.mailbox("jobs").send(body)
    arguments = ["mailbox", "fetch", "jobs", "-n", "3", "--lease", "1h", "--endpoint", server.grpc, "-o"]
    for output in ("table", "json", "jsonl", "text"):
        done = shell([*arguments, output], ">/dev/full")
        assert (done.returncode, b"No space left on device" in done.stderr) == (1, True), done.stderr
        with Client(server.grpc) as client:
            counts = client.mailbox("jobs").counts()
        assert (counts.available, counts.leased) == (3, 0), output
    assert len(shell([*arguments, "jsonl"], "").stdout.splitlines()) == 3


def test_a_fetch_prints_markup_and_control_characters_before_it_leases_more(server: ServerProcess) -> None:
    with Client(server.grpc) as client:
        client.mailboxes.create("markup")
        for body in (b"[/x]", b"[error]", b"jobs[eu]"):
            client.mailbox("markup").send(body)
    done = shell(["mailbox", "fetch", "markup", "-n", "3", "-o", "table", "--endpoint", server.grpc], "")

    assert done.returncode == 0, done.stderr
    for text in (b"[/x]", b"[error]", b"jobs[eu]"):
        assert text in done.stdout
