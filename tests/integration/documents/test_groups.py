"""The pipeline of docs/guides/groups.md delivers each flight once. Method: run its two services on real flights, stop
the first one at several points, and compare the output with a plain computation.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tidelog
from examples.flights.flights import Flight, lane_of, read_flights
from tidelog import AsyncClient, At, Message
from tidelog.testing import TestServer
from tidelog_testing.documents.examples import examples_of, output_of, page
from tidelog_testing.parts.fixtures import client_with

PAGE = page("groups.md")
LANES = 4
FLIGHTS = 3_000
client = client_with(flights=LANES, delays=LANES, alerts=1)


@pytest.fixture(scope="module")
def services() -> SimpleNamespace:
    """The first program of the page, as a module."""
    names: dict[str, Any] = {}
    exec(compile(examples_of(PAGE)[0], "groups.md", "exec"), names)
    return SimpleNamespace(**names)


async def append_flights(client: AsyncClient, flights: list[Flight]) -> None:
    """Append flights in batches of 50, so that there are many points to stop at."""
    for lane in range(LANES):
        of_lane = [flight for flight in flights if lane_of(flight.carrier, LANES) == lane]
        for begin in range(0, len(of_lane), 50):
            await client.append(
                f"flights/{lane}",
                [Message(flight.payload, key=flight.carrier.encode()) for flight in of_lane[begin : begin + 50]],
            )


async def minutes(client: AsyncClient, vchannels: list[str]) -> list[tuple[bytes | None, int]]:
    """Return carrier and delay of each message."""
    return [
        (message.key, json.loads(message.payload)["minutes"])
        async for batch in client.scan(vchannels)
        for message in batch
    ]


async def consumed(client: AsyncClient, group: str, members: int = 1) -> None:
    """Return once a group with ``members`` members has committed everything."""
    while True:
        try:
            described = await client.describe_group(group)
            if not described.lag_messages and len(described.members) == members:
                return
        except tidelog.GroupNotFoundError:
            pass
        await asyncio.sleep(0.01)


@asynccontextmanager
async def running(*services: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run services, and raise an error of one of them."""
    tasks = [asyncio.create_task(service) for service in services]
    yield
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [error for error in ended if not isinstance(error, asyncio.CancelledError)] == []


async def stopped_after(
    endpoint: str, service: Callable[[AsyncClient], Coroutine[Any, Any, None]], batches: int
) -> None:
    """Run a service with its own client until ``delays`` has ``batches`` more batches, and stop it amid its work."""
    async with (
        AsyncClient(endpoint) as client,
        client.tail([f"delays/{lane}" for lane in range(LANES)], start=At.latest()) as delays,
    ):
        async with running(service(client)):
            for _ in range(batches):
                await anext(delays)


async def test_each_flight_is_counted_once_wherever_the_first_service_is_stopped(
    client: AsyncClient, services: SimpleNamespace
) -> None:
    flights = read_flights(FLIGHTS)
    expected = [
        (flight.carrier.encode(), flight.departure_delay) for flight in flights if flight.departure_delay is not None
    ]
    await append_flights(client, flights)

    for batches in (1, 3, 7):
        await stopped_after(client.endpoint, services.measure_delays, batches)
    async with running(
        services.measure_delays(client),
        services.raise_alerts(client, "alerter-1"),
        services.raise_alerts(client, "alerter-2"),
    ):
        await consumed(client, "delay-meter")
        await consumed(client, "alerter", members=2)
        members = {member.member_id for member in (await client.describe_group("alerter")).members}

    delays = await minutes(client, [f"delays/{lane}" for lane in range(LANES)])
    assert Counter(delays) == Counter(expected)
    alerts = await minutes(client, ["alerts/0"])
    assert Counter(alerts) == Counter(each for each in expected if each[1] > services.LONG_DELAY_MINUTES)
    assert len(alerts) > 50
    assert members == {"alerter-1", "alerter-2"}


async def test_delays_of_a_carrier_stay_in_the_order_of_its_flights(
    client: AsyncClient, services: SimpleNamespace
) -> None:
    flights = [flight for flight in read_flights(FLIGHTS) if flight.departure_delay is not None][:600]
    await append_flights(client, flights)

    async with running(services.measure_delays(client)):
        await consumed(client, "delay-meter")

    for lane in range(LANES):
        found = await minutes(client, [f"delays/{lane}"])
        assert found == [
            (flight.carrier.encode(), flight.departure_delay)
            for flight in flights
            if lane_of(flight.carrier, LANES) == lane
        ]


def test_the_example_of_slow_handlers_runs(tidelog_server: TestServer, tmp_path: Path) -> None:
    _, program = examples_of(PAGE)
    assert output_of(program, tidelog_server.endpoint, tmp_path) == "b'one' b'two'\n"


def test_what_the_page_names_exists() -> None:
    named = re.findall(r"`client\.(\w+)", PAGE)
    options = set(re.findall(r"`(\w+)(?:=\w+)?`", PAGE)) & {
        "auto_commit", "auto_commit_s", "lease_s", "release_within_s", "member_id", "skips_trimmed",
    }  # fmt: skip

    assert [name for name in named if not hasattr(AsyncClient, name)] == []
    assert len(options) == 6
    assert options <= set(tidelog.ConsumerOptions.__annotations__)
