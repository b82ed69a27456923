"""A consumer handles each committed message once, with its state and what it publishes, across restarts and errors.

Method: consumers in this process against a real server, with SQLite as the store. An instance that crashes is one whose
handler or store raises, or whose task is cancelled; tests/crash kills processes.

Promises of docs/reference/guarantees.md: G48.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from tidelog import AsyncClient, Retry
from tidelog.errors import BufferFullError, TidelogError
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.gazette.checkpoints import Checkpoint
from tidelog.gazette.consumers import pages
from tidelog.gazette.consumers.consumer import DEFAULT_PRUNE_HORIZON_S, AsyncConsumer
from tidelog.gazette.errors import MissingJournalError, UnmarshalError
from tidelog.gazette.iterators import AsyncReadCommittedIter
from tidelog.gazette.messages import AckIntent, Envelope
from tidelog.gazette.publisher import AsyncPublisher
from tidelog.gazette.readers import AsyncRetryReader, ReadRequest
from tidelog.gazette.sequencer.core import StepSequencer
from tidelog.gazette.stores import AsyncSqliteCheckpointStore, AsyncTidelogCheckpointStore, ConsumerFencedError
from tidelog.gazette.uuids import Flags, build_uuid, get_flags
from tidelog.testing import server
from tidelog_testing.parts.gazette_records import (
    Record,
    by_number,
    committed,
    create_journals,
    new_record,
    to_journal,
)
from tidelog_testing.servers.processes import ServerProcess, lasting_port

INPUTS = ["numbers/in/part-0", "numbers/in/part-1"]
OUTPUTS = ["numbers/out/part-0", "numbers/out/part-1"]


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with server() as client:
        await create_journals(client, [*INPUTS, *OUTPUTS])
        yield client


class Counting:
    """A consumer that counts numbers in SQLite and publishes each of them; it stops at a number of distinct ones."""

    def __init__(self, client: AsyncClient, path: Path, until: int = 0, **options: Any) -> None:
        self.store = AsyncSqliteCheckpointStore(path, "counting")
        self.consumer = AsyncConsumer(
            client,
            self.store,
            INPUTS,
            new_record,
            self.handle,
            **{"outputs": dict.fromkeys(OUTPUTS, Record()), **options},
        )
        self.until = until
        self.seen: set[int] = set()
        # What fails after this many messages.
        self.fail_after = -1

    async def handle(self, envelope: Envelope, transaction: sqlite3.Connection, publisher: AsyncPublisher) -> None:
        record = envelope.message
        assert isinstance(record, Record)
        transaction.execute("CREATE TABLE IF NOT EXISTS counted (number INTEGER PRIMARY KEY, times INTEGER)")
        transaction.execute(
            "INSERT INTO counted VALUES (?, 1) ON CONFLICT DO UPDATE SET times = times + 1", (record.number,)
        )
        publisher.publish_uncommitted(by_number(OUTPUTS), Record(record.number))
        self.seen.add(record.number)
        self.fail_after -= 1
        if self.fail_after == 0:
            raise ZeroDivisionError("as arranged")
        if self.until and len(self.seen) >= self.until:
            await self.consumer.stop()

    async def run(self) -> None:
        async with aclosing(self.store):
            await asyncio.wait_for(self.consumer.run(), 60)


def counted(path: Path) -> dict[int, int]:
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'counted'").fetchall():
            return {}
        return dict(connection.execute("SELECT number, times FROM counted"))


async def checkpoint_in(path: Path, consumer: str = "counting") -> Checkpoint:
    async with aclosing(AsyncSqliteCheckpointStore(path, consumer)) as store:
        return await store.acquire()


@asynccontextmanager
async def publishing(client: AsyncClient) -> AsyncIterator[tuple[AsyncJournalClient, AsyncPublisher]]:
    async with AsyncJournalClient(client) as journals:
        yield journals, AsyncPublisher(journals)


async def publish(client: AsyncClient, numbers: Iterable[int], *, is_committed: bool = True) -> None:
    """Publish numbers in one transaction."""
    async with publishing(client) as (journals, publisher):
        for number in numbers:
            publisher.publish_uncommitted(by_number(INPUTS), Record(number))
            await journals.room()
        await journals.flush()
        if is_committed:
            await journals.write_ack_intents(publisher.build_ack_intents())


async def test_each_message_is_counted_and_published_once(client: AsyncClient, tmp_path: Path) -> None:
    await publish(client, range(500))
    await Counting(client, tmp_path / "db", 500).run()
    await publish(client, range(500, 900))
    second = Counting(client, tmp_path / "db", 400)
    await second.run()
    assert second.seen == set(range(500, 900))
    assert counted(tmp_path / "db") == dict.fromkeys(range(900), 1)
    assert await committed(client, OUTPUTS) == (list(range(900)), False)


async def test_a_reader_that_forgets_old_producers_keeps_a_consumer_that_has_published_nothing(
    client: AsyncClient, tmp_path: Path
) -> None:
    await publish(client, [0])
    # It publishes to the first output. The second has the acknowledgement of its start only.
    await Counting(client, tmp_path / "db", 1).run()
    sequencer = StepSequencer()
    async with publishing(client) as (journals, publisher):
        publisher.publish_committed(to_journal(OUTPUTS[1]), Record(1))
        await journals.flush()
        reader = AsyncRetryReader(journals, ReadRequest(OUTPUTS[1]))
        async with aclosing(AsyncReadCommittedIter(reader, new_record, sequencer)) as messages:
            flags = [get_flags(envelope.message.get_uuid()) async for envelope in messages]
    sequencer.consume()

    assert flags == [Flags.ACK_TXN, Flags.OUTSIDE_TXN]
    assert len(sequencer.checkpoint(DEFAULT_PRUNE_HORIZON_S).states) == 2


async def test_what_is_not_committed_is_not_handled(client: AsyncClient, tmp_path: Path) -> None:
    await publish(client, range(100), is_committed=False)
    await publish(client, range(100, 200))
    await Counting(client, tmp_path / "db", 100).run()
    assert counted(tmp_path / "db") == dict.fromkeys(range(100, 200), 1)


@pytest.mark.parametrize("max_messages", [1, 7, 1_000])
@pytest.mark.parametrize("fail_after", [1, 50, 150])
async def test_a_handler_that_fails_leaves_nothing(
    client: AsyncClient, tmp_path: Path, fail_after: int, max_messages: int
) -> None:
    await publish(client, range(100))
    await publish(client, range(100, 200))
    failing = Counting(client, tmp_path / "db", max_messages=max_messages)
    failing.fail_after = fail_after
    with pytest.raises(ZeroDivisionError):
        await failing.run()
    done = counted(tmp_path / "db")
    # What comes after the last commit is discarded, and nothing of it is visible downstream.
    assert fail_after - 1 - max_messages < len(done) < fail_after
    assert (await committed(client, OUTPUTS))[0] == sorted(done)
    await Counting(client, tmp_path / "db", 200 - len(done)).run()
    assert counted(tmp_path / "db") == dict.fromkeys(range(200), 1)
    assert await committed(client, OUTPUTS) == (list(range(200)), False)


async def test_a_transaction_larger_than_the_ring_is_replayed(client: AsyncClient, tmp_path: Path) -> None:
    await publish(client, range(2_000))
    await Counting(client, tmp_path / "db", 2_000, ring_size=16, max_messages=300).run()
    assert counted(tmp_path / "db") == dict.fromkeys(range(2_000), 1)
    assert await committed(client, OUTPUTS) == (list(range(2_000)), False)


async def test_a_crash_within_a_large_transaction_resumes_within_it(client: AsyncClient, tmp_path: Path) -> None:
    await publish(client, range(1_000))
    failing = Counting(client, tmp_path / "db", ring_size=16, max_messages=300)
    failing.fail_after = 700
    with pytest.raises(ZeroDivisionError):
        await failing.run()
    assert sum(counted(tmp_path / "db").values()) == 600
    resumed = Counting(client, tmp_path / "db", 400)
    await resumed.run()
    assert len(resumed.seen) == 400
    assert counted(tmp_path / "db") == dict.fromkeys(range(1_000), 1)


async def test_intents_of_the_last_commit_are_appended_before_anything_is_read(
    client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(client, range(10))
    # The process ends between the commit of the store and the first acknowledgement.
    crashing = Counting(client, tmp_path / "db")
    commit = crashing.store.commit
    commits = 0

    async def commit_and_crash(checkpoint: Checkpoint) -> None:
        nonlocal commits
        await commit(checkpoint)
        commits += 1
        # The first one is that of the outputs.
        if commits == 2:
            raise ConnectionError("crashed after the commit")

    monkeypatch.setattr(crashing.store, "commit", commit_and_crash)
    with pytest.raises(ConnectionError):
        await crashing.run()
    visible, _ = await committed(client, OUTPUTS)
    assert visible == []
    assert len(counted(tmp_path / "db")) > 0
    # The next instance cannot read: its new_message fails. The acknowledgements are there nevertheless.
    reading = Counting(client, tmp_path / "db", 10)

    def refuse(_: object) -> Record:
        raise ZeroDivisionError("nothing can be read")

    reading.consumer = AsyncConsumer(client, reading.store, INPUTS, refuse, reading.handle)
    await publish(client, [10])
    with pytest.raises(UnmarshalError, match="nothing can be read"):
        await reading.run()
    visible, is_open = await committed(client, OUTPUTS)
    assert visible == sorted(counted(tmp_path / "db"))
    assert not is_open


async def test_an_earlier_instance_is_fenced_and_loses_nothing(client: AsyncClient, tmp_path: Path) -> None:
    await publish(client, range(50))
    earlier = Counting(client, tmp_path / "db")
    running = asyncio.create_task(earlier.run())
    while len(counted(tmp_path / "db")) < 50:
        await asyncio.sleep(0.02)
    later = Counting(client, tmp_path / "db", 50)
    taking_over = asyncio.create_task(later.run())
    # The earlier one does not know yet that it was replaced.
    while not later.consumer.is_running:
        await asyncio.sleep(0.02)
    await publish(client, range(50, 100))
    with pytest.raises(ConsumerFencedError):
        await running
    await taking_over
    assert counted(tmp_path / "db") == dict.fromkeys(range(100), 1)
    visible, _ = await committed(client, OUTPUTS)
    assert visible == list(range(100))


async def test_a_cancelled_run_resumes(client: AsyncClient, tmp_path: Path) -> None:
    await publish(client, range(300))
    counting = Counting(client, tmp_path / "db", max_messages=10)
    running = asyncio.create_task(counting.run())
    while len(counting.seen) < 30:
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    left = 300 - len(counted(tmp_path / "db"))
    await Counting(client, tmp_path / "db", left).run()
    assert counted(tmp_path / "db") == dict.fromkeys(range(300), 1)
    assert await committed(client, OUTPUTS) == (list(range(300)), False)


async def test_a_run_after_an_error_waits_for_what_the_one_before_has_sent(tmp_path: Path) -> None:
    """Otherwise a batch that is sent again after the server's restart could be stored behind its roll-back."""
    settings = lasting_port()
    servers = [ServerProcess(tmp_path / "data", settings)]
    seen: set[int] = set()

    async def handle(envelope: Envelope, _: sqlite3.Connection, publisher: AsyncPublisher) -> None:
        assert isinstance(envelope.message, Record)
        number = envelope.message.number
        publisher.publish_uncommitted(to_journal(OUTPUTS[0]), Record(number))
        if number == 5 and number not in seen:
            servers[0].kill()
            for extra in range(100, 104):
                # Sent in batches of their own, of which none is answered.
                for _turn in range(5):
                    await asyncio.sleep(0)
                publisher.publish_uncommitted(to_journal(OUTPUTS[0]), Record(extra))
            seen.add(number)
            raise ZeroDivisionError
        seen.add(number)
        if number == 9:
            await consumer.stop()

    try:
        async with (
            AsyncClient(servers[0].grpc, retry=Retry(base_s=0.02, cap_s=0.2)) as client,
            aclosing(AsyncSqliteCheckpointStore(tmp_path / "db", "counting")) as store,
        ):
            await create_journals(client, [*INPUTS, *OUTPUTS])
            async with publishing(client) as (journals, publisher):
                for number in range(10):
                    publisher.publish_committed(to_journal(INPUTS[0]), Record(number))
                await journals.flush()
            consumer = AsyncConsumer(
                client, store, INPUTS[:1], new_record, handle, outputs={OUTPUTS[0]: Record()}, max_messages=2
            )
            with pytest.raises(ZeroDivisionError):
                await consumer.run()
            resumed = asyncio.create_task(consumer.run())
            servers.append(await asyncio.to_thread(ServerProcess, tmp_path / "data", settings))
            await asyncio.wait_for(resumed, 60)
            assert await committed(client, OUTPUTS) == (list(range(10)), False)
    finally:
        for server_process in servers:
            server_process.kill()


