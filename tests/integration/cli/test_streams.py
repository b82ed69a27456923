"""The standard streams of a command and of a server may be closed, full, or unable to show a character.

Method: the command line in forks whose streams are closed or full; and in processes of its own, started by a shell that
closes their streams, or with variables that Python reads at its start.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tidelog import Client
from tidelog_cli.child_environment import child_environment
from tidelog_testing.servers.commands import COMMAND, run_command
from tidelog_testing.servers.processes import ServerProcess

CLOSED = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
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


@pytest.mark.parametrize("closed", CLOSED, ids=str)
def test_an_append_with_closed_streams_appends(server: ServerProcess, closed: tuple[int, ...], tmp_path: Path) -> None:
    (tmp_path / "input").write_text(f"{closed}\n")
    arguments = ["append", "orders", "--endpoint", server.grpc, "-i", str(tmp_path / "input")]
    done = run_command(arguments, closed=closed)

    assert done.returncode == 0, done.stderr
    assert last_payload(server) == str(closed).encode()


def test_an_append_of_a_program_that_starts_without_streams_appends(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "input").write_text("none of three\n")
    arguments = ["append", "orders", "--endpoint", server.grpc, "-i", str(tmp_path / "input")]

    assert shell(arguments, "<&- >&- 2>&-").returncode == 0
    assert last_payload(server) == b"none of three"


def test_an_append_from_a_pipe_with_closed_stderr_appends(server: ServerProcess) -> None:
    assert shell(["append", "orders", "--endpoint", server.grpc], "2>&-", b"from a pipe\n").returncode == 0
    assert last_payload(server) == b"from a pipe"


@pytest.mark.parametrize("closed", [(0,), (2,), (0, 1, 2)], ids=str)
@pytest.mark.parametrize(
    ("command", "code"),
    [("version", 0), ("channel ls", 0), ("scan nowhere", 3), ("no-such-command", 2), ("check", 3)],
)
def test_closed_streams_change_no_exit_code(
    server: ServerProcess, command: str, code: int, closed: tuple[int, ...]
) -> None:
    done = run_command(command.split(), environment={"TIDELOG_ENDPOINT": server.grpc}, closed=closed)

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


AT_START = [
    {"LANG": "C", "LC_ALL": "C"},
    {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    {"PYTHONIOENCODING": "ascii"},
    {"PYTHONIOENCODING": "latin-1"},
    {"TZ": "Nowhere/Else", "HOME": "/nonexistent"},
]
LATER = [
    {"TERM": "dumb"},
    {"TERM": "no-such-terminal"},
    {"COLUMNS": "1"},
    {"COLUMNS": "²", "LINES": "-1", "TERMINAL_WIDTH": "wide"},
    {"COLUMNS": "99999999999999999999"},
    {"NO_COLOR": "1", "FORCE_COLOR": "1"},
    {"TIDELOG_QUIET": ""},
]


@pytest.mark.parametrize("environment", [*AT_START, *LATER], ids=str)
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_name_is_printed_on_every_terminal(server: ServerProcess, environment: dict[str, str], output: str) -> None:
    arguments = ["mailbox", "ls", "-o", output, "--endpoint", server.grpc]
    if environment in AT_START:
        done = shell(arguments, "", environment=environment)
    else:
        done = run_command(arguments, environment=environment)

    assert done.returncode == 0, done.stderr
    assert done.stdout
    if output == "json":
        text = done.stdout.decode(environment.get("PYTHONIOENCODING", "utf-8"))
        assert [each["name"] for each in json.loads(text)] == [NAME]


@pytest.mark.parametrize("arguments", [["version"], ["channel", "ls"], ["--help"]], ids=" ".join)
def test_a_full_disk_is_one_sentence(server: ServerProcess, arguments: list[str]) -> None:
    done = run_command(arguments, environment={"TIDELOG_ENDPOINT": server.grpc}, stdout="full")

    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert b"No space left on device" in done.stderr


def test_a_fetch_that_cannot_print_releases_what_it_leased(server: ServerProcess) -> None:
    with Client(server.grpc) as client:
        client.mailboxes.create("jobs")
        for body in (b"a", b"\xff\x1b[2J", "größe".encode()):
            client.mailbox("jobs").send(body)
    arguments = ["mailbox", "fetch", "jobs", "-n", "3", "--lease", "1h", "--endpoint", server.grpc, "-o"]
    for output in ("table", "json", "jsonl", "text"):
        done = run_command([*arguments, output], stdout="full")
        assert (done.returncode, b"No space left on device" in done.stderr) == (1, True), done.stderr
        with Client(server.grpc) as client:
            counts = client.mailbox("jobs").counts()
        assert (counts.available, counts.leased) == (3, 0), output
    assert len(run_command([*arguments, "jsonl"]).stdout.splitlines()) == 3


def test_a_fetch_prints_markup_and_control_characters_before_it_leases_more(server: ServerProcess) -> None:
    with Client(server.grpc) as client:
        client.mailboxes.create("markup")
        for body in (b"[/x]", b"[error]", b"jobs[eu]"):
            client.mailbox("markup").send(body)
    done = run_command(["mailbox", "fetch", "markup", "-n", "3", "-o", "table", "--endpoint", server.grpc])

    assert done.returncode == 0, done.stderr
    for text in (b"[/x]", b"[error]", b"jobs[eu]"):
        assert text in done.stdout
