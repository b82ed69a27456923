"""The command line where the package of the server is not installed, as after `pip install '.[cli]'`.

Method: each command in a separate process in which `tidelog_server` and the packages of the extra `server` cannot be
imported, against a server in a process that has them.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import CheckCode, ExitCode

ABSENT: Final = (
    "aetcd", "aiohttp", "cryptography", "grpc_health", "grpc_reflection", "jwt", "numpy", "psutil", "rocksdict",
    "structlog", "tidelog_server",
)  # fmt: skip
PROGRAM: Final = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {ABSENT!r}:
            raise ModuleNotFoundError("No module named " + name, name=name)
sys.meta_path.insert(0, Absent())
from tidelog_cli import main
main(sys.argv[1:])
"""


def tidelog(*arguments: str, stdin: str = "", endpoint: str = "") -> subprocess.CompletedProcess[str]:
    environment = child_environment() | ({"TIDELOG_ENDPOINT": endpoint} if endpoint else {})
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], input=stdin, capture_output=True, text=True, env=environment,
        check=False,
    )  # fmt: skip


def test_messages_are_appended_and_read(endpoint: str) -> None:
    steps = (
        (("channel", "create", "sensors"), ""),
        (("append", "sensors/0"), "first\nsecond\n"),
        (("group", "create", "alarms", "sensors"), ""),
        (("check", "append"), ""),
    )
    for arguments, stdin in steps:
        done = tidelog(*arguments, stdin=stdin, endpoint=endpoint)
        assert done.returncode == 0, done.stderr
    scanned = tidelog("scan", "sensors", endpoint=endpoint)

    assert [json.loads(line)["payload"] for line in scanned.stdout.splitlines()] == ["first", "second"]


def test_the_help_has_the_commands_of_clients_only() -> None:
    done = tidelog("--help")

    first_words = {words[1] for line in done.stdout.splitlines() if len(words := line.split()) > 1}
    assert done.returncode == 0, done.stderr
    assert {"append", "scan", "channel", "group", "check", "cheat", "top"} <= first_words
    assert first_words.isdisjoint({"serve", "backup", "bench", "config", "debug", "doctor"})


def test_a_command_of_the_server_names_the_extra_that_installs_it() -> None:
    commands = ["serve", "backup", "bench", "config", "debug", "doctor"]
    calls = [f"try: main([{each!r}])\nexcept SystemExit as end: print(end.code)" for each in commands]
    program = "\n".join([PROGRAM.removesuffix("main(sys.argv[1:])\n"), *calls])
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=child_environment(), check=False)

    assert done.stdout.split() == [str(int(ExitCode.FAILURE))] * len(commands)
    hint = "run `pip install '.[server]'` in a clone of Tidelog"
    assert done.stderr == f"tidelog: this command needs tidelog_server: {hint}\n" * len(commands)


def test_the_check_of_backups_is_unknown(tmp_path: Path) -> None:
    done = tidelog("check", "backup", str(tmp_path))

    assert done.returncode == CheckCode.UNKNOWN
    assert "run `pip install '.[server]'` in a clone of Tidelog" in done.stdout
