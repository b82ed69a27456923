"""`tidelog engine export`: the backup of a log in an engine, on whose folder servers and all kinds of backups work."""

import json
from pathlib import Path

import pytest

from tidelog import CheckpointError, Client
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.brokers import Broker
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.processes import ServerProcess

TOPIC = "engine-export"


def payloads(client: Client) -> list[bytes]:
    return [payload for batch in client.scan("orders") for payload in batch.payloads]


def test_the_log_of_a_running_server_is_exported_served_backed_up_and_restored(broker: Broker, tmp_path: Path) -> None:
    at, settings = broker.flags, broker.settings(TOPIC)
    assert run_command(["engine", "create", TOPIC, *at]).returncode == ExitCode.OK
    written = [b"%d" % number + bytes(100 * number) for number in range(40)]
    with ServerProcess(tmp_path / "view", settings) as server, Client(server.grpc) as client:
        client.create_channel("orders")
        last = [client.append("orders", each).last_tick for each in written][-1]
        with pytest.raises(
            CheckpointError, match=rf"its log is in {settings['storage.kind']}, .* `tidelog engine export` makes a data"
        ):
            client.create_checkpoint()
        refused = run_command(["backup", "create", str(tmp_path / "none"), "--endpoint", server.grpc])
        assert refused.returncode != ExitCode.OK
        assert b"tidelog engine export" in refused.stderr

        result = run_command(["engine", "export", TOPIC, str(tmp_path / "exported"), *at])
        assert result.returncode == ExitCode.OK, result.stderr
        [record] = map(json.loads, result.stdout.splitlines())
        assert record["log"] == TOPIC
        assert record["last_tick"] == str(last)
        # The log was not claimed.
        client.append("orders", b"after")
        assert payloads(client) == [*written, b"after"]

    with ServerProcess(tmp_path / "exported") as server, Client(server.grpc) as client:
        assert client.wal_name() == "rocksdb"
        assert payloads(client) == written
        cut = client.append("orders", b"on RocksDB").last_tick
        client.append("orders", b"too late")
        backups = str(tmp_path / "backups")
        taken = run_command(["backup", "create", backups, "--endpoint", server.grpc])
        assert taken.returncode == ExitCode.OK, taken.stderr
    assert run_command(["backup", "verify", backups]).returncode == ExitCode.OK
    restored = run_command(["backup", "restore", backups, str(tmp_path / "restored"), "--to-tick", str(cut)])
    assert restored.returncode == ExitCode.OK, restored.stderr
    with ServerProcess(tmp_path / "restored") as server, Client(server.grpc) as client:
        assert payloads(client) == [*written, b"on RocksDB"]


def test_an_export_of_a_topic_that_is_no_log_is_refused_and_leaves_nothing(
    kafka: KafkaProcesses, tmp_path: Path
) -> None:
    kafka.create_topic("engine-export-none")
    for topic, code, text in (
        ("engine-export-none", ExitCode.DATA_LOSS, b"has no first record"),
        ("engine-export-missing", ExitCode.BAD_CONFIG, b"there is no topic 'engine-export-missing'"),
    ):
        result = run_command(["engine", "export", topic, str(tmp_path / "x"), "--engine.servers", kafka.servers])
        assert result.returncode == code, result.stderr
        assert text in result.stderr
        assert list(tmp_path.iterdir()) == []
