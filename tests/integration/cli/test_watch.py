"""``--watch``: what a command shows again after each interval.

Method: commands in processes of their own, on a pseudo-terminal or a pipe, against a real server; one server is killed
and starts again.
"""

import os
import pty
import re
import signal
import subprocess
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import yaml

from tidelog import Client, Message
from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import COMMAND, Commands, records, run_command
from tidelog_testing.servers.ports import free_port
from tidelog_testing.servers.processes import ServerProcess, lasting_port

FAST = ("--watch", "--watch-interval", "0.1")
_SCREEN, _NO_SCREEN, _CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"


class Terminal:
    """A command on a pseudo-terminal.

    Attributes:
        process: The process.
        shown: What the terminal got so far.
    """

    def __init__(self, endpoint: str, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, 160))
        self.shown = b""
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave,
            env=child_environment() | {"TIDELOG_ENDPOINT": endpoint, "TERM": "xterm", "COLUMNS": "160"},
        )  # fmt: skip
        os.close(slave)

    def shows(self, pattern: bytes) -> None:
        """Wait until the terminal shows what matches, after what was waited for before."""
        begin = len(self.shown)
        while not re.search(pattern, self.shown[begin:]):
            self.shown += os.read(self._master, 1 << 16)

    def interrupted(self) -> int:
        """Return the exit code after Ctrl-C, with all that the terminal got."""
        self.process.send_signal(signal.SIGINT)
        # The other side of a terminal without processes reports an error.
        with suppress(OSError):
            while part := os.read(self._master, 1 << 16):
                self.shown += part
        return self.process.wait(240)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        os.close(self._master)


@contextmanager
def on_terminal(endpoint: str, *arguments: str) -> Iterator[Terminal]:
    terminal = Terminal(endpoint, *arguments)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.mark.extended
def test_a_terminal_is_redrawn_also_after_the_server_was_away(tmp_path: Path) -> None:
    port = lasting_port()
    with ServerProcess(tmp_path / "data", port) as server:
        with Client(server.grpc) as client:
            client.create_channel("orders")
            client.append("orders", b"a")
            with on_terminal(server.grpc, "channel", "ls", *FAST, "--timeout", "3") as terminal:
                terminal.shows(rb"every 0\.1 s")
                terminal.shows(rb"orders +1 +1 ")
                client.append("orders", b"b")
                terminal.shows(rb"orders +1 +2 ")
                server.kill()
                terminal.shows(rb"(timed out after|no connection to)")
                terminal.shows(rb"orders +1 +2 ")
                with ServerProcess(tmp_path / "data", port) as again, Client(again.grpc) as later:
                    later.append("orders", b"c")
                    terminal.shows(rb"orders +1 +3 ")
                    assert terminal.interrupted() == ExitCode.OK
    assert _SCREEN in terminal.shown
    assert terminal.shown.rindex(_NO_SCREEN) > terminal.shown.rindex(b"orders")
    assert terminal.shown.rindex(_CURSOR) > terminal.shown.rindex(b"orders")
    assert b"Traceback" not in terminal.shown


def test_top_is_redrawn_until_it_is_interrupted(endpoint: str) -> None:
    with on_terminal(endpoint, "top", "--interval", "0.1") as terminal:
        terminal.shows(rb"appended messages per s")
        terminal.shows(rb"appended messages per s")
        assert terminal.interrupted() == ExitCode.OK
    assert terminal.shown.rindex(_NO_SCREEN) > terminal.shown.rindex(b"appended")


def looks_in_a_pipe(arguments: Sequence[str], line_count: int) -> list[bytes]:
    """Return what two looks print, each of a number of lines, of a command that Ctrl-C then ends."""
    process = subprocess.Popen(
        [*COMMAND, *arguments, *FAST], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=child_environment()
    )
    assert process.stdout is not None
    try:
        looks = [b"".join(process.stdout.readline() for _ in range(line_count)) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=240)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, stderr) == (ExitCode.OK, b"")
    return looks


@pytest.fixture(scope="module")
def broadcast_id(endpoint: str) -> str:
    """Return the id of a broadcast; the server then has something of each kind."""
    with Client(endpoint) as client:
        client.create_channel("watched")
        client.create_group("watchers", "watched")
        client.mailboxes.create("jobs")
        return str(client.broadcast(["watched"], Message(b"all")).broadcast_id)


@pytest.mark.parametrize(
    "command",
    [
        "channel ls watched", "channel describe watched", "group ls", "group describe watchers", "mailbox ls",
        "mailbox describe jobs", "broadcast ls", "broadcast status {}",
    ],
)  # fmt: skip
def test_a_pipe_gets_json_lines_with_the_time_of_each_interval(command: str, endpoint: str, broadcast_id: str) -> None:
    arguments = command.format(broadcast_id).split()
    [once] = records(Commands().succeeds(endpoint, *arguments))
    [first, second] = records(b"".join(looks_in_a_pipe([*arguments, "--endpoint", endpoint], 1)))
    assert first["time"] < second["time"]
    assert list(first) == ["time", *once]
    assert "time" not in once


@pytest.mark.parametrize("form", ["yaml", "name", "wide"])
def test_a_pipe_gets_the_formats_of_each_look(form: str, endpoint: str, broadcast_id: str) -> None:
    once = Commands().succeeds(endpoint, "group", "ls", "watchers", "-o", form)
    # In YAML a look has two lines more, the begin of the document and the time, and a table one, the time.
    line_count = len(once.splitlines()) + {"yaml": 2, "wide": 1}.get(form, 0)
    looks = looks_in_a_pipe(["group", "ls", "watchers", "-o", form, "--endpoint", endpoint], line_count)
    if form == "yaml":
        [[first], [second]] = yaml.safe_load_all(b"".join(looks))
        assert first.pop("time") < second.pop("time")
        assert [first] == [second] == yaml.safe_load(once)
    elif form == "wide":
        assert [look.partition(b"\n")[2] for look in looks] == [once, once]
        assert looks[0] < looks[1]
    else:
        assert looks == [once, once]


def test_a_wide_table_is_redrawn_with_its_empty_columns(endpoint: str, broadcast_id: str) -> None:
    with on_terminal(endpoint, "channel", "ls", "watched", "-o", "wide", *FAST) as terminal:
        # No channel has stopped: the table omits this column.
        terminal.shows(rb"stopped by")
        terminal.shows(rb"stopped by")
        assert terminal.interrupted() == ExitCode.OK
    assert _SCREEN in terminal.shown


def test_a_first_look_that_fails_ends_the_command_and_so_does_a_refusal(endpoint: str) -> None:
    away = {"TIDELOG_ENDPOINT": f"127.0.0.1:{free_port()}", "TERM": "xterm"}
    done = run_command(["channel", "ls", *FAST, "--timeout", "1"], environment=away, stdout="terminal")
    assert done.returncode in (ExitCode.TIMEOUT, ExitCode.UNAVAILABLE)
    assert _SCREEN not in done.stdout
    with Client(endpoint) as client:
        client.create_channel("short-lived")
        with on_terminal(endpoint, "channel", "describe", "short-lived", *FAST) as terminal:
            terminal.shows(rb"short-lived/0")
            client.destroy_channels(["short-lived"])
            terminal.shows(rb"tidelog: [^\n]*short-lived")
            assert terminal.process.wait(240) == ExitCode.NOT_FOUND
    for interval in ("0", "0.09", "86401", "nan"):
        Commands().refused(endpoint, ExitCode.USAGE, "channel", "ls", "--watch", "--watch-interval", interval)
