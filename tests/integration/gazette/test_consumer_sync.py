"""The synchronous consumer: the handler, the store and the publisher run on the caller's thread.

Method: as test_consumer, of which this is the short form.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tidelog import AsyncClient, Client
from tidelog.gazette.consumers._generated_consumer import Consumer
from tidelog.gazette.messages import Envelope
from tidelog.gazette.publisher import Publisher
from tidelog.gazette.stores import ConsumerFencedError, SqliteCheckpointStore
from tidelog.gazette.sync_append import JournalClient
from tidelog.testing import TestServer, start_server
from tidelog_testing.parts.gazette_records import Record, by_number, create_journals, new_record

INPUTS = ["numbers/in/part-0", "numbers/in/part-1"]
OUTPUTS = ["numbers/out/part-0", "numbers/out/part-1"]


@pytest.fixture
def server() -> Iterator[TestServer]:
    with start_server() as running:

        async def create() -> None:
            async with AsyncClient(running.endpoint) as client:
                await create_journals(client, [*INPUTS, *OUTPUTS])

        asyncio.run(create())
        yield running


def publish(client: Client, numbers: range) -> None:
    with JournalClient(client) as journals:
        publisher = Publisher(journals)
        for number in numbers:
            publisher.publish_uncommitted(by_number(INPUTS), Record(number))
        journals.flush()
        journals.write_ack_intents(publisher.build_ack_intents())


def consume(client: Client, path: Path, journals: list[str], until: int, fail_after: int = -1) -> list[int]:
    """Count until a number of messages; return the committed counts' numbers."""
    seen: list[int] = []
    thread = threading.get_ident()

    def handle(envelope: Envelope, transaction: sqlite3.Connection, publisher: Publisher) -> None:
        assert isinstance(envelope.message, Record)
        assert threading.get_ident() == thread
        number = envelope.message.number
        transaction.execute("CREATE TABLE IF NOT EXISTS counted (number INTEGER)")
        transaction.execute("INSERT INTO counted VALUES (?)", (number,))
        if journals is INPUTS:
            publisher.publish_uncommitted(by_number(OUTPUTS), Record(number))
        seen.append(number)
        if len(seen) == fail_after:
            raise ZeroDivisionError
        if len(seen) >= until:
            consumer.stop()

    with closing(SqliteCheckpointStore(path, "counting")) as store:
        consumer = Consumer(
            client, store, journals, new_record, handle, outputs=dict.fromkeys(OUTPUTS, Record()), max_messages=100,
            ring_size=32,
        )  # fmt: skip
        consumer.run()
    return counted(path)


def counted(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return sorted(number for (number,) in connection.execute("SELECT number FROM counted"))


def test_each_message_is_counted_and_published_once(server: TestServer, tmp_path: Path) -> None:
    with Client(server.endpoint) as client:
        publish(client, range(300))
        with pytest.raises(ZeroDivisionError):
            consume(client, tmp_path / "db", INPUTS, 300, fail_after=150)
        assert len(counted(tmp_path / "db")) == 100
        assert consume(client, tmp_path / "db", INPUTS, 200) == list(range(300))
        # Downstream, with another store: what was rolled back is not delivered.
        assert consume(client, tmp_path / "downstream.db", OUTPUTS, 300) == list(range(300))


def test_a_waiting_run_is_stopped_from_another_thread_and_a_later_instance_fences(
    server: TestServer, tmp_path: Path
) -> None:
    with Client(server.endpoint) as client:
        with closing(SqliteCheckpointStore(tmp_path / "db", "counting")) as store:
            consumer = Consumer(client, store, INPUTS, new_record, lambda *_: None)
            ending: list[Exception] = []
            running = threading.Thread(target=_run, args=(consumer.run, ending))
            running.start()
            while not consumer.is_running:
                threading.Event().wait(0.01)
            consumer.stop()
            running.join(30)
            assert ending == []
        with closing(SqliteCheckpointStore(tmp_path / "db", "counting")) as earlier:
            consumer = Consumer(client, earlier, INPUTS, new_record, lambda *_: None)
            running = threading.Thread(target=_run, args=(consumer.run, ending))
            running.start()
            while not consumer.is_running:
                threading.Event().wait(0.01)
            with closing(SqliteCheckpointStore(tmp_path / "db", "counting")) as later:
                later.acquire()
            publish(client, range(10))
            running.join(30)
            assert isinstance(ending[0], ConsumerFencedError)


def _run(run: Callable[[], None], ending: list[Exception]) -> None:
    try:
        run()
    except ConsumerFencedError as error:
        ending.append(error)
