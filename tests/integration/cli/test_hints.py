"""The command that an error names solves the problem, as it is written.

Method: one real server; a command that fails, the commands between the backticks of its error in a shell, and the first
command again.
"""

import re
import shlex
from pathlib import Path

import pytest

from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import Commands

run = Commands().run


def hints_of(text: str) -> list[list[str]]:
    """Return the arguments of each command of the program that a text names, as a shell divides them."""
    return [shlex.split(command) for command in re.findall(r"`tidelog ([^`]+)`", text)]


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (("scan", "sensors"), ExitCode.NOT_FOUND, ["channel", "create", "sensors"]),
        (("scan", "gauges/0"), ExitCode.NOT_FOUND, ["channel", "create", "gauges"]),
        (("group", "describe", "billing"), ExitCode.NOT_FOUND, ["group", "create", "billing"]),
        (("mailbox", "peek", "two words"), ExitCode.NOT_FOUND, ["mailbox", "create", "two words"]),
        (("mailbox", "peek", "--", "-x"), ExitCode.NOT_FOUND, ["mailbox", "create", "--", "-x"]),
        (("mailbox", "peek", "it's $(false)"), ExitCode.NOT_FOUND, ["mailbox", "create", "it's $(false)"]),
        (("journal", "rm", "--yes", "no/journal"), ExitCode.NOT_FOUND, ["journal", "ls"]),
    ],
)  # fmt: skip
def test_an_absent_name_is_reported_with_the_command_that_helps(
    endpoint: str, arguments: tuple[str, ...], code: ExitCode, hint: list[str]
) -> None:
    refused = run(endpoint, *arguments)
    assert refused.returncode == code, refused.stderr
    assert hints_of(refused.stderr.decode()) == [hint]

    assert run(endpoint, *hint).returncode == ExitCode.OK
    if "create" in hint:
        assert run(endpoint, *arguments).returncode == ExitCode.OK


def test_a_system_channel_is_not_one_to_create(endpoint: str) -> None:
    refused = run(endpoint, "scan", "_journal.7")
    assert refused.returncode == ExitCode.NOT_FOUND
    assert refused.stderr.decode() == "tidelog: channel '_journal.7' does not exist: correct the name\n"


def test_a_fencing_token_that_is_not_set_is_reported_with_the_command_that_sets_it(
    endpoint: str, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    path.write_text("one\n")
    append = ("append", "fenced", "--fencing-token", "7", "-i", str(path))
    assert run(endpoint, "channel", "create", "fenced").returncode == ExitCode.OK

    refused = run(endpoint, *append)

    assert refused.returncode == ExitCode.CONFLICT, refused.stderr
    assert hints_of(refused.stderr.decode()) == [["channel", "fence", "fenced/0", "7"]]
    assert run(endpoint, *hints_of(refused.stderr.decode())[0]).returncode == ExitCode.OK
    assert run(endpoint, *append).returncode == ExitCode.OK
