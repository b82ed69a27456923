"""A log on a Kafka of three nodes: not each of them knows a new topic, and one that leads is frozen."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog import AsyncClient
from tidelog_server.recordlog.engine import EngineUnavailableError
from tidelog_server.recordlog.kafka import ANSWER_WITHIN_S
from tidelog_server.recordlog.kafka_access import KafkaAccess
from tidelog_testing.faults.brokers import NODES, SETTINGS
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.processes import ServerProcess

_WITHIN_S = 40.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcesses]:
    """Provide a Kafka of three nodes."""
    with KafkaProcesses(tmp_path_factory.mktemp("kafka"), NODES, SETTINGS) as running:
        yield running


def test_a_topic_is_described_though_not_every_node_knows_it(kafka: KafkaProcesses) -> None:
    # One of seventeen was not.
    access = KafkaAccess(kafka.servers)
    for number in range(60):
        access.create(f"new-{number}")
        assert access.check_created(f"new-{number}")


async def in_sync(kafka: KafkaProcesses, topic: str) -> int:
    """Wait until all nodes have a topic; return its leader. A node that a busy machine has held up has it late."""
    async with asyncio.timeout(_WITHIN_S):
        while (found := kafka.copies(topic))[1] < NODES or found[0] is None:
            await asyncio.sleep(0.1)
    return found[0]


async def moved(kafka: KafkaProcesses, topic: str, leader: int) -> None:
    """Wait until a topic has another leader. A node learns of it a moment after the new leader does."""
    async with asyncio.timeout(_WITHIN_S):
        while kafka.copies(topic)[0] in (leader, None):
            await asyncio.sleep(0.1)


async def test_a_reader_finds_the_next_leader_with_its_second_attempt(kafka: KafkaProcesses) -> None:
    access = KafkaAccess(kafka.servers)
    access.create("read")
    leader = await in_sync(kafka, "read")
    reader = access.reader("read")
    assert reader.bounds() == (0, 0)
    kafka.pause(leader)
    try:
        await moved(kafka, "read", leader)
        with pytest.raises(EngineUnavailableError):
            reader.read(0, 1)
        begin_s = time.monotonic()
        assert reader.read(0, 1).next == 0
        # Its client would have found it 9 s later.
        assert time.monotonic() - begin_s < ANSWER_WITHIN_S / 2
    finally:
        kafka.resume(leader)
        reader.close()


async def test_a_server_finds_the_next_leader_of_its_log_while_the_former_one_is_frozen(
    kafka: KafkaProcesses, tmp_path: Path
) -> None:
    created = run_command(["engine", "create", "frozen", "--engine.servers", kafka.servers])
    assert created.returncode == 0, created.stderr
    flags = {"storage.kind": "kafka", "engine.servers": kafka.servers, "engine.topic": "frozen"}
    with ServerProcess(tmp_path / "store", flags) as server:
        async with AsyncClient(server.grpc) as client:
            await client.create_channel("orders")
            await client.append("orders", b"1")
            leader = await in_sync(kafka, "frozen")
            kafka.pause(leader)
            try:
                begin_s = time.monotonic()
                await client.append("orders", b"2", timeout_s=4 * _WITHIN_S)
                # The client of Kafka waits for an answer of the frozen one first: 10 s, and not 60 s.
                assert time.monotonic() - begin_s < _WITHIN_S
                assert await payloads(client, "orders") == [b"1", b"2"]
                await moved(kafka, "frozen", leader)
            finally:
                kafka.resume(leader)