async def test_positions_are_those_of_the_last_commit(client: AsyncClient, tmp_path: Path) -> None:
    await publish(client, range(20))
    await Counting(client, tmp_path / "db", 20).run()
    checkpoint = await checkpoint_in(tmp_path / "db")
    assert set(checkpoint.offsets) <= set(INPUTS)
    assert {intent.journal for intent in checkpoint.intents} == set(OUTPUTS)


async def test_with_a_store_in_tidelog_state_and_output_are_in_one_server(client: AsyncClient) -> None:
    await publish(client, range(100))
    await client.create_channel("counted")
    store = AsyncTidelogCheckpointStore(client, "counting")
    seen: list[int] = []

    async def handle(envelope: Envelope, transaction: Any, publisher: AsyncPublisher) -> None:
        assert isinstance(envelope.message, Record)
        number = envelope.message.number
        await transaction.append("counted", b"%d" % number)
        publisher.publish_uncommitted(to_journal(OUTPUTS[0]), Record(number))
        seen.append(number)
        if len(seen) == 60:
            raise ZeroDivisionError

    async def is_behind() -> bool:
        group = await client.describe_group("counting")
        return len(set(seen)) < 100 or group.lag_messages > 0

    consumer = AsyncConsumer(client, store, INPUTS, new_record, handle, max_messages=25)
    async with aclosing(store):
        with pytest.raises(ZeroDivisionError):
            await consumer.run()
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(consumer.run())
            # The first run may have handled all messages of an input without committing the position behind them.
            while await is_behind():
                pass
            await consumer.stop()
    payloads = [int(payload) async for batch in client.scan("counted") for payload in batch.payloads]
    assert sorted(payloads) == list(range(100))
    assert (await committed(client, OUTPUTS))[0] == list(range(100))
    # The group of the consumer has its positions, for retention and for lag.
    group = await client.describe_group("counting")
    assert len(group.positions) == len(INPUTS)
    assert group.lag_messages == 0


