"""The client of a cluster with an endpoint where no node answers. Method: real servers and sockets, no etcd.

Where nothing listens, connections are refused. A black hole is a socket that listens and never answers. A paused node
has a connection already, and answers nothing on it.
"""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tidelog import AsyncCluster, Client, Cluster, UnavailableError
from tidelog.testing import start_server
from tidelog_testing.servers.ports import free_port
from tidelog_testing.servers.processes import ServerProcess, lasting_port

TIMES_S = [0.5, 2.0, 5.0]


@pytest.fixture(scope="module")
def live() -> Iterator[str]:
    with start_server() as running, Client(running.endpoint) as client:
        client.create_channel("there")
        yield running.endpoint


@pytest.fixture(params=["refuses", "black hole"])
def dead(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "refuses":
        yield f"127.0.0.1:{free_port()}"
        return
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


async def listed(cluster: AsyncCluster) -> object:
    return [channel.name async for channel in cluster.list_channels()]


async def created(cluster: AsyncCluster) -> object:
    await cluster.create_channel("made")
    return await cluster.destroy_channels(["made"])


async def appended(cluster: AsyncCluster) -> object:
    await cluster.ensure_channel("appended")
    return await (await cluster.vchannel("appended")).append(b"m")


CALLS: list[Callable[[AsyncCluster], Awaitable[object]]] = [
    lambda cluster: cluster.describe(),
    lambda cluster: cluster.allocate_ticks(),
    listed,
    created,
    appended,
]


@pytest.mark.parametrize("timeout_s", TIMES_S)
@pytest.mark.parametrize("call", CALLS)
async def test_a_dead_first_endpoint_leaves_the_second_its_time(
    dead: str, live: str, call: Callable[[AsyncCluster], Awaitable[object]], timeout_s: float
) -> None:
    async with AsyncCluster([dead, live], timeout_s=timeout_s) as cluster:
        assert await call(cluster)


def test_the_synchronous_twin_gets_past_a_dead_first_endpoint(dead: str, live: str) -> None:
    with Cluster([dead, live], timeout_s=1.0) as cluster:
        assert cluster.allocate_ticks(3)
        cluster.create_channel("twin")
        assert [channel.name for channel in cluster.list_channels("twin")] == ["twin"]
        assert cluster.destroy_channels(["twin"]) == ["twin"]


async def test_a_refused_connection_takes_no_time_and_the_answering_node_is_asked_first_afterwards(live: str) -> None:
    refusing = [f"127.0.0.1:{free_port()}" for _ in range(5)]
    async with AsyncCluster([*refusing, live], timeout_s=60.0) as cluster:
        begin_s = time.monotonic()
        await cluster.allocate_ticks()
        # One head start for each would be 2.5 s.
        assert time.monotonic() - begin_s < 2.0
        assert (await cluster.client_of((await cluster.ensure_channel("asked")).name)).endpoint == live
        await cluster.destroy_channels(["asked"])


async def test_a_node_that_stops_answering_on_its_connection_is_passed_over(tmp_path: Path, live: str) -> None:
    with ServerProcess(tmp_path / "data") as paused:
        async with AsyncCluster([paused.grpc, live], timeout_s=2.0) as cluster:
            await cluster.allocate_ticks()
            os.kill(paused.pid, signal.SIGSTOP)
            try:
                ticks = await asyncio.gather(*(cluster.allocate_ticks() for _ in range(4)))
                assert len({tick[0] for tick in ticks}) == 4
                assert not (await cluster.describe()).nodes
            finally:
                os.kill(paused.pid, signal.SIGCONT)


async def test_where_no_node_answers_the_error_names_each_with_the_reason() -> None:
    refusing = f"127.0.0.1:{free_port()}"
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        silent = f"127.0.0.1:{listening.getsockname()[1]}"
        async with AsyncCluster([refusing, silent], timeout_s=0.5) as cluster:
            with pytest.raises(UnavailableError) as absent:
                await cluster.describe()
    assert absent.value.effect == "none"
    assert refusing in str(absent.value)
    assert "refused" in str(absent.value)
    assert silent in str(absent.value)


async def test_a_node_that_starts_while_it_is_asked_for_is_found(tmp_path: Path) -> None:
    settings = lasting_port()
    later = f"127.0.0.1:{settings['server.grpc_port']}"
    async with AsyncCluster([f"127.0.0.1:{free_port()}", later], timeout_s=60.0) as cluster:
        asking = asyncio.create_task(cluster.allocate_ticks())
        with await asyncio.to_thread(ServerProcess, tmp_path / "data", settings):
            assert await asking
