"""Publishing to journals of a real server: transactions, their acknowledgement, and its recovery."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from uuid import UUID

import pytest

from tidelog import AsyncClient
from tidelog.errors import ChannelNotFoundError, ProducerStoppedError
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.gazette.errors import MissingJournalError
from tidelog.gazette.messages import AckIntent
from tidelog.gazette.publisher import AsyncPublisher, append_ack_intents, write_ack_intents
from tidelog.gazette.uuids import Flags, get_clock, get_flags
from tidelog.journals.labels import LabelSet
from tidelog.journals.types import JournalDelete, JournalSpec, JournalUpsert
from tidelog.testing import server
from tidelog_testing.faults.fault_proxy import FaultProxy
from tidelog_testing.parts.journal_messages import JSON_LINES, note, to

A, B = "a/journal", "b/journal"


async def create(client: AsyncClient, *names: str) -> None:
    labels = LabelSet.of({"content-type": JSON_LINES})
    await client.journals.apply([JournalUpsert(name, labels, 0) for name in names])


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with server() as client:
        await create(client, A, B)
        yield client


async def messages(client: AsyncClient, journal: str) -> list[tuple[Flags, str]]:
    """Return the flags and texts of a journal, and check that clocks rise."""
    channel = (await AsyncJournalClient(client).find(journal)).channel
    values = [json.loads(frame) async for batch in client.scan(channel) for frame in batch.payloads]
    uuids = [UUID(value["uuid"]) for value in values]
    assert sorted(uuids, key=get_clock) == uuids
    return [(Flags(get_flags(uuid)), value.get("text", "")) for uuid, value in zip(uuids, values, strict=True)]


async def test_committed_messages_are_in_their_journals_once_the_append_is_done(client: AsyncClient) -> None:
    async with AsyncJournalClient(client) as journals:
        publisher = AsyncPublisher(journals)
        appends = [publisher.publish_committed(to(A), note(str(number))) for number in range(1_000)]
        await appends[-1]
        assert all(append.done() for append in appends)

    assert await messages(client, A) == [(Flags.OUTSIDE_TXN, str(number)) for number in range(1_000)]


async def test_a_transaction_over_two_journals_is_acknowledged_in_both(client: AsyncClient) -> None:
    async with AsyncJournalClient(client) as journals:
        publisher = AsyncPublisher(journals)
        for text in ("1", "2"):
            publisher.publish_uncommitted(to(A), note(text))
            publisher.publish_uncommitted(to(B), note(text))
            for append in journals.pending_except():
                await append
            await write_ack_intents(journals, publisher.build_ack_intents())

    expected = [(Flags.CONTINUE_TXN, "1"), (Flags.ACK_TXN, ""), (Flags.CONTINUE_TXN, "2"), (Flags.ACK_TXN, "")]
    assert [await messages(client, journal) for journal in (A, B)] == [expected, expected]


async def test_the_next_transaction_may_begin_while_the_store_commits(client: AsyncClient) -> None:
    committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with AsyncJournalClient(client) as journals:
        publisher = AsyncPublisher(journals)
        await publisher.publish_uncommitted(to(A), note("1"))
        append_ack_intents(journals, publisher.build_ack_intents(), [committed])
        publisher.publish_uncommitted(to(A), note("2"))
        assert await messages(client, A) == [(Flags.CONTINUE_TXN, "1")]
        committed.set_result(None)

    assert [flags for flags, _ in await messages(client, A)] == [1, 2, 1]


async def test_a_publisher_whose_store_failed_appends_nothing_more(client: AsyncClient) -> None:
    committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    journals = AsyncJournalClient(client)
    publisher = AsyncPublisher(journals)
    await publisher.publish_uncommitted(to(A), note("1"))
    (ack,) = append_ack_intents(journals, publisher.build_ack_intents(), [committed])
    committed.set_exception(OSError("the disk is full"))

    with pytest.raises(ProducerStoppedError, match="the disk is full"):
        await ack
    with pytest.raises(ProducerStoppedError):
        publisher.publish_uncommitted(to(A), note("2"))
    assert await messages(client, A) == [(Flags.CONTINUE_TXN, "1")]


async def test_a_new_process_appends_the_persisted_intents_again(client: AsyncClient) -> None:
    async with AsyncJournalClient(client) as journals:
        publisher = AsyncPublisher(journals)
        publisher.publish_uncommitted(to(A), note("1"))
        publisher.publish_uncommitted(to(B), note("1"))
        await journals.flush()
        persisted = publisher.build_ack_intents()
        # The crash comes after the first of the two.
        await write_ack_intents(journals, persisted[:1])

    async with AsyncJournalClient(client) as journals:
        await write_ack_intents(journals, persisted)

    assert [flags for flags, _ in await messages(client, A)] == [1, 2, 2]
    assert [flags for flags, _ in await messages(client, B)] == [1, 2]


async def test_the_intent_of_a_journal_that_is_gone_is_dropped_with_a_warning(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncJournalClient(client) as journals:
        publisher = AsyncPublisher(journals)
        publisher.publish_uncommitted(to(A), note("1"))
        publisher.publish_uncommitted(to(B), note("1"))
        await journals.flush()
        intents = publisher.build_ack_intents()

    await client.journals.apply([JournalDelete(A)])
    async with AsyncJournalClient(client) as journals:
        with caplog.at_level(logging.WARNING):
            await write_ack_intents(journals, intents)

    assert "journal a/journal does not exist: its acknowledgement is dropped" in caplog.text
    assert [flags for flags, _ in await messages(client, B)] == [1, 2]


async def test_an_intent_is_dropped_too_if_its_journal_is_deleted_while_it_is_in_use(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    journals = AsyncJournalClient(client)
    publisher = AsyncPublisher(journals)
    await publisher.publish_uncommitted(to(A), note("1"))
    await client.journals.apply([JournalDelete(A)])

    with caplog.at_level(logging.WARNING):
        await write_ack_intents(journals, publisher.build_ack_intents())

    assert "journal a/journal does not exist" in caplog.text
    # The failure of the journal is dropped with it: other journals work, and it can be created again.
    other = AsyncPublisher(journals)
    await other.publish_uncommitted(to(B), note("2"))
    await create(client, A)
    other.publish_uncommitted(to(A), note("2"))
    await journals.flush()
    await write_ack_intents(journals, other.build_ack_intents())
    await journals.aclose()
    for journal in (A, B):
        assert await messages(client, journal) == [(Flags.CONTINUE_TXN, "2"), (Flags.ACK_TXN, "")]


async def test_an_intent_is_dropped_too_if_its_journal_is_deleted_after_the_first_lookup(client: AsyncClient) -> None:
    source = AsyncJournalClient(client)
    lookups = 0

    async def find(journal: str) -> JournalSpec:
        nonlocal lookups
        lookups += 1
        if lookups == 2:
            await client.journals.apply([JournalDelete(A)])
        return await source.find(journal)

    journals = AsyncJournalClient(client, find=find)
    await write_ack_intents(journals, [AckIntent(A, b'{"uuid":"00000000-0000-1000-8002-0123456789ab"}\n')])

    assert lookups == 2
    await journals.aclose()


async def test_the_failure_of_a_journal_remains_if_more_than_an_intent_was_lost(client: AsyncClient) -> None:
    journals = AsyncJournalClient(client)
    publisher = AsyncPublisher(journals)
    await publisher.publish_uncommitted(to(A), note("1"))
    await client.journals.apply([JournalDelete(A)])
    writing = asyncio.ensure_future(write_ack_intents(journals, publisher.build_ack_intents()))
    await asyncio.wait([writing], timeout=0)
    publisher.publish_uncommitted(to(A), note("2"))
    await writing

    with pytest.raises((ChannelNotFoundError, ProducerStoppedError)):
        await journals.flush()


async def test_appends_to_a_journal_that_does_not_exist_fail(client: AsyncClient) -> None:
    journals = AsyncJournalClient(client)
    append = AsyncPublisher(journals).publish_committed(to("no/journal"), note("x"))

    with pytest.raises(ProducerStoppedError, match=r"named journal does not exist \(no/journal\)") as caught:
        await append
    assert isinstance(caught.value.__cause__, MissingJournalError)
    with pytest.raises(MissingJournalError):
        await journals.find("no/journal")


async def test_a_journal_is_found_by_its_whole_name(client: AsyncClient) -> None:
    """A selector on the name must not match a longer name."""
    await create(client, "a/journal/2")
    assert (await AsyncJournalClient(client).find(A)).name == A


async def test_a_journal_is_looked_up_again_after_an_outage(client: AsyncClient) -> None:
    async with FaultProxy(client.endpoint) as proxy:
        proxy.cut()
        async with AsyncClient(proxy.endpoint, timeout_s=0.1, connect_timeout_s=0.1) as far:
            journals = AsyncJournalClient(far)
            append = AsyncPublisher(journals).publish_committed(to(A), note("x"))
            # Several times the timeout of a lookup.
            assert await asyncio.wait([append.future], timeout=0.5) == (set(), {append.future})
            proxy.heal()
            await append

    assert await messages(client, A) == [(Flags.OUTSIDE_TXN, "x")]


async def test_acknowledgements_of_any_journal_can_be_written_without_a_publisher(client: AsyncClient) -> None:
    async with AsyncJournalClient(client) as journals:
        await write_ack_intents(journals, [])
        await write_ack_intents(journals, [AckIntent(A, b'{"uuid":"00000000-0000-1000-8002-0123456789ab"}\n')])

    assert await messages(client, A) == [(Flags.ACK_TXN, "")]
