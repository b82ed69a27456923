"""Servers have the store that a run of the tests is for, however a test starts them.

Method: each kind of start, with the store of its settings and, with ``--log-store engine``, with the engine store.
"""

import asyncio
from pathlib import Path

from tidelog import AsyncClient, Client
from tidelog.testing import server as server_of_tests
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.processes import ServerProcess
from tidelog_testing.servers.tested_store import is_on_engine


def store_of_settings(name: str) -> str:
    return "engine" if is_on_engine() else name


async def test_a_server_in_this_process_has_it(tmp_path: Path) -> None:
    async with server_of_tests() as client:
        assert await client.wal_name() == store_of_settings("memory")
    for payload in (b"1", b"2"):
        async with running_server(tmp_path / "data") as server, AsyncClient(server.grpc_endpoint) as client:
            assert await client.wal_name() == store_of_settings("rocksdb")
            await client.ensure_channel("orders")
            await client.append("orders", payload)
    async with server_of_tests(tmp_path / "data") as client:
        assert await payloads(client, "orders/0") == [b"1", b"2"]


def test_a_server_in_its_own_process_has_it(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, Client(server.grpc) as client:
        assert client.wal_name() == store_of_settings("rocksdb")
    with ServerProcess(tmp_path / "memory", {"storage.kind": "memory"}) as server, Client(server.grpc) as client:
        assert client.wal_name() == store_of_settings("memory")


async def test_a_node_has_it_and_a_new_view_at_each_start(tmp_path: Path, etcd: EtcdProcess) -> None:
    with ClusterOfProcesses(tmp_path, etcd, prefix=f"/{tmp_path.name}/") as cluster:
        left = tmp_path / "n1" / "left"
        for payload in (b"1", b"2"):
            node = await asyncio.to_thread(cluster.start, "n1")
            assert left.exists() == (payload == b"2" and not is_on_engine())
            left.touch()
            async with AsyncClient(node.grpc) as client:
                assert await client.wal_name() == ("kafka" if is_on_engine() else "rocksdb")
                await client.ensure_channel("orders")
                await client.append("orders", payload)
                assert await payloads(client, "orders/0") == [b"1", b"2"][: int(payload)]
            node.kill()
