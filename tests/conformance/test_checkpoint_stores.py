"""Every checkpoint store commits a checkpoint with the state or neither, and lets only the latest instance commit.

Method: the same tests on SQLite, on a real PostgreSQL, on a Tidelog server, and on the synchronous twins of the three,
which run on threads.

Promises of docs/reference/guarantees.md: G48.
"""

import asyncio
import itertools
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tidelog import AsyncClient, Client
from tidelog.errors import InvalidRequestError, TransactionStateError, UnavailableError
from tidelog.gazette.checkpoints import Checkpoint, JournalProducer, ProducerState
from tidelog.gazette.messages import AckIntent
from tidelog.gazette.stores import (
    AsyncCheckpointStore,
    AsyncSqliteCheckpointStore,
    AsyncTidelogCheckpointStore,
    ConsumerFencedError,
    on_tidelog,
)
from tidelog.gazette.stores.on_tidelog import COMMITS_PER_TRIM, POSITIONS_PER_TRANSACTION, moved_positions
from tidelog.gazette.stores.postgres import AsyncPostgresCheckpointStore
from tidelog.gazette.uuids import new_producer_id
from tidelog.journals.types import JournalUpsert
from tidelog.testing import TestServer, start_server
from tidelog.tick import Tick
from tidelog_testing.parts.checkpoint_stores import PostgresStores, SqliteStores, StoreKind, TidelogStores
from tidelog_testing.servers.postgres import PostgresProcess

KINDS = [
    "sqlite", "sqlite, synchronous", "postgres", "postgres, synchronous", "tidelog", "tidelog, synchronous",
]  # fmt: skip
NUMBERS = itertools.count()


def saved(intent: bytes) -> Checkpoint:
    """Return a checkpoint without journals that are read, so that no group is needed."""
    return Checkpoint(intents=(AckIntent("any/journal", intent),))


ANY_CHECKPOINT = saved(bytes(range(256)))


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresProcess]:
    with PostgresProcess() as running:
        yield running


@pytest.fixture(scope="module")
def tidelog_server() -> Iterator[TestServer]:
    with start_server() as running:
        yield running


@pytest.fixture(params=KINDS)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreKind]:
    is_synchronous = request.param.endswith("synchronous")
    if request.param.startswith("sqlite"):
        yield SqliteStores(tmp_path / "state.db", is_synchronous=is_synchronous)
    elif request.param.startswith("postgres"):
        yield PostgresStores(request.getfixturevalue("postgres"), is_synchronous=is_synchronous)
    else:
        endpoint = request.getfixturevalue("tidelog_server").endpoint
        async with AsyncClient(endpoint) as client:
            with Client(endpoint) as synchronous:
                on_tidelog = TidelogStores(client, synchronous if is_synchronous else None, f"test{next(NUMBERS)}")
                await on_tidelog.open()
                yield on_tidelog


@pytest.fixture
async def store(stores: StoreKind) -> AsyncIterator[AsyncCheckpointStore[Any]]:
    async with aclosing(stores.new()) as opened:
        yield opened


async def test_a_new_consumer_has_no_checkpoint(store: AsyncCheckpointStore[Any]) -> None:
    assert await store.acquire() == Checkpoint()


async def test_a_commit_is_there_for_the_next_instance_with_its_state(
    stores: StoreKind, store: AsyncCheckpointStore[Any]
) -> None:
    await store.acquire()
    await stores.write(await store.begin(), "a")
    await store.commit(ANY_CHECKPOINT)
    await stores.write(await store.begin(), "b")
    await store.commit(saved(b"second"))
    async with aclosing(stores.new()) as next_instance:
        assert await next_instance.acquire() == saved(b"second")
    assert await stores.keys() == ["a", "b"]


async def test_any_checkpoint_is_kept(store: AsyncCheckpointStore[Any]) -> None:
    for checkpoint in (ANY_CHECKPOINT, Checkpoint(), saved(b"\0"), saved(b"x" * 3_000_000)):
        await store.acquire()
        await store.begin()
        await store.commit(checkpoint)
        assert await store.acquire() == checkpoint


