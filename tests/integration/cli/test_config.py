"""``tidelog config``: the schema that editors read, and a file that is named without an option.

Method: the commands in processes of their own.
"""

import json
from pathlib import Path

import pytest

from tidelog_cli.exit_codes import ExitCode
from tidelog_server.config import settings_schema
from tidelog_testing.servers.commands import run_command


def test_the_schema_is_printed() -> None:
    done = run_command(["config", "schema"])
    assert (done.returncode, done.stderr) == (ExitCode.OK, b"")
    assert json.loads(done.stdout) == settings_schema()


@pytest.mark.parametrize("given", [["FILE"], ["FILE", "--server.grpc_port", "9"], ["--server.grpc_port", "9", "FILE"]])
def test_a_file_is_validated_by_its_name(given: list[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    arguments = ["config", "validate", *(str(path) if each == "FILE" else each for each in given)]
    path.write_text('[log]\nlevel = "loud"\n')
    refused = run_command(arguments)
    assert refused.returncode == ExitCode.BAD_CONFIG
    assert f"log.level = 'loud' ({path}:2) is not allowed" in refused.stderr.decode()
    path.write_text('[log]\nlevel = "debug"\n')
    valid = run_command(arguments, environment={"TIDELOG_CONFIG": str(tmp_path / "absent.toml")})
    assert valid.returncode == ExitCode.OK, valid.stderr
    assert f"the configuration is valid: {len(given) // 2 + 1} of" in valid.stderr.decode()


def test_two_files_are_a_usage_error(tmp_path: Path) -> None:
    first, second = str(tmp_path / "a.toml"), str(tmp_path / "b.toml")
    for arguments in ([first, second], [first, "--config", second], ["-c", second, first]):
        done = run_command(["config", "validate", *arguments])
        assert done.returncode == ExitCode.USAGE, done.stderr
    missing = run_command(["config", "validate", first])
    assert missing.returncode == ExitCode.BAD_CONFIG
    assert f"cannot read the configuration file {first}" in missing.stderr.decode()
