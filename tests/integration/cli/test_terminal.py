"""Output of commands started in a terminal with stdout redirected to a file or a pipe.

Method: a real server, and each command that prints data in a separate process, with stderr on a pseudo-terminal and
stdout in a file, then in a pipe. All data must be on stdout and none on the terminal, and each number in JSON must be
exact as a 64-bit float.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from tidelog import Client, Message
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.processes import ServerProcess

Stdout = Literal["file", "pipe"]
World = Mapping[str, str]

_EXACT: Final = 1 << 53
_MESSAGES: Final = 20_000
# Each prints records; {name} is a value of the fixture. Commands that change something are repeatable.
COMMANDS: Final = (
    "scan {channel}",
    "scan {channel} -o json",
    "tail {channel}",
    "append {other} -i {input}",
    "append {other} -i {input} --txn",
    "top --http {http} --interval 0.1 --count 1",
    "doctor",
    "version",
    "channel create {channel} --vchannels 2 --if-not-exists",
    "channel alter {other} --retention-bytes 1GiB",
    "channel ls",
    "channel describe {channel}",
    "channel trim {other} --before 0 --yes",
    "channel fence {other} 470677138859622401",
    "txn ls",
    "txn describe {txn_id}",
    "broadcast send {channel}/0 {channel}/1 -m x",
    "broadcast status {broadcast_id}",
    "broadcast ls --all",
    "group ls",
    "group describe {group}",
    "group seek {group} --to earliest",
    "mailbox ls",
    "mailbox describe {mailbox}",
    "mailbox send {mailbox} -i {input}",
    "mailbox fetch {mailbox} -n 2",
    "mailbox headers {mailbox}",
    "mailbox peek {mailbox} -o json",
    "mailbox redrive {mailbox}",
    "token create someone -a read:*",
    "token ls",
    "audit ls",
    "audit verify",
    "backup create {backups}",
    "backup ls {backups}",
    "backup verify {backups}",
    "check append --channel {other} --json",
    "config show",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server with authentication that has at least one object of each kind, and the names of those objects."""
    folder = tmp_path_factory.mktemp("terminal")
    with ServerProcess(folder / "data", {"auth.kind": "on"}) as server:
        token = (folder / "data" / "bootstrap-token").read_text().strip()
        with Client(server.grpc, token=token) as client:
            grants = ["admin.read", "admin.write"]
            verbs = (
                "append", "read", "txn", "broadcast", "backup", "channel.create", "channel.truncate",
                "group.consume", "group.manage", "mailbox.send", "mailbox.receive", "mailbox.read", "mailbox.manage",
            )  # fmt: skip
            token = client.create_token("all", [*grants, *(f"{verb}:*" for verb in verbs)]).token
        with Client(server.grpc, token=token) as client:
            world = {
                **_filled(client, folder),
                "TIDELOG_ENDPOINT": server.grpc, "TIDELOG_TOKEN": token, "http": server.http,
            }  # fmt: skip
            started(world, "backup create {backups}", "file")
            yield world


def _filled(client: Client, folder: Path) -> World:
    client.create_channel("orders", vchannels=2)
    client.create_channel("others")
    client.create_channel("numbers")
    with client.producer("numbers") as producer:
        producer.send_many([Message(b"%d" % number, key=b"k") for number in range(_MESSAGES)])
    sent = client.broadcast(["orders/0", "orders/1"], Message(b"all"))
    # Too large for one request, so it is staged on the server while it is open.
    txn = client.txn(keepalive_s=600)
    txn.append("others/0", [bytes(1_000)] * 2_000)
    [begun] = client.list_txns()
    group = client.create_group("readers", "orders")
    client.mailboxes.create("jobs")
    client.mailbox("jobs").send_many([b"job"] * 100)
    (folder / "input").write_bytes(b"a\nb\n")
    return {
        "channel": "orders", "other": "others", "group": group.name, "mailbox": "jobs", "input": str(folder / "input"),
        "broadcast_id": str(sent.broadcast_id), "txn_id": str(begun.txn_id), "backups": str(folder / "backups"),
    }  # fmt: skip


