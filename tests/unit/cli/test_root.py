"""Goal: each command is found, and a command imports the module that has it, and no other.

Method: the tree of commands in this process, and one command in a process of its own.
"""

import subprocess
import sys
from importlib import metadata

import pytest

import tidelog
from tidelog_cli.child_environment import child_environment
from tidelog_cli.root import Commands
from tidelog_testing.servers.commands import COMMAND

ORDER = [
    "serve", "channel", "append", "scan", "tail", "txn", "broadcast", "group", "journal", "mailbox", "cluster", "ctx",
    "token", "audit", "backup", "engine", "pipeline", "check", "top", "bench", "doctor", "debug", "config",
    "cheat", "completion", "version",
]  # fmt: skip
PROGRAM = """
import sys
from tidelog_cli.root import _MODULES, Commands
Commands()["channel"]
print(*set(_MODULES.values()).intersection(sys.modules))
"""


def test_every_command_is_there_in_the_order_of_the_help() -> None:
    commands = Commands()
    assert list(commands) == ORDER
    assert len(commands) == len(ORDER)
    assert {name: command.name for name, command in commands.items()} == {name: name for name in ORDER}


@pytest.mark.parametrize("path", [(), ("group",), ("group", "ls"), ("check",), ("serve",)], ids=" ".join)
def test_help_is_a_command_too(path: tuple[str, ...]) -> None:
    asked, help_ = _run("help", *path), _run(*path, "--help")
    assert asked.stdout == help_.stdout != ""
    assert (asked.returncode, asked.stderr) == (0, "")


def test_the_version_is_that_of_the_package() -> None:
    assert _run("--version").stdout == f"tidelog {tidelog.__version__}\n"
    assert tidelog.__version__ == metadata.version("tidelog")


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *arguments], env=child_environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def test_an_unknown_command_is_none() -> None:
    assert Commands().get("channels") is None
    with pytest.raises(KeyError):
        Commands()["channels"]


def test_a_command_imports_its_own_module() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=child_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["tidelog_cli.commands.channels"]
