"""The example from beginning to end."""

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final

from rich.console import Console

from examples.exactly_once.messages import (
    ALERT_FROM_MINUTES,
    ALERTS,
    CONTENT_TYPE,
    FLIGHTS,
    FlightMessage,
    flights_mapping,
    new_flight,
)
from examples.exactly_once.totals import Database, Totals, database_of
from examples.flights.flights import Flight, read_flights
from examples.flights.server import MortalServer
from tidelog import AsyncClient
from tidelog.gazette import (
    AsyncJournalClient,
    AsyncPublisher,
    AsyncReadCommittedIter,
    AsyncRetryReader,
    Flags,
    ReadRequest,
    StepSequencer,
    get_flags,
)
from tidelog.journals.labels import CONTENT_TYPE_LABEL, LabelSet
from tidelog.journals.types import JournalUpsert
from tidelog_cli.exit_codes import CommandError

COMPLETE_WITHIN_S: Final = 120.0
BATCH: Final = 50
PAUSE_S: Final = 0.04


def run_example(place: str, *, flights: int, kills: int) -> None:
    """Publish flights, kill their consumer at random, and compare its totals and alerts with a plain sum.

    Args:
        place: ``sqlite:PATH`` or ``postgres:CONNINFO``, without totals; empty for SQLite in a temporary folder.
        flights: Number of flights.
        kills: How often the consumer is killed.

    Raises:
        CommandError: Totals or alerts differ from the plain sum, or the consumer failed.
    """
    source = read_flights(flights)
    with tempfile.TemporaryDirectory(prefix="tidelog-example-") as folder:
        place = place or f"sqlite:{Path(folder) / 'totals.db'}"
        database = database_of(place)
        database.create()
        server = MortalServer(Path(folder) / "data", {})
        try:
            asyncio.run(publish_and_kill(server.grpc, place, source, kills))
            complete(server.grpc, place, database, len(source))
            compare(database.totals(), asyncio.run(read_alerts(server.grpc)), source)
        finally:
            server.stop()


async def create_journals(endpoint: str) -> None:
    """Create the journals of flights and alerts."""
    labels = LabelSet.of({CONTENT_TYPE_LABEL: CONTENT_TYPE})
    async with AsyncClient(endpoint) as client:
        await client.journals.apply([JournalUpsert(name, labels) for name in (*FLIGHTS, ALERTS)])


async def publish_and_kill(endpoint: str, place: str, source: Sequence[Flight], kills: int) -> None:
    """Publish the flights for immediate consumption, while their consumer runs and is killed."""
    await create_journals(endpoint)
    async with AsyncClient(endpoint) as client, AsyncJournalClient(client) as journals:
        publisher = AsyncPublisher(journals)
        part = -(-len(source) // (kills + 1))
        for number in range(kills + 1):
            flights = source[number * part : (number + 1) * part]
            if number == kills:
                await publish(journals, publisher, flights)
                return
            killing = asyncio.to_thread(run_worker, endpoint, place, random.uniform(1, 3))
            await asyncio.gather(publish(journals, publisher, flights), killing)
            Console().print(f"killed the consumer; it has counted {counted(database_of(place)):,} flights")


async def publish(journals: AsyncJournalClient, publisher: AsyncPublisher, flights: Sequence[Flight]) -> None:
    """Publish flights, within a few seconds."""
    for begin in range(0, len(flights), BATCH):
        for flight in flights[begin : begin + BATCH]:
            message = FlightMessage(flight.line, flight.carrier, flight.arrival_delay)
            publisher.publish_committed(flights_mapping, message)
        await journals.flush()
        await asyncio.sleep(PAUSE_S)


def run_worker(endpoint: str, place: str, seconds: float) -> None:
    """Run the consumer for some seconds, and kill it."""
    with subprocess.Popen(worker_command(endpoint, place)) as worker:
        try:
            worker.wait(seconds)
        except subprocess.TimeoutExpired:
            worker.kill()
        else:
            raise CommandError(f"the consumer ended with {worker.returncode}, expected that it runs until it is killed")


def complete(endpoint: str, place: str, database: Database, flights: int) -> None:
    """Run the consumer until it has counted all flights, and let it append its last acknowledgements."""
    deadline_s = time.monotonic() + COMPLETE_WITHIN_S
    with subprocess.Popen(worker_command(endpoint, place)) as worker:
        try:
            while (count := counted(database)) < flights:
                if worker.poll() is not None or time.monotonic() > deadline_s:
                    raise CommandError(f"the consumer has counted {count} flights, expected {flights}")
                time.sleep(0.1)
            worker.terminate()
            if worker.wait(COMPLETE_WITHIN_S):
                raise CommandError(f"the consumer ended with {worker.returncode}, expected 0")
        finally:
            worker.kill()


def worker_command(endpoint: str, place: str) -> list[str]:
    """Return the command of the consumer."""
    return [sys.executable, "-m", "examples.exactly_once.worker", endpoint, place]


def counted(database: Database) -> int:
    """Return the number of flights in the totals."""
    return sum(flights for flights, _ in database.totals().values())


async def read_alerts(endpoint: str) -> Counter[int]:
    """Return how often each flight has a committed alert."""
    lines: Counter[int] = Counter()
    async with AsyncClient(endpoint) as client, AsyncJournalClient(client) as journals:
        reader = AsyncRetryReader(journals, ReadRequest(ALERTS))
        async with aclosing(AsyncReadCommittedIter(reader, new_flight, StepSequencer())) as alerts:
            async for envelope in alerts:
                assert isinstance(envelope.message, FlightMessage)
                if get_flags(envelope.message.get_uuid()) != Flags.ACK_TXN:
                    lines[envelope.message.line] += 1
    return lines


def compare(totals: Totals, alerts: Counter[int], source: Sequence[Flight]) -> None:
    """Compare with a plain sum, and print the result."""
    flights: Counter[str] = Counter()
    delays: Counter[str] = Counter()
    for flight in source:
        flights[flight.carrier] += 1
        delays[flight.carrier] += flight.arrival_delay or 0
    expected = {carrier: (flights[carrier], delays[carrier]) for carrier in flights}
    late = Counter(flight.line for flight in source if (flight.arrival_delay or 0) >= ALERT_FROM_MINUTES)
    if totals != expected:
        raise CommandError(f"the totals are {totals}, expected {expected}")
    if alerts != late:
        raise CommandError(f"there are {alerts.total()} alerts, expected {late.total()}, one for each long delay")
    Console().print(
        f"{len(source):,} flights of {len(totals)} carriers and {late.total():,} alerts: equal to a plain sum"
    )
