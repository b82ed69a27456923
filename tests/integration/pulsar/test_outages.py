"""Calls while a broker of Pulsar is away: its port accepts connections and does not answer, as during its start."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import tidelog
from tidelog.msgstream import AsyncMsgStream, AsyncPulsarMsgStreamFactory, PulsarBroker
from tidelog_testing.faults.fault_proxy import FaultProxy
from tidelog_testing.parts.pulsar_topics import NewTopics
from tidelog_testing.parts.streams import ids_from, pack
from tidelog_testing.servers.pulsar import PulsarProcess

WITHIN_S = 60.0
WAITS = "finding a topic waits for the broker"


@asynccontextmanager
async def cut_off_stream(
    pulsar: PulsarProcess, operation_timeout_s: int
) -> AsyncIterator[tuple[AsyncMsgStream, FaultProxy]]:
    """Yield a stream whose broker was there, and its network, which is cut."""
    async with FaultProxy(pulsar.url.removeprefix("pulsar://")) as network:
        async with PulsarBroker(
            f"pulsar://{network.endpoint}", admin_url=pulsar.admin_url, operation_timeout_s=operation_timeout_s
        ) as broker:
            await asyncio.to_thread(broker.client)
            network.cut()
            async with AsyncPulsarMsgStreamFactory(broker).new_msg_stream() as stream:
                yield stream, network


async def test_a_call_waits_until_the_broker_answers(
    pulsar: PulsarProcess, new_topics: NewTopics, caplog: pytest.LogCaptureFixture
) -> None:
    [topic] = await new_topics(1)
    async with cut_off_stream(pulsar, operation_timeout_s=6) as (stream, network), asyncio.timeout(WITHIN_S):
        subscribing = asyncio.create_task(stream.as_consumer([topic], "sub"))
        while WAITS not in caplog.text:
            assert not subscribing.done()
            await asyncio.sleep(0.05)
        network.heal()
        await subscribing
        await stream.as_producer([topic])
        await stream.produce(pack(1))

        assert await ids_from(stream, 1) == [1]


async def test_a_call_ends_once_the_broker_was_away_for_its_timeout(
    pulsar: PulsarProcess, caplog: pytest.LogCaptureFixture
) -> None:
    async with cut_off_stream(pulsar, operation_timeout_s=2) as (stream, _), asyncio.timeout(WITHIN_S):
        with pytest.raises(
            tidelog.UnavailableError, match="Pulsar answered ConnectError: check the address"
        ) as refused:
            await stream.as_producer(["anything"])

    assert refused.value.effect == "none"
    assert WAITS in caplog.text
