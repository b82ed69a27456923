"""``tidelog completion``: the printed script completes commands and the names that the server has, and never complains.

Method: a real server, and the script sourced in a real bash, which calls its function as bash does at Tab, with
COMP_WORDS and COMP_CWORD.
"""

import os
import shlex
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tidelog import Client
from tidelog_cli.child_environment import child_environment
from tidelog_testing.servers.commands import COMMAND, Commands

succeeds = Commands().succeeds


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a program ``tidelog`` and the script that it printed for bash."""
    folder = tmp_path_factory.mktemp("completion")
    program = folder / "tidelog"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    (folder / "script").write_bytes(
        subprocess.run([program, "completion", "bash"], env=child_environment(), capture_output=True, check=True).stdout
    )
    return folder


def completed(bash: Path, line: str, **environment: str) -> list[str]:
    """Return what Tab offers at the end of ``line`` (asserted: the shell shows nothing else)."""
    words = " ".join(map(shlex.quote, line.split(" ")))
    program = f"""
        source "$1/script"
        COMP_WORDS=({words}); COMP_CWORD=$(({len(line.split(" "))} - 1))
        $(complete -p tidelog | sed 's/.*-F \\([^ ]*\\) .*/\\1/') "$1/tidelog"
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", program, "bash", str(bash)],
        env=child_environment() | environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def offers(bash: Path, line: str, found: list[str], **environment: str) -> bool:
    """Return whether Tab offers ``found``; asks again, because a busy machine may take longer than the second."""
    return any(completed(bash, line, **environment) == found for _ in range(3))


@pytest.fixture(scope="module")
def names(endpoint: str) -> str:
    with Client(endpoint) as client:
        client.create_channel("orders-eu", vchannels=2)
        client.create_channel("orders-us")
        client.create_channel("payments")
        client.create_group("billing", "orders-eu")
        client.create_group("books", "payments")
        client.mailboxes.create("jobs/mail")
    return endpoint


def test_commands_and_options_are_completed(bash: Path) -> None:
    assert completed(bash, "tidelog comp") == ["completion"]
    assert completed(bash, "tidelog channel desc") == ["describe"]
    assert completed(bash, "tidelog completion f") == ["fish"]
    assert "yaml" in completed(bash, "tidelog channel ls -o ")


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tidelog channel describe orders", ["orders-eu", "orders-us"]),
        ("tidelog channel rm pay", ["payments"]),
        ("tidelog channel describe payments or", ["orders-eu", "orders-us"]),
        ("tidelog cluster where pay", ["payments"]),
        ("tidelog scan orders-eu/", ["orders-eu/0", "orders-eu/1"]),
        ("tidelog scan pay", ["payments"]),
        ("tidelog tail -f pay", ["payments"]),
        ("tidelog append orders-u", ["orders-us"]),
        ("tidelog broadcast send orders-eu/1", ["orders-eu/1"]),
        ("tidelog group describe b", ["billing", "books"]),
        ("tidelog group seek bi", ["billing"]),
        ("tidelog group peek bi", ["billing"]),
        ("tidelog group export bo", ["books"]),
        ("tidelog group import bo", ["books"]),
        ("tidelog group ls bo", ["books"]),
        ("tidelog group seek billing -v orders-eu/", ["orders-eu/0", "orders-eu/1"]),
        ("tidelog group ls --channel pay", ["payments"]),
        ("tidelog group create new pay", ["payments"]),
        ("tidelog mailbox describe jo", ["jobs/mail"]),
        ("tidelog mailbox peek jobs/", ["jobs/mail"]),
        ("tidelog mailbox redrive jobs/mail --to jo", ["jobs/mail"]),
        ("tidelog channel describe absent", []),
    ],
)
def test_names_come_from_the_server(bash: Path, names: str, line: str, found: list[str]) -> None:
    assert offers(bash, line, found, TIDELOG_ENDPOINT=names)


def test_the_server_is_that_of_the_line_and_of_the_selected_context(bash: Path, names: str, tmp_path: Path) -> None:
    assert offers(bash, f"tidelog --endpoint {names} scan pay", ["payments"])
    assert offers(bash, f"tidelog scan --endpoint {names} pay", ["payments"])

    home = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    subprocess.run([bash / "tidelog", "ctx", "add", "here", names], env=child_environment() | home, check=True)
    assert offers(bash, "tidelog --ctx here scan pay", ["payments"], **home)
    subprocess.run([bash / "tidelog", "ctx", "use", "here"], env=child_environment() | home, check=True)
    assert offers(bash, "tidelog scan pay", ["payments"], **home)


@pytest.mark.parametrize(
    "environment",
    [
        {"TIDELOG_ENDPOINT": "127.0.0.1:1"},
        {"TIDELOG_ENDPOINT": "no address"},
        {"TIDELOG_CONTEXT": "absent"},
        {"TIDELOG_TOKEN_FILE": "/absent"},
    ],
    ids=str,
)
def test_a_failure_completes_nothing_and_prints_nothing(bash: Path, environment: dict[str, str]) -> None:
    assert completed(bash, "tidelog group describe ", **environment) == []


def test_a_server_that_does_not_answer_costs_a_second(bash: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        # Without the limit, the command's own timeout of 30 s would pass, and this test would see its error.
        assert completed(bash, "tidelog scan ", TIDELOG_ENDPOINT=f"127.0.0.1:{silent.getsockname()[1]}") == []


@pytest.mark.parametrize(("shell", "part"), [("zsh", "#compdef tidelog"), ("fish", "complete --command tidelog")])
def test_each_shell_has_its_script(endpoint: str, shell: str, part: str, tmp_path: Path) -> None:
    script = succeeds(endpoint, "completion", shell).decode()

    assert script.startswith(part)
    assert "_TIDELOG_COMPLETE=complete_" + shell in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        subprocess.run([shell, "-n", tmp_path / "script"], env=dict(os.environ), check=True)
