"""``tidelog ctx`` and ``--ctx``. Method: a server in memory, commands in processes of their own, and clients."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tidelog import Client
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.ports import free_port


class Shell:
    """Runs commands with a folder of contexts of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *arguments: str, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command."""
        environment = {"TIDELOG_CONFIG_HOME": str(self.folder), **variables}
        done = run_command(arguments, stdin=given.encode(), environment=environment)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    def records(self, *arguments: str, **variables: str) -> list[dict[str, object]]:
        """Return what a command prints."""
        done = self.run(*arguments, "-o", "jsonl", **variables)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "config")


def test_a_context_is_added_selected_shown_and_removed(shell: Shell, endpoint: str) -> None:
    away = f"127.0.0.1:{free_port()}"
    assert shell.run("ctx", "add", "here", endpoint).returncode == 0
    assert shell.run("ctx", "add", "away", away, "--use").returncode == 0
    assert shell.run("channel", "ls").returncode == ExitCode.UNAVAILABLE
    assert shell.run("--ctx", "here", "channel", "ls").returncode == 0
    assert shell.run("channel", "ls", TIDELOG_CONTEXT="here").returncode == 0
    assert shell.run("channel", "ls", "--endpoint", endpoint).returncode == 0
    assert shell.run("channel", "ls", TIDELOG_ENDPOINT=endpoint).returncode == 0
    assert shell.run("--ctx", "here", "channel", "ls", TIDELOG_ENDPOINT=away).returncode == 0
    assert shell.run("ctx", "use", "here").returncode == 0
    assert shell.run("channel", "ls").returncode == 0
    assert shell.run("ctx", "use", "-").stderr == f"selected the context 'away': {away}\n"
    assert shell.run("--ctx", "-", "channel", "ls").returncode == 0
    assert [(each["name"], each["current"]) for each in shell.records("ctx", "ls")] == [("away", True), ("here", False)]
    assert shell.run("ctx", "rm", "away", "absent").returncode == ExitCode.USAGE
    assert len(shell.records("ctx", "ls")) == 2, "removed all or none"
    assert shell.run("ctx", "rm", "away").returncode == 0
    assert shell.run("ctx", "show").stderr.startswith("tidelog: no context is selected")


def test_a_token_is_read_from_stdin_and_never_shown(shell: Shell) -> None:
    assert shell.run("ctx", "add", "prod", "tidelogs://log:1", "--token-stdin", given="s3cret\n").returncode == 0
    [shown] = shell.records("ctx", "show", "prod")
    assert shown["token"] == "********"
    for command in (
        ["ctx", "ls"],
        ["ctx", "show", "prod"],
        ["ctx", "use", "prod"],
        ["channel", "ls", "--timeout", "1"],
    ):
        done = shell.run(*command)
        assert "s3cret" not in done.stdout + done.stderr
    assert json.loads((shell.folder / "contexts.json").read_text())["contexts"]["prod"]["token"] == "s3cret"
    for given in ("", "\n", "two words\x01", "t" * 9_000, "ä"):
        refused = shell.run("ctx", "add", "other", "localhost:1", "--token-stdin", given=given)
        assert refused.returncode == ExitCode.USAGE
        assert "Traceback" not in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["ctx", "add", "prod", "log:1", "--token-stdin"], "unencrypted to log:1"),
        (["ctx", "add", "prod", "log"], "has no port"),
        (["ctx", "add", "a b", "log:1"], "expected 1 to 64 letters"),
        (["ctx", "add", "prod", "log:1", "--tls-ca", "/nowhere/ca.pem"], "/nowhere/ca.pem"),
        (["ctx", "add", "prod", "log:1", "--tls-cert", "/dev/null"], "requires both"),
        (["ctx", "add", "prod", "log:1", "--token-file", "/f", "--token-stdin"], "pass one of them"),
        (["ctx", "use", "absent"], "no context 'absent'"),
        (["ctx", "use", "-"], "no previous context"),
        (["ctx", "show", "absent"], "no context 'absent'"),
        (["--ctx", "absent", "channel", "ls"], "no context 'absent'"),
        (["--ctx", "../x", "channel", "ls"], "expected 1 to 64 letters"),
    ],
)
def test_what_is_wrong_is_one_sentence(shell: Shell, arguments: list[str], reason: str) -> None:
    done = shell.run(*arguments, given="token")
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_two_servers_in_one_command_are_refused(shell: Shell, endpoint: str) -> None:
    shell.run("ctx", "add", "here", endpoint)
    for command in (
        ["--ctx", "here", "--endpoint", "b:1", "channel", "ls"],
        ["--ctx", "here", "channel", "ls", "--endpoint", "b:1"],
    ):
        done = shell.run(*command)
        assert done.returncode == ExitCode.USAGE
        assert "pass one of them" in done.stderr


def test_a_file_that_others_may_read_is_used_by_nobody(shell: Shell, endpoint: str) -> None:
    shell.run("ctx", "add", "here", endpoint, "--use")
    (shell.folder / "contexts.json").chmod(0o644)
    for command in (["channel", "ls"], ["ctx", "ls"], ["ctx", "add", "b", "b:1"]):
        done = shell.run(*command)
        assert done.returncode == ExitCode.USAGE
        assert "chmod 600" in done.stderr
    assert shell.run("channel", "ls", "--endpoint", endpoint).returncode == 0


def test_files_are_named_by_absolute_paths(shell: Shell, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t0ken")
    token.chmod(0o600)
    added = shell.run("ctx", "add", "here", "localhost:1", "--token-file", os.path.relpath(token))
    assert added.returncode == 0, added.stderr
    [shown] = shell.records("ctx", "show", "here")
    assert os.path.isabs(str(shown["token_file"]))
    assert os.path.samefile(str(shown["token_file"]), token)


def test_clients_read_it_too(shell: Shell, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.run("ctx", "add", "here", endpoint, "--use")
    monkeypatch.setenv("TIDELOG_CONFIG_HOME", str(shell.folder))
    monkeypatch.delenv("TIDELOG_ENDPOINT", raising=False)
    with Client.from_context("here") as named, Client() as selected:
        named.ensure_channel("of-a-context")
        assert selected.append("of-a-context", b"x").last_tick > 0
        with named.channel("of-a-context").producer() as producer:
            producer.send(b"y")
        with selected.txn() as txn:
            txn.append("of-a-context", b"z")
        assert [bytes(row.payload) for batch in named.scan("of-a-context") for row in batch] == [b"x", b"y", b"z"]
        with selected.consumer("g", ["of-a-context"]) as consumer:
            assert bytes(next(iter(consumer)).payloads[0]) == b"x"
        assert named.describe_group("g").name == "g"
        named.destroy_channels(["of-a-context"], force=True)


def test_checks_and_doctor_use_it(shell: Shell, endpoint: str) -> None:
    shell.run("ctx", "add", "here", endpoint, "--use")
    done = shell.run("check", "append")
    assert done.stdout.startswith("OK append"), done.stdout + done.stderr
    assert f"{endpoint} is serving" in shell.run("doctor", "-o", "jsonl").stdout
