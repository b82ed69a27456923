"""``tidelog serve``: the ready line, signals, and refusals with their exit codes.

Method: real processes on free ports and temporary folders.
"""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from tidelog_cli.exit_codes import ExitCode

FREE_PORTS = ["--server.grpc_port", "0", "--server.http_port", "0", "--limits.min_free_disk_bytes", "0"]


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
    return kept | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Yield a ready server and its ready line; kill the server at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog_server", *FREE_PORTS, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def refused(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tidelog_server", *arguments],
        capture_output=True, text=True, env=environment(**variables), timeout=240, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_gracefully(number: signal.Signals, tmp_path: Path) -> None:
    with serving("--storage.data_dir", str(tmp_path / "log")) as (process, ready):
        assert ready["event"] == "ready"
        assert ready["pid"] == process.pid
        host, _, port = ready["grpc"].rpartition(":")
        socket.create_connection((host, int(port))).close()

        process.send_signal(number)

        assert process.wait(240) == ExitCode.OK


def test_a_start_on_damaged_data_names_the_command_that_restores_a_backup(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with serving("--storage.data_dir", str(folder)) as (process, _):
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == ExitCode.OK
    (folder / "HEAD").unlink()

    ended = refused(*FREE_PORTS, "--storage.data_dir", str(folder))

    assert ended.returncode == ExitCode.DATA_LOSS
    problem, advice = ended.stderr.splitlines()[-2:]
    assert problem.startswith("tidelog: HEAD is missing")
    assert advice.startswith("tidelog: `tidelog backup restore` restores a data folder from a backup")


@pytest.mark.parametrize("log_level", ["info", "error"])
def test_a_person_at_a_terminal_reads_once_that_the_server_is_ready(log_level: str) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog_server", *FREE_PORTS, "--storage.kind", "memory", "--log.level", log_level],
        env=environment(), stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    try:
        told = b""
        while b"Press Ctrl-C to stop" not in told:
            told += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == ExitCode.OK
    finally:
        process.kill()
        os.close(ours)
    assert told.count(b"ready") == 1, told
    assert told.count(b"127.0.0.1:") == 2, told


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    flags = ["--storage.data_dir", str(tmp_path / "log")]
    with serving(*flags) as (process, _):
        second = refused(*FREE_PORTS, *flags)

        assert second.returncode == ExitCode.DATA_DIR_IN_USE
        assert f"in use by process {process.pid}" in second.stderr
        assert len(second.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["grpc", "http"])
def test_a_port_in_use_is_refused(name: str, tmp_path: Path) -> None:
    with serving("--storage.kind", "memory") as (_, ready):
        port = ready[name].rpartition(":")[2]
        flags = ["--storage.data_dir", str(tmp_path / "log"), f"--server.{name}_port", port]
        other = "http" if name == "grpc" else "grpc"

        second = refused(*flags, f"--server.{other}_port", "0")

        assert second.returncode == ExitCode.ADDRESS_UNUSABLE
        assert "--server.grpc_port" in second.stderr
        assert not (tmp_path / "log").exists()


def test_an_address_of_another_machine_is_refused() -> None:
    flags = ["--storage.kind", "memory", "--server.insecure", "true", "--server.host", "192.0.2.1"]

    assert refused(*FREE_PORTS, *flags).returncode in (ExitCode.ADDRESS_UNUSABLE,)


def test_a_file_where_the_data_folder_should_be_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a folder")

    answer = refused(*FREE_PORTS, "--storage.data_dir", str(path))

    assert answer.returncode == ExitCode.DATA_DIR_UNUSABLE
    assert str(path) in answer.stderr


def test_a_folder_of_an_unknown_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "FORMAT").write_text("tidelog data format 99\n")

    answer = refused(*FREE_PORTS, "--storage.data_dir", str(tmp_path))

    assert answer.returncode == ExitCode.DATA_DIR_UNUSABLE
    assert "tidelog data format 99" in answer.stderr


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        (["--storage.durabilty", "os"], {}, "did you mean '--storage.durability'?"),
        ([], {"TIDELOG_SERVER__PORT": "1"}, "unknown setting 'TIDELOG_SERVER__PORT'"),
        (["--storage.durability", "sink"], {}, "expected 'sync' or 'os'"),
        (["--server.host", "0.0.0.0"], {}, "server.insecure = true"),
    ],
)
def test_a_bad_configuration_is_refused_in_one_line(
    arguments: list[str], variables: dict[str, str], expected: str
) -> None:
    answer = refused(*arguments, **variables)

    assert answer.returncode == ExitCode.BAD_CONFIG
    assert expected in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert answer.stdout == ""


def test_a_stray_argument_is_a_usage_error() -> None:
    assert refused("now").returncode == ExitCode.USAGE


def test_sighup_reads_the_configuration_again(tmp_path: Path) -> None:
    path = tmp_path / "tidelog.toml"
    path.write_text('[log]\nlevel = "warning"\n[storage]\nkind = "memory"\n')
    with serving("--config", str(path)) as (process, ready):
        assert process.stderr is not None

        def told() -> dict[str, Any]:
            process.send_signal(signal.SIGHUP)
            assert process.stderr is not None
            line: dict[str, Any] = json.loads(process.stderr.readline())
            return line

        path.write_text('[log]\nlevel = "info"\n[storage]\nkind = "memory"\ndurability = "os"\n')
        assert told() == told_of("reload_needs_restart", setting="storage.durability") | {"ts": ANY, "level": "warning"}
        assert json.loads(process.stderr.readline())["changed"] == ["log.level"]
        # An invalid file is refused: the server logs the refusal and keeps its settings.
        path.write_text('[log]\nlevel = "loud"\n')
        refusal = told()
        assert refusal["event"] == "reload_refused"
        assert "tidelog.toml:2" in refusal["problem"]
        host, _, port = ready["grpc"].rpartition(":")
        socket.create_connection((host, int(port))).close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == ExitCode.OK
        # The event has level info, which proves that the new level took effect.
        assert json.loads(process.stderr.readline())["event"] == "stopped"


def told_of(event: str, **values: object) -> dict[str, object]:
    return {"event": event, **values}