async def test_a_rollback_discards_the_state_and_keeps_the_checkpoint(
    stores: StoreKind, store: AsyncCheckpointStore[Any]
) -> None:
    await store.acquire()
    await store.begin()
    await store.commit(saved(b"first"))
    await stores.write(await store.begin(), "discarded")
    await store.rollback()
    await store.rollback()
    await stores.write(await store.begin(), "kept")
    await store.commit(saved(b"second"))
    assert await stores.keys() == ["kept"]


@pytest.mark.parametrize("end", ["aclose", "acquire"])
async def test_closing_and_acquiring_discard_an_open_transaction(
    stores: StoreKind, store: AsyncCheckpointStore[Any], end: str
) -> None:
    await store.acquire()
    await stores.write(await store.begin(), "discarded")
    await getattr(store, end)()
    assert await stores.keys() == []
    assert await store.acquire() == Checkpoint()


async def test_an_earlier_instance_cannot_commit(stores: StoreKind, store: AsyncCheckpointStore[Any]) -> None:
    await store.acquire()
    await store.begin()
    await store.commit(saved(b"of the earlier"))
    async with aclosing(stores.new()) as later:
        assert await later.acquire() == saved(b"of the earlier")
        with pytest.raises(ConsumerFencedError, match="consumer 'flights' was acquired by a later instance") as caught:
            await stores.write(await store.begin(), "of the earlier")
            await store.commit(saved(b"too late"))
        assert caught.value.effect == "none"
        assert caught.value.consumer == "flights"
        await stores.write(await later.begin(), "of the later")
        await later.commit(saved(b"of the later"))
        # The one that acquired last commits, whichever it is.
        assert await store.acquire() == saved(b"of the later")
        await stores.write(await store.begin(), "taken back")
        await store.commit(saved(b"taken back"))
        with pytest.raises(ConsumerFencedError):
            await later.begin()
            await later.commit(saved(b"too late"))
    assert await stores.keys() == ["of the later", "taken back"]


async def test_consumers_of_other_names_do_not_fence_each_other(stores: StoreKind) -> None:
    async with AsyncExitStack() as stack:
        for name in ("first", "second", "it's \N{LATIN SMALL LETTER U WITH DIAERESIS}"):
            other = await stack.enter_async_context(aclosing(stores.new(name)))
            assert await other.acquire() == Checkpoint()
            await stores.write(await other.begin(), name)
            await other.commit(saved(name.encode()))
        assert len(await stores.keys()) == 3


async def test_of_instances_that_acquire_at_once_exactly_one_can_commit(stores: StoreKind) -> None:
    async with AsyncExitStack() as stack:
        instances = [await stack.enter_async_context(aclosing(stores.new())) for _ in range(6)]
        assert await asyncio.gather(*(each.acquire() for each in instances)) == [Checkpoint()] * 6
        committed = 0
        for each in instances:
            try:
                await each.begin()
                await each.commit(saved(b"committed"))
            except ConsumerFencedError:
                continue
            committed += 1
        assert committed == 1


async def test_calls_in_the_wrong_order_say_what_comes_first(store: AsyncCheckpointStore[Any]) -> None:
    with pytest.raises(RuntimeError, match="not acquired: call acquire first"):
        await store.begin()
    await store.acquire()
    with pytest.raises(RuntimeError, match="no open transaction: call begin first"):
        await store.commit(saved(b""))
    await store.begin()
    with pytest.raises(RuntimeError, match="has an open transaction: commit it or roll it back first"):
        await store.begin()
    await store.commit(saved(b""))


async def test_a_handler_that_ends_the_transaction_is_reported(
    stores: StoreKind, store: AsyncCheckpointStore[Any]
) -> None:
    await store.acquire()
    transaction = await store.begin()
    await stores.write(transaction, "committed by the handler")
    await stores.end(transaction)
    with pytest.raises(RuntimeError, match="ended by the handler"):
        await store.commit(saved(b"not committed"))
    assert await store.acquire() == Checkpoint()


