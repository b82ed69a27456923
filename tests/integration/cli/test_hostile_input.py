"""Input that is not what was announced ends a command with one sentence that names the line, and code 2.

Method: commands that read lines of JSON, text or lock ids, with a valid first line and a second one that is not.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog import Client
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.processes import ServerProcess

SECOND_LINES = {
    "not UTF-8": b'{"payload": "\xff"}',
    "UTF-16": '{"payload": "x"}'.encode("utf-16"),
    "half a character": b'{"payload": "\\ud800", "body": "\\ud800", "name": "\\ud800", "lock_id": "\\ud800"}',
    "half a character in a name": b'{"\\udfff": 1}',
    "nested": b"{" + b'"a":{' * 100_000,
    "array": b"[1]",
    "number": b"1",
    "null": b"null",
    "not a number": b'{"payload": NaN, "body": NaN, "name": NaN, "revision": NaN}',
    "many digits": b'{"type": ' + b"9" * 5_000 + b"}",
    "beyond 64 bits": b'{"payload": "x", "type": 18446744073709551616, "revision": 1e400}',
    "truncated": b'{"payload": "x',
    "NUL": b"\x00",
    "unknown field": b'{"payload": "x", "body": "x", "no": 1}',
    "empty object": b"{}",
    "not Base64": b'{"payload_base64": "!", "body_base64": "!"}',
    "wrong types": b'{"payload": 1, "body": 1, "name": [], "labels": 1, "lock_id": 1, "revision": "x"}',
    "text": b"plain text",
}
COMMANDS = {
    "append": (["append", "orders", "--framing", "jsonl"], b'{"payload": "a"}'),
    "mailbox send": (["mailbox", "send", "jobs", "--framing", "jsonl"], b'{"body": "a"}'),
    "mailbox ack": (["mailbox", "ack", "jobs", "-"], b"00" * 20),
    "journal apply": (["journal", "apply", "--specs"], b'{"name": "a/b"}'),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("input") / "log") as process, Client(process.grpc) as client:
        client.create_channel("orders")
        client.mailboxes.create("jobs")
        yield process


@pytest.mark.parametrize("second", SECOND_LINES.values(), ids=list(SECOND_LINES))
@pytest.mark.parametrize("name", COMMANDS)
def test_a_line_that_is_not_what_was_announced_is_named(
    server: ServerProcess, name: str, second: bytes, tmp_path: Path
) -> None:
    arguments, first = COMMANDS[name]
    content = first + b"\n" + second + b"\n"
    if name == "journal apply":
        # This one reads a file only.
        (tmp_path / "specs").write_bytes(content)
        arguments = [*arguments, str(tmp_path / "specs")]
    done = run_command(arguments, stdin=content, environment={"TIDELOG_ENDPOINT": server.grpc})

    told = done.stderr.decode().splitlines()
    assert (done.returncode, len(told), b"line 2" in done.stderr) == (2, 1, True), (done.returncode, told)


@pytest.mark.parametrize("content", [b"\xff\n", b"\x00" * 10, b"a\r\nb\n", b"", "größe\u2028x\n".encode()])
@pytest.mark.parametrize("framing", ["lines", "none"])
def test_lines_and_whole_inputs_are_bytes(server: ServerProcess, framing: str, content: bytes) -> None:
    arguments = ["append", "orders", "--framing", framing]
    assert run_command(arguments, stdin=content, environment={"TIDELOG_ENDPOINT": server.grpc}).returncode == 0


def test_a_folder_as_input_is_one_sentence(server: ServerProcess) -> None:
    for path in ("/", "/etc"):
        arguments = ["append", "orders", "-i", path, "--endpoint", server.grpc]
        done = run_command(arguments)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
        assert f"cannot read {path}: it is a folder".encode() in done.stderr