def started(world: World, command: str, stdout: Stdout) -> tuple[bytes, str]:
    """Run a command with stderr on a terminal; return its stdout and the terminal's contents."""
    variables = {name: value for name, value in world.items() if name.startswith("TIDELOG_")}
    arguments = [word.format(**world) for word in command.split()]
    done = run_command(arguments, environment=variables, stdout=stdout, stderr="terminal")
    assert done.returncode == ExitCode.OK, done.stderr.decode()
    return done.stdout, done.stderr.decode()


def values_of(text: bytes) -> list[Any]:
    """Return the values of JSON lines, or of one JSON text."""
    try:
        return [json.loads(line) for line in text.splitlines()]
    except ValueError:
        return [json.loads(text)]


def inexact(value: Any, where: str = "") -> list[str]:
    """Return the paths in ``value`` of numbers that a 64-bit float cannot hold exactly."""
    if isinstance(value, dict):
        return [found for name, part in value.items() for found in inexact(part, f"{where}.{name}")]
    if isinstance(value, list):
        return [found for part in value for found in inexact(part, f"{where}[]")]
    return [where] if isinstance(value, int) and abs(value) > _EXACT else []


@pytest.mark.parametrize("stdout", ["file", "pipe"])
@pytest.mark.parametrize("command", COMMANDS)
def test_data_goes_to_stdout_whole_and_its_numbers_are_exact(command: str, stdout: Stdout, world: World) -> None:
    printed, shown = started(world, command, stdout)

    values = values_of(printed)
    assert values
    assert inexact(values) == []
    # The terminal shows no data: no object, no row.
    assert "{" not in shown


def test_a_scan_into_a_file_draws_its_progress_on_the_terminal(world: World) -> None:
    printed, shown = started(world, "scan numbers", "file")

    assert [row["payload"] for row in values_of(printed)] == [str(number) for number in range(_MESSAGES)]
    assert re.search(r"scanning [\d,]+ messages", shown)


def test_a_scan_into_a_pipe_draws_nothing_between_the_rows_of_its_reader(world: World) -> None:
    printed, shown = started(world, "scan numbers", "pipe")

    assert len(values_of(printed)) == _MESSAGES
    assert shown == ""


@pytest.mark.parametrize(
    "command", ["append {other} -i {large}", "append {other} -i {large} --txn", "mailbox send {mailbox} -i {large}"]
)
def test_an_append_of_a_file_draws_its_size_the_rate_and_the_time_left(
    command: str, world: World, tmp_path: Path
) -> None:
    # Several chunks, as a rate is that between two.
    large = tmp_path / "large"
    large.write_bytes((b"x" * 999 + b"\n") * 2_000)

    _, shown = started({**world, "large": str(large)}, command, "file")

    assert re.search(r"2,000 messages .*2\.0/2\.0 MB.*\d \w?B/s.*\d:\d\d:\d\d", shown), shown


def test_an_append_of_a_pipe_draws_what_was_sent(world: World, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(pipe.write_bytes, b"a\nb\n")
        _, shown = started({**world, "pipe": str(pipe)}, "append {other} -i {pipe}", "file")
        written.result()

    assert re.search(r"appending 2 messages, 0.0 MB", shown), shown


def test_ids_are_texts_that_the_commands_take_again(world: World) -> None:
    [sent] = values_of(started(world, "broadcast send {channel}/0 {channel}/1 -m again", "file")[0])
    [status] = values_of(
        started({**world, "broadcast_id": sent["broadcast_id"]}, "broadcast status {broadcast_id}", "file")[0]
    )
    [row] = values_of(started({**world, "tick": sent["tick"]}, "scan {channel}/1 --from {tick}", "file")[0])

    assert status["tick"] == sent["tick"] == row["tick"]
    assert row["broadcast_id"] == status["broadcast_id"] == sent["broadcast_id"]
    assert isinstance(sent["tick"], str)