async def test_a_name_is_required(stores: StoreKind) -> None:
    with pytest.raises(ValueError, match="name of the consumer is empty"):
        stores.new("")


async def check_takeover(stores: StoreKind) -> None:
    async with aclosing(stores.new()) as earlier, aclosing(stores.new()) as later:
        await earlier.acquire()
        await stores.write(await earlier.begin(), "of the earlier")
        assert await later.acquire() == Checkpoint()
        with pytest.raises(ConsumerFencedError):
            await earlier.commit(saved(b"too late"))
        await stores.write(await later.begin(), "of the later")
        await later.commit(saved(b"of the later"))
    assert await stores.keys() == ["of the later"]


async def test_postgres_takes_over_from_an_instance_in_the_middle_of_a_transaction(postgres: PostgresProcess) -> None:
    await check_takeover(PostgresStores(postgres, is_synchronous=False))


async def test_sqlite_takes_over_after_the_transaction_of_an_instance(tmp_path: Path) -> None:
    stores = SqliteStores(tmp_path / "state.db", is_synchronous=False)
    async with aclosing(stores.new()) as earlier, aclosing(stores.new()) as later:
        await earlier.acquire()
        await stores.write(await earlier.begin(), "of the earlier")
        acquiring = asyncio.create_task(later.acquire())
        await earlier.commit(saved(b"in time"))
        assert await acquiring == saved(b"in time")
        with pytest.raises(ConsumerFencedError):
            await earlier.begin()
    assert await stores.keys() == ["of the earlier"]


async def test_sqlite_reports_a_lock_that_is_held_too_long(tmp_path: Path) -> None:
    async with aclosing(AsyncSqliteCheckpointStore(tmp_path / "state.db", "flights")) as holder:
        await holder.acquire()
        await holder.begin()
        async with aclosing(AsyncSqliteCheckpointStore(tmp_path / "state.db", "flights", lock_timeout_s=0)) as waiting:
            with pytest.raises(sqlite3.OperationalError, match="locked"):
                await waiting.acquire()
            await holder.commit(saved(b"kept"))
            assert await waiting.acquire() == saved(b"kept")


async def test_sqlite_syncs_each_commit(tmp_path: Path) -> None:
    async with aclosing(AsyncSqliteCheckpointStore(tmp_path / "state.db", "flights")) as store:
        await store.acquire()
        connection = await store.begin()
        assert connection.execute("PRAGMA synchronous").fetchone()[0] >= 2


async def test_postgres_commits_are_durable_whatever_the_database_is_set_to(postgres: PostgresProcess) -> None:
    postgres.execute("ALTER ROLE tidelog SET synchronous_commit = off")
    try:
        async with aclosing(AsyncPostgresCheckpointStore(postgres.conninfo, "flights")) as store:
            await store.acquire()
            connection = await store.begin()
            assert await (await connection.execute("SHOW synchronous_commit")).fetchone() == ("on",)
    finally:
        postgres.execute("ALTER ROLE tidelog RESET synchronous_commit")


