"""Fixtures of the message stream suites: each kind of broker, and the synchronous twins on threads."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tidelog import AsyncClient, Client
from tidelog.msgstream import (
    MemBroker,
    MemMsgStreamFactory,
    PulsarBroker,
    PulsarMsgStreamFactory,
    RmqMsgStreamFactory,
)
from tidelog.testing import TestServer, start_server
from tidelog_testing.parts.streams import (
    INTERVAL_MS,
    MemStreamBroker,
    NewStream,
    PulsarStreamBroker,
    ServerStreamBroker,
    StreamBroker,
    ThreadedFactory,
)
from tidelog_testing.servers.pulsar import PulsarProcess


@pytest.fixture(scope="module")
def stream_server() -> Iterator[TestServer]:
    with start_server() as running:
        yield running


@pytest.fixture(scope="module")
def namespace(pulsar: PulsarProcess, request: pytest.FixtureRequest) -> str:
    name = f"public/{request.module.__name__.rpartition('.')[2]}"
    pulsar.create_namespace(name)
    return name


@pytest.fixture(
    params=["memory", "server", "pulsar", "memory, synchronous", "server, synchronous", "pulsar, synchronous"]
)
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[StreamBroker]:
    is_synchronous = request.param.endswith("synchronous")
    if request.param.startswith("pulsar"):
        server: PulsarProcess = request.getfixturevalue("pulsar")
        namespace: str = request.getfixturevalue("namespace")
        connection = PulsarBroker(server.url, admin_url=server.admin_url, namespace=namespace)
        async with PulsarStreamBroker(server, connection) as on_pulsar:
            if is_synchronous:
                on_pulsar.factory = ThreadedFactory(PulsarMsgStreamFactory(connection))
            yield on_pulsar
        return
    stream_server: TestServer = request.getfixturevalue("stream_server")
    if request.param.startswith("memory"):
        in_memory = MemStreamBroker(MemBroker())
        if is_synchronous:
            in_memory.factory = ThreadedFactory(MemMsgStreamFactory(in_memory.broker))
        in_memory.factory.set_params({"tick_interval_ms": INTERVAL_MS})
        yield in_memory
        return
    async with AsyncClient(stream_server.endpoint) as client:
        on_server = ServerStreamBroker(client)
        with Client(stream_server.endpoint) as synchronous:
            if is_synchronous:
                on_server.factory = ThreadedFactory(RmqMsgStreamFactory(synchronous))
            on_server.factory.set_params({"tick_interval_ms": INTERVAL_MS})
            yield on_server


@pytest.fixture(params=["plain", "time tick"])
def new_stream(request: pytest.FixtureRequest, broker: StreamBroker) -> NewStream:
    if request.param == "plain":
        return broker.factory.new_msg_stream
    broker.needs_ticks = True
    return broker.factory.new_tt_msg_stream
