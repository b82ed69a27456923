"""Fixtures: a namespace of its own for each module, a connection, and topics."""

import asyncio
from collections.abc import AsyncIterator
from itertools import count

import pytest

from tidelog.msgstream import AsyncPulsarMsgStreamFactory, PulsarBroker
from tidelog_testing.parts.pulsar_topics import NewTopics
from tidelog_testing.servers.pulsar import PulsarProcess

_numbers = count()


@pytest.fixture(scope="module")
def namespace(pulsar: PulsarProcess, request: pytest.FixtureRequest) -> str:
    name = f"public/integration-{request.module.__name__.rpartition('.')[2]}"
    pulsar.create_namespace(name)
    return name


@pytest.fixture
async def broker(pulsar: PulsarProcess, namespace: str) -> AsyncIterator[PulsarBroker]:
    async with PulsarBroker(pulsar.url, admin_url=pulsar.admin_url, namespace=namespace) as connection:
        yield connection


@pytest.fixture
def factory(broker: PulsarBroker) -> AsyncPulsarMsgStreamFactory:
    return AsyncPulsarMsgStreamFactory(broker)


@pytest.fixture
def new_topics(pulsar: PulsarProcess, broker: PulsarBroker) -> NewTopics:
    async def create(number: int) -> list[str]:
        names = [broker.topic(f"t{next(_numbers)}") for _ in range(number)]
        for name in names:
            await asyncio.to_thread(pulsar.create_topic, name)
        return names

    return create
