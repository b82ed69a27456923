"""Fixtures that many modules have. A module makes its own with one call, such as ``client = client_with(orders=2)``."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tidelog import AsyncClient
from tidelog.testing import server as server_of_tests
from tidelog_server.app import Server
from tidelog_testing.parts.grpc_calls import Client, connected, running_server
from tidelog_testing.parts.nodes import Node, running_node
from tidelog_testing.parts.stores import FaultyStore
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.secured import Secured, secured_server


def client_with(**channels: int) -> Any:
    """Make a fixture: a client of a server of its own, with channels of these numbers of vchannels."""

    @pytest.fixture
    async def client() -> AsyncIterator[AsyncClient]:
        async with server_of_tests() as client:
            for name, vchannels in channels.items():
                await client.create_channel(name, vchannels=vchannels)
            yield client

    return client


def secured_with(**settings: object) -> Any:
    """Make a fixture: a server with TLS and authentication, and with these settings (see ``secured_server``)."""

    @pytest.fixture
    async def secured(tmp_path: Path) -> AsyncIterator[Secured]:
        async with secured_server(tmp_path, **settings) as running:
            yield running

    return secured


def cluster_of(*node_ids: str) -> Any:
    """Make a fixture: a cluster of these nodes, whose leases are long enough for a machine that is shared."""

    @pytest.fixture
    async def cluster(tmp_path: Path, etcd: EtcdProcess) -> AsyncIterator[ClusterOfProcesses]:
        with ClusterOfProcesses(tmp_path, etcd, lease_ttl_s=5, prefix=f"/{tmp_path.name}/") as running:
            for node_id in node_ids:
                await asyncio.to_thread(running.start, node_id)
            yield running

    return cluster


def node_with(**channels: int) -> tuple[Any, Any]:
    """Make two fixtures: a store whose syncs can be stopped, and a node on it with channels of these sizes."""

    @pytest.fixture
    def store() -> FaultyStore:
        return FaultyStore()

    @pytest.fixture
    async def node(store: FaultyStore) -> AsyncIterator[Node]:
        async with running_node(store) as node:
            for name, vchannels in channels.items():
                await node.create(name, vchannels)
            yield node

    return store, node


def server_with(channels: Mapping[str, int] | None = None, **settings: Any) -> tuple[Any, Any]:
    """Make two fixtures: a server in memory with these settings, and the calls of a client of it.

    The client creates ``channels`` with these numbers of vchannels.
    """

    @pytest.fixture
    async def server() -> AsyncIterator[Server]:
        async with running_server(**settings) as server:
            yield server

    @pytest.fixture
    async def client(server: Server) -> AsyncIterator[Client]:
        async with connected(server) as client:
            for name, vchannels in (channels or {}).items():
                await client.create(name, vchannels=vchannels)
            yield client

    return server, client