class CountingStore(AsyncTidelogCheckpointStore):
    """A store that counts its commits; one in Tidelog does not wait between two messages."""

    commits = 0

    async def commit(self, checkpoint: Checkpoint) -> None:
        await super().commit(checkpoint)
        self.commits += 1


async def publish_in_small_batches(client: AsyncClient, batches: int) -> None:
    """Publish transactions of 5 numbers to one journal, each appended as a batch of its own."""
    async with publishing(client) as (journals, publisher):
        for batch in range(batches):
            for number in range(batch * 5, batch * 5 + 5):
                publisher.publish_uncommitted(to_journal(INPUTS[0]), Record(number))
            await journals.write_ack_intents(publisher.build_ack_intents())


async def test_a_backlog_of_small_batches_is_committed_in_large_transactions(client: AsyncClient) -> None:
    await publish_in_small_batches(client, 200)
    store = CountingStore(client, "counting")
    seen: list[int] = []

    async def handle(envelope: Envelope, _: Any, __: AsyncPublisher) -> None:
        assert isinstance(envelope.message, Record)
        seen.append(envelope.message.number)
        if len(seen) == 1_000:
            await consumer.stop()

    consumer = AsyncConsumer(client, store, INPUTS, new_record, handle, max_messages=250, max_delay_s=60)
    # Not with a timeout on each step: that would yield to the reads.
    running = asyncio.create_task(consumer.run())
    async with aclosing(store), asyncio.timeout(60):
        await running
    assert seen == list(range(1_000))
    # 4 commits at the limit and the last one; a machine that stops for more than the linger adds some.
    assert 4 <= store.commits <= 20


