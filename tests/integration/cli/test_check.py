"""``tidelog check`` prints one line and exits with the codes of monitoring plugins.

Method: the command in a separate process, against real servers: healthy, absent, and with the problem to be detected.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog import AsyncClient
from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import CheckCode
from tidelog_cli.metrics_text import samples
from tidelog_testing.servers.commands import COMMAND, run_command
from tidelog_testing.servers.processes import ServerProcess

# No server listens there.
NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("check") / "log") as process:
        yield process


def check(server: ServerProcess | None, *arguments: str) -> tuple[int, dict[str, Any]]:
    places = {"TIDELOG_ENDPOINT": NOWHERE, "TIDELOG_HTTP_ENDPOINT": NOWHERE}
    if server is not None:
        places = {"TIDELOG_ENDPOINT": server.grpc, "TIDELOG_HTTP_ENDPOINT": server.http}
    done = run_command(["check", *arguments, "--json"], environment=places)
    assert b"Traceback" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    assert not found or CheckCode[found["status"].upper()] == done.returncode
    return done.returncode, found


@pytest.mark.parametrize(
    "arguments", [("health",), ("ready",), ("disk", "--warning-gib", "0", "--critical-gib", "0"), ("append",)]
)
def test_a_healthy_server_passes_and_an_absent_one_is_critical(
    server: ServerProcess, arguments: tuple[str, ...]
) -> None:
    assert check(server, *arguments)[0] == CheckCode.OK
    assert check(None, *arguments, "--timeout", "1")[0] == CheckCode.CRITICAL


@pytest.mark.parametrize("command", ["health", "ready", "disk"])
def test_a_check_over_http_refuses_the_address_of_another_server(server: ServerProcess, command: str) -> None:
    places = {"TIDELOG_HTTP_ENDPOINT": server.http}
    done = run_command(["--endpoint", NOWHERE, "check", command], environment=places)
    assert (done.returncode, b"--endpoint is the address of gRPC: pass --http" in done.stderr) == (2, True)
    both = ["--endpoint", NOWHERE, "check", "ready", "--http", server.http]
    assert run_command(both, environment=places).returncode == CheckCode.OK


def test_an_absent_server_is_named() -> None:
    assert check(None, "ready")[1]["text"].startswith(f"no response: {NOWHERE}: ")


def test_a_disk_that_fills_up_is_noticed(server: ServerProcess) -> None:
    assert check(server, "disk", "--warning-gib", "1e9", "--critical-gib", "0")[0] == CheckCode.WARNING
    assert check(server, "disk", "--warning-gib", "1e9", "--critical-gib", "1e9")[0] == CheckCode.CRITICAL


def test_a_group_that_lags_is_noticed(server: ServerProcess) -> None:
    async def prepare() -> None:
        async with AsyncClient(server.grpc) as client:
            await client.create_channel("lagging", vchannels=2)
            await client.create_group("group", "lagging")
            for index in range(2):
                await client.append(f"lagging/{index}", [b"x"] * 50)

    asyncio.run(prepare())
    assert check(server, "lag", "group", "--max-messages", "1000")[0] == CheckCode.OK
    code, found = check(server, "lag", "group", "--max-messages", "110")
    assert (code, found["messages"]) == (CheckCode.WARNING, 100)
    assert check(server, "lag", "group", "--max-messages", "99")[0] == CheckCode.CRITICAL
    assert check(server, "lag", "unknown-group", "--max-messages", "99")[0] == CheckCode.UNKNOWN


def test_backups_that_are_missing_or_old_are_noticed(server: ServerProcess, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    assert check(None, "backup", str(folder))[0] == CheckCode.CRITICAL
    command = [*COMMAND, "backup", "create", str(folder), "--endpoint", server.grpc]
    subprocess.run(command, check=True, capture_output=True, env=child_environment(), timeout=240)
    assert check(None, "backup", str(folder))[0] == CheckCode.OK
    assert check(None, "backup", str(folder), "--max-age", "0s")[0] == CheckCode.CRITICAL
    assert check(None, "backup", str(folder), "--max-age", "soon")[0] == CheckCode.UNKNOWN
    [manifest] = folder.glob("*/manifest.json")
    manifest.write_text("{}")
    assert check(None, "backup", str(folder))[0] == CheckCode.CRITICAL


@pytest.mark.parametrize("form", [["--prom"], ["-o", "prom"]])
def test_results_are_metrics_with_the_same_codes(server: ServerProcess, form: list[str]) -> None:
    async def prepare() -> None:
        async with AsyncClient(server.grpc) as client:
            await client.create_channel(group)
            await client.append(group, [b"x"] * 30)
            await client.create_group(group, group)

    def measured(*arguments: str, http: str = server.http) -> tuple[int, dict[tuple[str, str], float]]:
        done = run_command(
            ["check", *arguments, *form], environment={"TIDELOG_ENDPOINT": server.grpc, "TIDELOG_HTTP_ENDPOINT": http}
        )
        found = {(name, labels.get("group", "")): value for name, labels, value in samples(done.stdout.decode())}
        return done.returncode, found

    group = f"slow-{len(form)}"
    asyncio.run(prepare())
    code, found = measured("lag", group, "--max-messages", "35")
    assert (code, found["tidelog_check_status", group]) == (CheckCode.WARNING, CheckCode.WARNING)
    assert found["tidelog_check_lag_messages", group] >= 30
    assert found["tidelog_check_lag_seconds", group] > 0
    code, found = measured("disk", "--warning-gib", "1e9", "--critical-gib", "1e9")
    assert (code, found["tidelog_check_status", ""]) == (CheckCode.CRITICAL, CheckCode.CRITICAL)
    expected = server.metric("tidelog_disk_free_bytes")
    assert found["tidelog_check_disk_free_bytes", ""] == pytest.approx(expected, rel=0.5)
    code, found = measured("append")
    assert (code, found["tidelog_check_status", ""]) == (CheckCode.OK, CheckCode.OK)
    assert 0 < found["tidelog_check_append_seconds", ""] < 60
    code, found = measured("ready", http=NOWHERE)
    assert (code, found) == (CheckCode.CRITICAL, {("tidelog_check_status", ""): CheckCode.CRITICAL})


def test_the_forms_of_a_result_are_options(server: ServerProcess) -> None:
    def printed(*form: str) -> str:
        done = run_command(["check", "ready", *form], environment={"TIDELOG_HTTP_ENDPOINT": server.http})
        assert done.returncode == CheckCode.OK, done.stderr
        return done.stdout.decode()

    assert printed() == printed("-o", "text") == "OK ready: ok\n"
    assert printed("--json") == printed("-o", "json")
    assert json.loads(printed("-o", "json")) == {"check": "ready", "status": "ok", "text": "ok"}
    assert "# TYPE tidelog_check_status gauge\n" in printed("--prom")
    both = run_command(["check", "ready", "--prom", "--json"])
    assert (both.returncode, both.stdout) == (CheckCode.UNKNOWN, b"")
    assert b"pass one of" in both.stderr


def test_a_wrong_question_is_unknown_and_not_critical() -> None:
    assert check(None, "health", "--no-such-option")[0] == CheckCode.UNKNOWN
    assert check(None, "health", "--http", "here")[0] == CheckCode.UNKNOWN


def test_a_health_check_does_without_grpc_and_the_other_commands() -> None:
    program = (
        "import sys; sys.argv = ['tidelog', 'check', 'health', '--http', '127.0.0.1:1']\n"
        "from tidelog_cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'asyncio', 'google.protobuf', 'grpc', 'numpy', 'rocksdict', 'tidelog.client', 'tidelog.errors',"
        " 'tidelog.transport', 'tidelog_cli.root'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=child_environment(),
        timeout=240,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_check_asks_the_server_that_the_variables_of_its_environment_configure(server: ServerProcess) -> None:
    http, grpc = (endpoint.rpartition(":")[2] for endpoint in (server.http, server.grpc))
    ports = {
        "TIDELOG_SERVER__HTTP_PORT": http,
        "TIDELOG_SERVER__GRPC_PORT": grpc,
        "TIDELOG_SERVER__HTTP_HOST": "0.0.0.0",
    }
    for question in ("health", "ready", "append"):
        done = run_command(["check", question], environment=ports)
        assert done.returncode == CheckCode.OK, done.stdout
    shown = run_command(
        ["top", "--count", "1", "--interval", "0.1"], environment={**ports, "TIDELOG_ENDPOINT": server.grpc}
    )
    assert shown.returncode == 0, shown.stderr
    # The commands' own variable and option take precedence.
    away = run_command(["check", "health"], environment={**ports, "TIDELOG_HTTP_ENDPOINT": NOWHERE})
    assert away.returncode == CheckCode.CRITICAL


def test_names_of_mailboxes_in_the_metrics_do_not_hide_the_disk(tmp_path: Path) -> None:
    async def prepare(endpoint: str) -> None:
        async with AsyncClient(endpoint) as client:
            for name in ("a b", 'tidelog_disk_free_bytes"} 1', "a{b}\\\\"):
                await client.mailboxes.create(name)
                await client.mailbox(name).send(b"x")

    with ServerProcess(tmp_path / "log", {"metrics.per_mailbox": "true"}) as server:
        asyncio.run(prepare(server.grpc))
        assert 'mailbox="a b"' in server.get("/metrics")[1]
        code, found = check(server, "disk", "--warning-gib", "0", "--critical-gib", "0")
        assert code == CheckCode.OK
        assert found["free_gib"] == pytest.approx(server.metric("tidelog_disk_free_bytes") / (1 << 30), rel=0.5)
        run = run_command(
            ["top", "--count", "1", "--interval", "0.1", "--http", server.http, "--endpoint", server.grpc]
        )
        assert json.loads(run.stdout)["mailboxes"] == 3
