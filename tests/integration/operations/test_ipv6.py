"""A server listens on an IPv6 address: calls, probes, commands and printed addresses have it in brackets.

Method: real servers on ::1, with service links of Kubernetes in their environment.
"""

import json
from pathlib import Path

import pytest

from tidelog import Client
from tidelog_cli import own_server
from tidelog_server.core.addresses import address_text, host_of
from tidelog_server.rpc.context import address_of, is_local
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.processes import ServerProcess

LINKS = {"TIDELOG_PORT": "tcp://[fd00::7]:7420", "TIDELOG_SERVICE_HOST": "fd00::7", "TIDELOG_PULSAR_TOKEN": "x"}


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_a_server_on_an_ipv6_address_serves_calls_probes_and_commands(tmp_path: Path, host: str) -> None:
    settings = {"server.host": host, "server.http_host": host}
    with ServerProcess(tmp_path / "log", settings, LINKS) as server:
        assert server.grpc.startswith("[::1]:")
        assert server.http.startswith("[::1]:")
        with Client(server.grpc) as client:
            client.create_channel("orders")
            client.append("orders", [b"x"])
            assert [bytes(payload) for batch in client.scan("orders") for payload in batch.payloads] == [b"x"]
        assert server.get("/readyz")[0] == 200
        places = {"TIDELOG_ENDPOINT": server.grpc, "TIDELOG_HTTP_ENDPOINT": server.http}
        assert run_command(["check", "ready"], environment=places).returncode == 0
        assert run_command(["check", "append"], environment=places).returncode == 0
        listed = run_command(["channel", "ls", "-o", "jsonl"], environment=places).stdout.splitlines()
        assert "orders" in [json.loads(line)["name"] for line in listed]
        assert "variables_ignored" in server.errors
        assert "TIDELOG_SERVICE_HOST" in server.errors


@pytest.mark.parametrize("name", ["grpc", "http"])
def test_a_server_that_cannot_listen_names_the_address_in_brackets(tmp_path: Path, name: str) -> None:
    hosts = {"server.host": "::1", "server.http_host": "::1"}
    with ServerProcess(tmp_path / "log", hosts) as server:
        port = {"grpc": server.grpc, "http": server.http}[name].rpartition(":")[2]
        ports = {"server.grpc_port": "0", "server.http_port": "0", f"server.{name}_port": port}
        settings = {**hosts, **ports, "storage.data_dir": str(tmp_path / "other")}
        done = run_command(["serve", *(part for key, value in settings.items() for part in (f"--{key}", value))])
    told = done.stderr.decode()
    assert done.returncode == 69, told
    assert f"cannot listen on [::1]:{port} (" in told
    assert told.count("[::1]") == 1
    assert f"another port with --server.{name}_port" in told


@pytest.mark.parametrize(
    ("host", "text"), [("::1", "[::1]:7420"), ("127.0.0.1", "127.0.0.1:7420"), ("node-1", "node-1:7420")]
)
def test_an_address_is_divided_as_it_was_composed(host: str, text: str) -> None:
    assert address_text(host, 7420) == text
    assert host_of(text) == host


@pytest.mark.parametrize(
    ("host", "endpoint"),
    [("::", "[::1]:7420"), ("[::]", "[::1]:7420"), ("::1", "[::1]:7420"), ("fd00::7", "[fd00::7]:7420"),
     ("0.0.0.0", "127.0.0.1:7420"), ("", "127.0.0.1:7420")],
)  # fmt: skip
def test_a_check_reaches_the_server_of_its_machine(host: str, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELOG_SERVER__HOST", host)
    monkeypatch.delenv("TIDELOG_SERVER__GRPC_PORT", raising=False)

    assert own_server.grpc_endpoint() == endpoint


@pytest.mark.parametrize(
    ("peer", "address", "local"),
    [
        ("ipv6:%5B::1%5D:50012", "::1", True),
        ("ipv6:[::1]:50012", "::1", True),
        ("ipv6:[::1234]:50012", "::1234", False),
        ("ipv6:[::ffff:127.0.0.1]:50012", "::ffff:127.0.0.1", True),
        ("ipv4:127.0.0.1:50012", "127.0.0.1", True),
        ("ipv4:10.0.0.1:50012", "10.0.0.1", False),
    ],
)
def test_only_a_loopback_address_is_local(peer: str, address: str, local: bool) -> None:
    assert address_of(peer) == address
    assert is_local(address) == local