async def test_a_transaction_is_committed_in_time_within_a_replay(client: AsyncClient) -> None:
    async with publishing(client) as (journals, publisher):
        for number in range(1_000):
            publisher.publish_uncommitted(to_journal(INPUTS[0]), Record(number))
            if number % 100 == 99:
                # Each flush ends a batch, and each batch is a page of the replay.
                await journals.flush()
        await journals.write_ack_intents(publisher.build_ack_intents())
    store = CountingStore(client, "counting")
    commits: list[int] = []

    async def handle(envelope: Envelope, _: Any, __: AsyncPublisher) -> None:
        assert isinstance(envelope.message, Record)
        commits.append(store.commits)
        if envelope.message.number == 999:
            await consumer.stop()

    consumer = AsyncConsumer(client, store, INPUTS, new_record, handle, max_messages=5_000, max_delay_s=0, ring_size=4)
    async with aclosing(store), asyncio.timeout(60):
        await consumer.run()
    assert len(commits) == 1_000
    # The positions of the pages are committed before the replay; within it, each page but the last ends a transaction.
    assert commits[-1] - commits[0] >= 8


async def test_acknowledgements_alone_begin_no_transaction_and_move_the_positions(client: AsyncClient) -> None:
    async with publishing(client) as (journals, publisher):
        for _ in range(20):
            acknowledgement = Record()
            acknowledgement.set_uuid(build_uuid(publisher.producer_id, publisher.clock.tick(), int(Flags.ACK_TXN)))
            frame = json.dumps(acknowledgement.to_json()).encode() + b"\n"
            await journals.write_ack_intents([AckIntent(INPUTS[1], frame)])
    store = CountingStore(client, "counting")

    async def refuse(*_: object) -> None:
        raise AssertionError("an acknowledgement was handled")

    consumer = AsyncConsumer(client, store, INPUTS, new_record, refuse, max_delay_s=0.5)
    running = asyncio.create_task(consumer.run())
    async with aclosing(store), asyncio.timeout(60):
        while not store.commits:
            await asyncio.sleep(0.01)
        await consumer.stop()
        await running
    # Each page was a transaction, up to 20; now one for each max_delay_s in which positions moved.
    assert store.commits <= 3
    group = await client.describe_group("counting")
    assert len(group.positions) == 1


