"""A log on a Kafka of three nodes whose leader is frozen: it has another leader, which the server finds."""

import asyncio
import time
from pathlib import Path

from tidelog import AsyncClient
from tidelog_testing.faults.brokers import NODES, SETTINGS
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.processes import ServerProcess

_WITHIN_S = 40.0


async def test_a_server_finds_the_next_leader_of_its_log_while_the_former_one_is_frozen(tmp_path: Path) -> None:
    with KafkaProcesses(tmp_path / "kafka", NODES, SETTINGS) as kafka:
        created = run_command(["engine", "create", "frozen", "--engine.servers", kafka.servers])
        assert created.returncode == 0, created.stderr
        flags = {"storage.kind": "kafka", "engine.servers": kafka.servers, "engine.topic": "frozen"}
        with ServerProcess(tmp_path / "store", flags) as server:
            async with AsyncClient(server.grpc) as client:
                await client.create_channel("orders")
                await client.append("orders", b"1")
                # A node that a busy machine has held up is out of sync for a while.
                while (found := kafka.copies("frozen"))[1] < NODES or found[0] is None:
                    await asyncio.sleep(0.1)
                leader = found[0]
                kafka.pause(leader)
                begin_s = time.monotonic()
                await client.append("orders", b"2", timeout_s=4 * _WITHIN_S)
                # The client of Kafka waits for an answer of the frozen one first: 10 s, and not 60 s.
                assert time.monotonic() - begin_s < _WITHIN_S
                assert await payloads(client, "orders") == [b"1", b"2"]
                assert kafka.copies("frozen")[0] != leader
