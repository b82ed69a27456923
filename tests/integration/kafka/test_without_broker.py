"""What is refused before Kafka is asked."""

import subprocess
import sys
from pathlib import Path

from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.processes import refused_start


def test_create_needs_addresses() -> None:
    result = run_command(["engine", "create", "x"])
    assert result.returncode == ExitCode.USAGE
    assert b"engine.servers is not set" in result.stderr


def test_a_server_and_create_name_the_client_that_is_missing() -> None:
    without = "import sys; sys.modules['confluent_kafka'] = None; from tidelog_cli import main; main(sys.argv[1:])"
    flags = ["--engine.servers=127.0.0.1:1", "--engine.topic=x", "--storage.kind=kafka"]
    for arguments, said in (
        (["serve", *flags], "expected confluent-kafka to be installed"),
        (["engine", "create", "x", flags[0]], "confluent-kafka is not installed"),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", without, *arguments], env=child_environment(), capture_output=True, check=False
        )
        assert ran.returncode == ExitCode.BAD_CONFIG
        assert f'{said}: run `pip install ".[kafka]"` in a clone of Tidelog' in ran.stderr.decode()


def test_a_log_in_kafka_needs_metadata_that_lasts(tmp_path: Path) -> None:
    settings = {
        "storage.kind": "kafka",
        "engine.servers": "127.0.0.1:1",
        "engine.topic": "x",
        "metadata.kind": "memory",
    }
    died = refused_start(tmp_path / "store", settings)
    assert died.code == ExitCode.BAD_CONFIG
    assert (
        "expected embedded or etcd, since storage.kind is kafka: the log would outlive metadata in memory"
        in died.errors
    )


def test_options_that_are_not_allowed_are_named(tmp_path: Path) -> None:
    (tmp_path / "options").write_text("acks=1\n")
    settings = {
        "storage.kind": "kafka", "engine.servers": "127.0.0.1:1", "engine.topic": "x",
        "engine.options_file": tmp_path / "options",
    }  # fmt: skip
    died = refused_start(tmp_path / "store", settings)
    assert died.code == ExitCode.BAD_CONFIG
    assert "the option acks may not be set" in died.errors