async def test_postgres_reconnects_after_its_connection_broke(postgres: PostgresProcess) -> None:
    stores = PostgresStores(postgres, is_synchronous=False)
    async with aclosing(AsyncPostgresCheckpointStore(postgres.conninfo, "flights")) as store:
        await store.acquire()
        connection = await store.begin()
        await stores.write(connection, "lost")
        postgres.execute("SELECT pg_terminate_backend(%s)", connection.info.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            await store.commit(saved(b"lost"))
        assert await store.acquire() == Checkpoint()
        await stores.write(await store.begin(), "kept")
        await store.commit(saved(b"kept"))
    assert await stores.keys() == ["kept"]


async def test_postgres_reports_a_constraint_that_fails_at_the_commit(postgres: PostgresProcess) -> None:
    stores = PostgresStores(postgres, is_synchronous=False)
    postgres.execute("CREATE TABLE IF NOT EXISTS pairs (key text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    async with aclosing(AsyncPostgresCheckpointStore(postgres.conninfo, "flights")) as store:
        await store.acquire()
        connection = await store.begin()
        await stores.write(connection, "discarded")
        await connection.execute("INSERT INTO pairs VALUES ('twice'), ('twice')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            await store.commit(saved(b"discarded"))
        assert await store.acquire() == Checkpoint()
    assert await stores.keys() == []


async def test_a_role_without_the_right_to_create_tables_uses_the_existing_one(postgres: PostgresProcess) -> None:
    PostgresStores(postgres, is_synchronous=False)
    async with aclosing(AsyncPostgresCheckpointStore(postgres.conninfo, "flights")) as owner:
        await owner.acquire()
    postgres.execute("DROP ROLE IF EXISTS guest")
    postgres.execute("CREATE ROLE guest LOGIN")
    postgres.execute("GRANT SELECT, INSERT, UPDATE ON tidelog_checkpoints TO guest")
    guest = postgres.conninfo.replace("user=tidelog", "user=guest")
    async with aclosing(AsyncPostgresCheckpointStore(guest, "flights")) as store:
        assert await store.acquire() == Checkpoint()
        await store.begin()
        await store.commit(saved(b"by the guest"))
    postgres.execute("DROP OWNED BY guest")


async def test_tidelog_takes_over_from_an_instance_in_the_middle_of_a_transaction(tidelog_server: TestServer) -> None:
    async with AsyncClient(tidelog_server.endpoint) as client:
        stores = TidelogStores(client, None, f"test{next(NUMBERS)}")
        await stores.open()
        await check_takeover(stores)


async def test_tidelog_deletes_old_checkpoints(tidelog_server: TestServer) -> None:
    async with AsyncClient(tidelog_server.endpoint) as client:
        store = AsyncTidelogCheckpointStore(client, "trimmed")
        await store.acquire()
        for number in range(2 * COMMITS_PER_TRIM + 1):
            await store.begin()
            await store.commit(saved(b"%d" % number))
        left = [message.payload async for batch in client.scan("gazette.checkpoints.trimmed") for message in batch]
        last = saved(b"%d" % (2 * COMMITS_PER_TRIM))
        assert left == [saved(b"%d" % (2 * COMMITS_PER_TRIM - 1)).encode(), last.encode()]
        assert await store.acquire() == last
        left = [message.payload async for batch in client.scan("gazette.checkpoints.trimmed") for message in batch]
        assert left == [last.encode()]


async def test_tidelog_moves_the_group_of_the_consumer_to_what_may_be_read_again(tidelog_server: TestServer) -> None:
    async with AsyncClient(tidelog_server.endpoint) as client:
        names = ["positions/first", "positions/second"]
        channels = [each.channel for each in await client.journals.apply([JournalUpsert(name) for name in names])]
        ticks = [[(await client.append(channel, b"frame")).first_tick for _ in range(3)] for channel in channels]
        producer = JournalProducer(names[1], new_producer_id())
        # In the second journal a transaction is open since the second frame; the third does not exist any more.
        offsets = {names[0]: ticks[0][2] + 1, names[1]: ticks[1][2] + 1, "positions/missing": 1}
        async with aclosing(AsyncTidelogCheckpointStore(client, "positions")) as store:
            await store.acquire()
            await store.begin()
            await store.commit(Checkpoint(offsets, (ProducerState(producer, 1, ticks[1][1]),)))
        group = await client.describe_group("positions")
        assert {name: each.next_tick for name, each in group.positions.items()} == {
            f"{channels[0]}/0": ticks[0][2] + 1,
            f"{channels[1]}/0": ticks[1][1],
        }
        assert group.lag_messages == 2


async def test_tidelog_commits_more_positions_than_a_transaction_may_have(tidelog_server: TestServer) -> None:
    names = [f"many/{number:03}" for number in range(POSITIONS_PER_TRANSACTION + 10)]
    async with AsyncClient(tidelog_server.endpoint) as client:
        channels: list[str] = []
        for begin in range(0, len(names), 50):
            applied = await client.journals.apply([JournalUpsert(name) for name in names[begin : begin + 50]])
            channels += [each.channel for each in applied]
        tick = (await client.append(channels[-1], b"frame")).first_tick
        async with aclosing(AsyncTidelogCheckpointStore(client, "many")) as store:
            await store.acquire()
            for position in (tick, tick + 1):
                await store.begin()
                await store.commit(Checkpoint(dict.fromkeys(names, position)))
                group = await client.describe_group("many")
                assert {name: each.next_tick for name, each in group.positions.items()} == {
                    f"{channel}/0": position for channel in channels
                }


async def test_tidelog_acquires_above_a_fencing_token_that_no_tick_reaches(tidelog_server: TestServer) -> None:
    async with AsyncClient(tidelog_server.endpoint) as client:
        await client.create_channel("gazette.checkpoints.ahead")
        await client.fence("gazette.checkpoints.ahead/0", 1 << 63)
        instances = [AsyncTidelogCheckpointStore(client, "ahead") for _ in range(3)]
        async with asyncio.timeout(30):
            await asyncio.gather(*(each.acquire() for each in instances))
        outcomes = []
        for each in instances:
            await each.begin()
            try:
                await each.commit(ANY_CHECKPOINT)
                outcomes.append("committed")
            except ConsumerFencedError:
                outcomes.append("fenced")
        assert sorted(outcomes) == ["committed", "fenced", "fenced"]


async def test_tidelog_rolls_back_a_transaction_whose_positions_cannot_be_committed(
    tidelog_server: TestServer,
) -> None:
    async with AsyncClient(tidelog_server.endpoint) as client:
        await client.create_channel("rolled.back")
        # The name is invalid as that of a group.
        async with aclosing(AsyncTidelogCheckpointStore(client, "not a group", channel="not.a.group")) as store:
            await store.acquire()
            transaction = await store.begin()
            await transaction.append("rolled.back", b"discarded")
            with pytest.raises(InvalidRequestError):
                await store.commit(Checkpoint({"any/journal": 1}))
            with pytest.raises(RuntimeError, match="no open transaction"):
                await store.commit(ANY_CHECKPOINT)
            await store.rollback()
            with pytest.raises(TransactionStateError):
                await transaction.append("rolled.back", b"too late")
            assert await store.acquire() == Checkpoint()


async def test_tidelog_commits_even_if_old_checkpoints_cannot_be_deleted(
    tidelog_server: TestServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(on_tidelog, "COMMITS_PER_TRIM", 2)
    async with AsyncClient(tidelog_server.endpoint) as client:
        trim, attempts = client.trim, 0

        async def fail_first(vchannel: str, before: Tick) -> Tick:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                raise UnavailableError("the server stops")
            return await trim(vchannel, before)

        async with aclosing(AsyncTidelogCheckpointStore(client, "untrimmed")) as store:
            await store.acquire()
            monkeypatch.setattr(client, "trim", fail_first)
            for number in range(4):
                await store.begin()
                await store.commit(saved(b"%d" % number))
        left = [message.payload async for batch in client.scan("gazette.checkpoints.untrimmed") for message in batch]
    assert attempts == 2
    assert left == [saved(b"2").encode(), saved(b"3").encode()]
    assert "old checkpoints of consumer untrimmed were not deleted" in caplog.text


def test_the_lower_position_counts_of_two_names_of_one_journal() -> None:
    begins = {"a": 5, "a;second": 3, "b": 7, "missing": 1, "same": 9}
    channels = {"a": "_journal.1", "a;second": "_journal.1", "b": "_journal.2", "missing": "", "same": "_journal.3"}
    committed = {"_journal.2/0": 6, "_journal.3/0": 9}
    assert moved_positions(begins, channels, committed) == {"_journal.1/0": 3, "_journal.2/0": 7}
