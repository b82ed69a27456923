"""A cluster whose nodes have their logs in a real Kafka or Pulsar: created, served by any process, taken over."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog import AsyncClient
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.brokers import Broker
from tidelog_testing.servers.engine_cluster import EngineCluster, Load
from tidelog_testing.servers.etcd import EtcdProcess


@pytest.fixture
def cluster(tmp_path: Path, etcd: EtcdProcess, broker: Broker) -> Iterator[EngineCluster]:
    with EngineCluster(tmp_path / "cluster", etcd, lease_ttl_s=2, engine=broker.settings("")) as running:
        yield running


def create(cluster: EngineCluster, node: str, name: str = "", *options: str) -> tuple[int, str]:
    result = cluster.create_in_engine(node, name, *options)
    return result.returncode, result.stderr.decode()


async def test_a_node_is_created_once_and_any_process_serves_it(cluster: EngineCluster) -> None:
    name = cluster.folder.parent.name.replace("_", "-")
    code, told = await asyncio.to_thread(create, cluster, "n1")
    assert (code, "cluster.name is not set" in told) == (ExitCode.USAGE, True)
    code, told = await asyncio.to_thread(create, cluster, "auto", name)
    assert (code, "'auto' is not allowed as the id of a node" in told) == (ExitCode.USAGE, True)
    created = await asyncio.to_thread(create, cluster, "n1", name)
    assert created == (0, f"created the node 'n1', whose log is 'tidelog.{name}.n1'\n")
    code, told = await asyncio.to_thread(create, cluster, "n1", name)
    assert (code, "the node 'n1' exists" in told) == (ExitCode.CONFLICT, True)
    assert await asyncio.to_thread(create, cluster, "n1", name, "--if-not-exists") == (0, "the node 'n1' exists\n")
    # As if the command had ended before the record: the log has no claim, so it becomes that of the node.
    await asyncio.to_thread(cluster.etcd.control, "del", f"{cluster.prefix}tidelog/log/n1")
    assert await asyncio.to_thread(create, cluster, "n1", name) == created
    for process in ("p1", "p2"):
        await asyncio.to_thread(cluster.start, process)
    await cluster.settled(1, 1)
    [owner], [standby] = cluster.in_state("ready"), cluster.in_state("standby")
    async with AsyncClient(owner.grpc) as client:
        await client.create_channel("orders")
    load = Load(cluster, "orders/0")
    await load.run_until(lambda: len(load.acknowledged) >= 30)
    owner.kill()
    await load.run_until(lambda: len(load.acknowledged) >= 60)
    assert set(load.acknowledged) <= set(await load.payloads())
    # A former owner that is stopped, and continues after the next one has claimed the log.
    third = await asyncio.to_thread(cluster.start, "p3")
    await cluster.until(lambda: third.state == "standby")
    os.kill(standby.pid, signal.SIGSTOP)
    await cluster.until(lambda: third.state == "ready")
    os.kill(standby.pid, signal.SIGCONT)
    await cluster.until(lambda: standby.state == "standby")
    before = len(load.acknowledged)
    await load.run_until(lambda: len(load.acknowledged) >= before + 30)
    stored = await load.payloads()
    assert set(load.acknowledged) <= set(stored)
    assert len(stored) == len(set(stored))
    await load.close()
    # A log that has had an owner is not given to a node.
    await asyncio.to_thread(cluster.etcd.control, "del", f"{cluster.prefix}tidelog/log/n1")
    code, told = await asyncio.to_thread(create, cluster, "n1", name)
    assert (code, "exists" in told) == (ExitCode.CONFLICT, True)