async def test_a_read_that_ends_is_an_error_that_names_the_journal(
    client: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bounded(name: str, **options: Any) -> ReadRequest:
        return ReadRequest(name, **{**options, "block": False})

    monkeypatch.setattr(pages, "ReadRequest", bounded)
    with pytest.raises(TidelogError, match=r"the read of journal numbers/in/part-[01] has ended"):
        await Counting(client, tmp_path / "db").run()


async def test_a_handler_publishes_as_much_as_the_option_allows(client: AsyncClient, tmp_path: Path) -> None:
    await publish(client, [0])

    async def handle(_: Envelope, __: sqlite3.Connection, publisher: AsyncPublisher) -> None:
        for number in range(100):
            publisher.publish_uncommitted(to_journal(OUTPUTS[0]), Record(number))
        await consumer.stop()

    async with aclosing(AsyncSqliteCheckpointStore(tmp_path / "db", "publishing")) as store:
        consumer = AsyncConsumer(client, store, INPUTS, new_record, handle, max_pending_bytes=2_000)
        with pytest.raises(BufferFullError, match="raise max_pending_bytes"):
            await consumer.run()
        assert (await committed(client, OUTPUTS))[0] == []
        consumer = AsyncConsumer(client, store, INPUTS, new_record, handle, max_pending_bytes=40_000)
        async with asyncio.timeout(60):
            await consumer.run()
        assert (await committed(client, OUTPUTS))[0] == list(range(100))


async def test_a_stop_before_the_run_ends_that_run_only(client: AsyncClient, tmp_path: Path) -> None:
    await publish(client, range(10))
    counting = Counting(client, tmp_path / "db", 10)
    await counting.consumer.stop()
    await counting.run()
    assert counting.seen == set()
    await counting.run()
    assert counted(tmp_path / "db") == dict.fromkeys(range(10), 1)


async def test_a_missing_journal_is_named(client: AsyncClient, tmp_path: Path) -> None:
    async with aclosing(AsyncSqliteCheckpointStore(tmp_path / "db", "counting")) as store:
        consumer = AsyncConsumer(client, store, ["no/such/journal"], new_record, Counting(client, tmp_path).handle)
        with pytest.raises(MissingJournalError, match="no/such/journal"):
            await consumer.run()


@pytest.mark.parametrize(
    ("journals", "options", "text"),
    [
        ([], {}, "no journals"),
        (INPUTS, {"max_messages": 0}, "max_messages is 0"),
        (INPUTS, {"max_pending_bytes": 0}, "max_pending_bytes is 0"),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, journals: list[str], options: dict[str, Any], text: str) -> None:
    client = AsyncClient()
    store = AsyncSqliteCheckpointStore(tmp_path / "db", "counting")
    handler: Callable[..., Any] = Counting(client, tmp_path / "db").handle
    with pytest.raises(ValueError, match=text):
        AsyncConsumer(client, store, journals, new_record, handler, **options)
