"""``tidelog serve``: the ready line, signals, and refusals with their exit codes.

Method: real processes on free ports and temporary folders; starts that are refused are forks.
"""

import json
import os
import pty
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.parts.soaks import in_core
from tidelog_testing.servers.commands import COMMAND, run_command

FREE_PORTS = ["--server.grpc_port", "0", "--server.http_port", "0", "--limits.min_free_disk_bytes", "0"]


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
    return kept | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables


@contextmanager
def started(
    *arguments: str, cwd: Path | None = None, **variables: str
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Yield a ready server and its ready line; kill the server at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog_server", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=environment(**variables),
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def serving(*arguments: str) -> AbstractContextManager[tuple[subprocess.Popen[str], dict[str, Any]]]:
    return started(*FREE_PORTS, *arguments)


def refused(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    done = run_command(["serve", *arguments], environment=variables)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


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
    told = told_at_a_terminal("--storage.kind", "memory", "--log.level", log_level)
    assert told.count(b"ready") == 1, told
    assert told.count(b"127.0.0.1:") == 2, told


def told_at_a_terminal(*arguments: str, while_ready: Callable[[bytes], None] = lambda _: None) -> bytes:
    """Return what a server prints on a terminal until it is ready, call ``while_ready`` with it, and end it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog_server", *FREE_PORTS, *arguments],
        env=environment(), stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    try:
        told = b""
        while b"Press Ctrl-C to stop" not in told:
            told += os.read(ours, 4096)
        while_ready(told)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == ExitCode.OK
    finally:
        process.kill()
        os.close(ours)
    return told


def lists_channels(**variables: str) -> bool:
    """Return whether the command line reaches a server with these variables."""
    timeout_s = "60" if "TIDELOG_TLS_CA" in variables else "1"
    listed = run_command(["channel", "ls", "--timeout", timeout_s], environment=variables)
    return listed.returncode == ExitCode.OK


def test_a_certificate_of_its_own_is_made_once_and_clients_connect_with_it(tmp_path: Path) -> None:
    flags = ("--storage.data_dir", str(tmp_path / "log"), "--tls-self")
    seen = set()
    for _ in range(2):
        with serving(*flags) as (process, ready):
            assert ready["tls_ca"] == str(tmp_path / "log-tls" / "authority.pem")
            variables = {"TIDELOG_ENDPOINT": str(ready["grpc"])}
            assert lists_channels(**variables, TIDELOG_TLS_CA=str(ready["tls_ca"]))
            assert not lists_channels(**variables)
            for host in ("127.0.0.1", "localhost"):
                context = ssl.create_default_context(cafile=ready["tls_ca"])
                port = int(ready["http"].rpartition(":")[2])
                with (
                    socket.create_connection(("127.0.0.1", port)) as plain,
                    context.wrap_socket(plain, server_hostname=host) as secured,
                ):
                    seen.add(secured.getpeercert(binary_form=True))
            process.send_signal(signal.SIGTERM)
            assert process.wait(240) == ExitCode.OK
    assert len(seen) == 1


def test_an_own_certificate_beside_files_of_tls_is_refused(tmp_path: Path) -> None:
    flags = ("--storage.data_dir", str(tmp_path / "log"), "--tls-self", "--tls.cert", "a.pem")
    ended = refused(*FREE_PORTS, *flags)
    assert ended.returncode == ExitCode.BAD_CONFIG
    assert ended.stderr == (
        "tidelog: --tls-self makes a certificate for development, and flag --tls.cert names a file of TLS: use one of "
        "them\n"
    )


def test_a_person_at_a_terminal_reads_what_clients_need(tmp_path: Path) -> None:
    told = told_at_a_terminal("--storage.data_dir", str(tmp_path / "log"), "--tls-self", "--log.level", "error")
    lines = told.decode().splitlines()
    address = lines[0].removeprefix("export TIDELOG_ENDPOINT=127.0.0.1:")
    assert address.isdigit(), told
    assert lines[1] == f"export TIDELOG_TLS_CA={tmp_path / 'log-tls' / 'authority.pem'}"
    assert lines[2].startswith("ready: gRPC on 127.0.0.1:"), told


def exported(told: bytes) -> dict[str, str]:
    """Return the variables that a shell gets from the lines that a server printed."""
    lines = [line for line in told.decode().splitlines() if line.startswith("export ")]
    script = "\n".join([*lines, "env"])
    shell = subprocess.run(
        ["sh", "-ec", script], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True
    )
    return dict(line.split("=", 1) for line in shell.stdout.splitlines() if line.startswith("TIDELOG_"))


def developing(
    *arguments: str, temporary: Path, **variables: str
) -> AbstractContextManager[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Start a server with --dev and without other flags of ours; its temporary folders are ours."""
    return started("--dev", *arguments, cwd=temporary.parent, TMPDIR=str(temporary), **variables)


@pytest.mark.parametrize("number", in_core([signal.SIGTERM], [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))
def test_a_server_for_development_keeps_nothing(number: signal.Signals, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with (
        developing("--tls-self", temporary=temporary) as (first, ready),
        developing(temporary=temporary) as (second, _),
    ):
        assert ready["remains"] == "All data is in memory, and is gone when the server stops."
        assert ready["variables"]["TIDELOG_ENDPOINT"] == ready["grpc"]
        assert ready["variables"]["TIDELOG_TLS_CA"].startswith(str(temporary))
        assert lists_channels(**ready["variables"])
        for process in (first, second):
            process.send_signal(number)
            assert process.wait(240) == ExitCode.OK
    assert list(temporary.iterdir()) == []
    assert list(tmp_path.iterdir()) == [temporary]


def test_a_server_for_development_on_a_disk_is_deleted_and_one_with_a_data_folder_is_kept(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    small = ("--limits.min_free_disk_bytes", "0")
    with developing("--storage.kind", "rocksdb", *small, temporary=temporary) as (process, ready):
        [folder] = temporary.iterdir()
        assert ready["remains"] == f"All data is in {folder}, which is deleted when the server stops."
        assert (folder / "data" / "FORMAT").is_file()
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == ExitCode.OK
    assert list(temporary.iterdir()) == []
    kept = tmp_path / "kept"
    with developing("--storage.data_dir", str(kept), *small, temporary=temporary) as (process, ready):
        assert ready["remains"] == f"The data stays in {kept} when the server stops."
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == ExitCode.OK
    assert (kept / "FORMAT").is_file()
    assert list(temporary.iterdir()) == []


def test_the_first_token_of_a_server_for_development_is_named(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with developing(temporary=temporary, TIDELOG_AUTH__KIND="on") as (process, ready):
        created = subprocess.run(
            [*COMMAND, "token", "create", "administrator", "-a", "admin.read", "-a", "admin.write", "-o", "text"],
            capture_output=True, text=True, env=environment(**ready["variables"]), timeout=240, check=True,
        )  # fmt: skip
        assert created.stdout.strip().startswith("tdl_")
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == ExitCode.OK
    assert list(temporary.iterdir()) == []


def test_the_lines_that_a_server_for_development_prints_connect_a_shell() -> None:
    told = told_at_a_terminal("--dev", "--tls-self", "--log.level", "error", while_ready=connects)
    assert "export TIDELOG_HTTP_ENDPOINT=127.0.0.1:" in told.decode()
    assert b"All data is in memory, and is gone when the server stops. Press Ctrl-C to stop" in told


def connects(told: bytes) -> None:
    assert lists_channels(**exported(told))
    done = subprocess.run(
        [*COMMAND, "check", "ready"], env=environment(**exported(told)), capture_output=True, timeout=240, check=False
    )
    assert done.returncode == ExitCode.OK, done.stdout


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
        assert f"--server.{name}_port" in second.stderr
        assert f"--server.{other}_port" not in second.stderr
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
        assert told() == {
            "event": "reload_needs_restart", "setting": "storage.durability", "ts": ANY, "level": "warning"
        }  # fmt: skip
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
