"""Goal: each command is found, and a command imports the module that has it, and no other.

Method: the tree of commands in this process, and one command in a process of its own.
"""

import subprocess
import sys

import pytest

from tidelog_cli.child_environment import child_environment
from tidelog_cli.root import Commands

ORDER = [
    "serve", "channel", "append", "scan", "tail", "txn", "broadcast", "group", "journal", "mailbox", "cluster", "token",
    "audit", "backup", "pipeline", "check", "top", "bench", "doctor", "config", "version",
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


def test_an_unknown_command_is_none() -> None:
    assert Commands().get("channels") is None
    with pytest.raises(KeyError):
        Commands()["channels"]


def test_a_command_imports_its_own_module() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=child_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["tidelog_cli.commands.channels"]
