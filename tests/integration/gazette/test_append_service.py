"""The append service against a real server: order, batches, dependencies, the barrier, lost answers, failures.

A journal is mapped to a vchannel of an ordinary channel by ``find``, so no journal needs to be created.
"""

import asyncio

import pytest

from tidelog import AsyncClient
from tidelog.errors import BufferFullError, ChannelNotFoundError, ClosedError, ProducerStoppedError
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.journals.types import JournalSpec
from tidelog_testing.parts.fixtures import client_with

client = client_with(one=1, two=1)


async def find(journal: str) -> JournalSpec:
    return JournalSpec(journal, channel=journal.partition("/")[0])


async def frames(client: AsyncClient, vchannel: str) -> list[bytes]:
    return [payload async for batch in client.scan(vchannel) for payload in batch.payloads]


async def test_appends_keep_the_order_of_the_calls_and_share_batches(client: AsyncClient) -> None:
    expected = [b"%d" % number for number in range(25_000)]
    async with AsyncJournalClient(client, find=find) as journals:
        appends = []
        for number, frame in enumerate(expected):
            appends.append(journals.append("one/journal", frame))
            if number % 1_000 == 0:
                await asyncio.sleep(0)
        result = await appends[-1]
        assert appends[0].done()
        assert len(set(map(id, appends))) < 30

    assert await frames(client, "one/0") == expected
    assert result.last_tick == await client.latest_mvcc_tick("one/0")


async def test_the_barrier_covers_every_journal_but_one(client: AsyncClient) -> None:
    async with AsyncJournalClient(client, find=find) as journals:
        assert journals.pending_except() == []
        one, two = journals.append("one/journal", b"1"), journals.append("two/journal", b"2")

        assert journals.pending_except("one/journal") == [two]
        assert journals.pending_except() == [one, two]
        for append in journals.pending_except():
            await append

        assert journals.pending_except() == []


async def test_a_frame_is_sent_once_its_dependencies_have_succeeded(client: AsyncClient) -> None:
    committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    async with AsyncJournalClient(client, find=find) as journals:
        other = journals.append("two/journal", b"other")
        ack = journals.append("one/journal", b"ack", dependencies=[committed, other])
        behind = journals.append("one/journal", b"behind")
        await other
        assert behind is ack
        assert await frames(client, "one/0") == []

        committed.set_result(None)
        await ack

    assert await frames(client, "one/0") == [b"ack", b"behind"]


async def test_a_failed_dependency_stops_the_journal_and_no_other(client: AsyncClient) -> None:
    committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    journals = AsyncJournalClient(client, find=find)
    ack = journals.append("one/journal", b"ack", dependencies=[committed])
    committed.set_exception(ValueError("the store refused"))
    with pytest.raises(ProducerStoppedError, match="the store refused"):
        await ack

    with pytest.raises(ProducerStoppedError, match="create another journal client"):
        journals.append("one/journal", b"next")
    await journals.append("two/journal", b"2")
    # A failure stays in the barrier, so a later wait reports it as well.
    assert journals.pending_except() == [ack]
    with pytest.raises(ProducerStoppedError, match="the store refused"):
        await journals.flush()
    with pytest.raises(ProducerStoppedError, match="the store refused"):
        await journals.aclose()

    assert await frames(client, "one/0") == []


async def test_a_cancelled_dependency_counts_as_failed(client: AsyncClient) -> None:
    committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    journals = AsyncJournalClient(client, find=find)
    ack = journals.append("one/journal", b"ack", dependencies=[committed])
    committed.cancel()
    with pytest.raises(ProducerStoppedError, match="CancelledError"):
        await ack


async def test_a_journal_that_cannot_be_found_fails_its_appends(client: AsyncClient) -> None:
    async def missing(journal: str) -> JournalSpec:
        raise KeyError(journal)

    journals = AsyncJournalClient(client, find=missing)
    with pytest.raises(ProducerStoppedError, match="KeyError"):
        await journals.append("one/journal", b"frame")


async def test_a_refused_append_stops_the_journal(client: AsyncClient) -> None:
    journals = AsyncJournalClient(client, find=find)
    refused = journals.append("gone/journal", b"frame")
    with pytest.raises(ChannelNotFoundError):
        await refused
    with pytest.raises(ProducerStoppedError) as caught:
        journals.append("gone/journal", b"next")
    assert isinstance(caught.value.__cause__, ChannelNotFoundError)


async def test_room_is_free_again_once_the_server_has_answered(client: AsyncClient) -> None:
    async with AsyncJournalClient(client, find=find, max_pending_bytes=100_000) as journals:
        sent = 0
        for _ in range(20):
            try:
                while True:
                    journals.append("one/journal", b"%d" % sent)
                    sent += 1
            except BufferFullError:
                await journals.room()

    assert sent > 19 * 1_000
    assert await frames(client, "one/0") == [b"%d" % number for number in range(sent)]


async def test_what_was_not_sent_when_the_block_raised_is_dropped(client: AsyncClient) -> None:
    append = None
    with pytest.raises(ValueError, match="of the caller"):
        async with AsyncJournalClient(client, find=find) as journals:
            append = journals.append("one/journal", b"frame")
            raise ValueError("of the caller")
    assert append is not None
    with pytest.raises(ClosedError, match="was closed before it appended to one/journal"):
        await append


@pytest.mark.parametrize("has_failed", [False, True])
async def test_a_closed_client_refuses_appends_to_journals_it_knows_and_to_others(
    client: AsyncClient, *, has_failed: bool
) -> None:
    journals = AsyncJournalClient(client, find=find)
    await journals.append("one/journal", b"frame")
    if has_failed:
        with pytest.raises(ChannelNotFoundError):
            await journals.append("gone/journal", b"frame")
        with pytest.raises(ChannelNotFoundError):
            await journals.aclose()
    else:
        await journals.aclose()

    for journal in ("one/journal", "two/journal", "gone/journal"):
        with pytest.raises(ClosedError, match=f"client is closed: create a new one to append to {journal}"):
            journals.append(journal, b"frame")
        with pytest.raises(ClosedError, match="the journal client is closed"):
            journals.append(journal, b"ack", dependencies=())


def test_the_memory_must_be_positive() -> None:
    with pytest.raises(ValueError, match="max_pending_bytes is 0, expected 1 or more"):
        AsyncJournalClient(AsyncClient(), find=find, max_pending_bytes=0)
