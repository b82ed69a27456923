"""`tidelog engine import`: a server moves from a data folder to a log in an engine."""

import json
from pathlib import Path

from tidelog import Client
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.brokers import Broker
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.processes import ServerProcess

TOPIC = "engine-import"


def payloads(client: Client) -> list[bytes]:
    return [payload for batch in client.scan("orders") for payload in batch.payloads]


def test_a_folder_is_imported_once_and_served_from_the_engine(broker: Broker, tmp_path: Path) -> None:
    at, settings = broker.flags, broker.settings(TOPIC)
    written = [b"%d" % number + bytes(500 * number) for number in range(60)]
    store = tmp_path / "store"
    with ServerProcess(store) as server, Client(server.grpc) as client:
        client.create_channel("orders")
        last = [client.append("orders", each).last_tick for each in written][-1]
        assert run_command(["engine", "create", TOPIC, *at]).returncode == ExitCode.OK
        in_use = run_command(["engine", "import", TOPIC, str(store), *at])
        assert in_use.returncode == ExitCode.DATA_DIR_IN_USE
        server.kill()

    result = run_command(["engine", "import", TOPIC, str(store), *at])
    assert result.returncode == ExitCode.OK, result.stderr
    [record] = map(json.loads, result.stdout.splitlines())
    assert (record["log"], record["last_tick"]) == (TOPIC, str(last))
    again = run_command(["engine", "import", TOPIC, str(store), *at])
    assert again.returncode == ExitCode.BAD_CONFIG
    assert b"is not empty, so nothing was imported" in again.stderr

    with ServerProcess(tmp_path / "view", settings) as server, Client(server.grpc) as client:
        assert client.wal_name() == settings["storage.kind"]
        assert payloads(client) == written
        client.append("orders", b"in the engine")
        assert payloads(client) == [*written, b"in the engine"]
