"""Every command of the cheat sheet works as copied, and `tidelog cheat` prints the sheet.

Method: all commands in the order of the page, in one shell against a real server; those that run until they are stopped
in processes of their own, until they print their first line.
"""

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.documents.examples import examples_of, run_commands
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.processes import ROOT, ServerProcess

PAGE: Final = (ROOT / "client" / "tidelog_cli" / "cheat.md").read_text()
TOPICS: Final = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
# `run_commands` leaves them out.
LASTING: Final = ("tidelog serve", "tidelog tail -f")


def first_line(command: str, endpoint: str, folder: Path) -> str:
    """Return what a command prints first, and stop it as Ctrl-C does."""
    variables = {"TIDELOG_ENDPOINT": endpoint, "TMPDIR": str(folder), "PATH": f"{folder}:{os.environ['PATH']}"}
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"],
        env=child_environment() | variables, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=240)
        assert process.returncode in (ExitCode.OK, ExitCode.INTERRUPTED), errors
    finally:
        process.kill()
        process.communicate()
    return line


# A minute of processes; the core has the commands of each topic elsewhere.
@pytest.mark.extended
def test_every_command_works(tmp_path: Path) -> None:
    blocks = examples_of(PAGE, "console")
    commands = [line.removeprefix("$ ") for block in blocks for line in block.splitlines()]
    lasting = [line for line in commands if line.startswith(LASTING)]
    assert (len(blocks), len(lasting)) == (len(TOPICS), 4)
    with ServerProcess(tmp_path / "log") as server:
        set_up = f"$ cd {tmp_path}\n$ export TIDELOG_HTTP_ENDPOINT={server.http} TIDELOG_CONFIG_HOME={tmp_path}\n"
        printed = run_commands(set_up + "\n".join(blocks[:-1]), server.grpc, tmp_path)
        for expected in ('"payload": "paid"', "tidelog_check_status", "report.tar.gz"):
            assert expected in printed
        for line in lasting:
            answer = first_line(line, server.grpc, tmp_path)
            assert ('"event": "ready"' if "serve" in line else '"payload"') in answer, line
        run_commands(set_up + blocks[-1], server.grpc, tmp_path)
    assert (tmp_path / "dev-data" / "FORMAT").is_file()
    assert (tmp_path / "restored" / "FORMAT").is_file()


def test_topics_are_printed_as_the_page_has_them() -> None:
    listed = run_command(["cheat"])
    assert [line.split()[0] for line in listed.stdout.decode().splitlines()] == TOPICS
    for topic, block in zip(TOPICS, examples_of(PAGE, "console"), strict=True):
        done = run_command(["cheat", topic])
        assert done.returncode == ExitCode.OK
        about, commands = done.stdout.decode().split("\n", 1)
        assert f"\n{about.removeprefix('# ')}\n" in PAGE
        assert commands == block.replace("$ tidelog", "tidelog").replace("$ printf", "printf").replace(
            "$ echo", "echo"
        ).replace("$ id=", "id=")
    unknown = run_command(["cheat", "brew"])
    assert unknown.returncode == ExitCode.NOT_FOUND
    assert b"expected one of start, produce" in unknown.stderr
