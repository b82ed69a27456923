"""What clients hold and wait for continues when a server is killed and the next one has nothing but the log.

Method: a server on a log in a folder is killed in the middle of something. The next one, at the same address, starts in
another data folder: all that it knows comes from the log. Clients have default settings.

Promises of docs/reference/guarantees.md: G1, G2, G10, G11, G17, G18, G25, G28, G29, G31, G49.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, At, MailboxSettings
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.gazette.iterators import AsyncReadUncommittedIter
from tidelog.gazette.publisher import AsyncPublisher
from tidelog.gazette.readers import AsyncRetryReader, ReadRequest
from tidelog.journals.labels import LabelSet
from tidelog.journals.types import JournalUpsert
from tidelog.txn import transaction as _transaction
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.journal_messages import JSON_LINES, new_note, note, text_of, to
from tidelog_testing.servers.on_folder import Owners

WITHIN_S = 60.0
HOUR_S = 3_600


@pytest.fixture
def owners(tmp_path: Path) -> Iterator[Owners]:
    with Owners(tmp_path) as running:
        yield running


@pytest.fixture
async def client(owners: Owners) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(owners.server.grpc) as client:
        yield client


async def test_what_mode_os_acknowledges_is_in_the_log(owners: Owners, client: AsyncClient) -> None:
    await client.create_channel("orders")
    assert (await client.append("orders", b"x", durability="os")).durability == "sync"

    await asyncio.to_thread(owners.move)

    assert await payloads(client, "orders/0") == [b"x"]


async def test_leases_of_messages_go_on_and_end_when_they_would_have(owners: Owners, client: AsyncClient) -> None:
    await client.mailboxes.create("jobs", MailboxSettings(max_deliveries=3))
    jobs = client.mailbox("jobs")
    sent = [await jobs.send(body, dedup_key=body.decode()) for body in (b"held", b"let go", b"confirmed")]
    [held] = await jobs.fetch(lease=HOUR_S)
    [let_go] = await jobs.fetch(lease=1.0)
    [confirmed] = await jobs.fetch(lease=HOUR_S)
    await confirmed.ack()
    waiting = asyncio.create_task(jobs.fetch(wait=WITHIN_S))

    await asyncio.to_thread(owners.move)

    # The message whose lease has ended comes again, to the call that waits for one; the others do not.
    [again] = await waiting
    assert (again.id, again.body, again.delivery_count) == (let_go.id, b"let go", 2)
    assert await jobs.fetch() == []
    with pytest.raises(tidelog.LockExpiredError):
        await let_go.ack()
    await held.extend(2 * HOUR_S)
    await held.ack()
    with pytest.raises(tidelog.AlreadyAcknowledgedError):
        await confirmed.ack()
    assert await jobs.send(b"other", dedup_key="held") == tidelog.SendResult(sent[0].id, duplicate=True)
    counts = await jobs.counts()
    assert (counts.available, counts.delayed, counts.leased, counts.dead) == (0, 0, 1, 0)


async def test_transactions_end_as_at_any_restart(
    owners: Owners, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_transaction, "STAGE_FROM_BYTES", 2_000)
    await client.create_channel("orders", vchannels=2)
    committed, staged, unstaged, prepared = (client.txn() for _ in range(4))
    for vchannel in ("orders/0", "orders/1"):
        await committed.append(vchannel, [b"%d" % number + bytes(1_000) for number in range(5)])
    result = await committed.commit()
    assert result is not None
    await staged.append("orders/0", [b"staged" + bytes(1_000)] * 5)
    await unstaged.append("orders/1", b"of one request")
    await prepared.append("orders/1", b"prepared")
    handle = await prepared.prepare("etl", app_version=1)
    assert handle is not None

    await asyncio.to_thread(owners.move)

    # The last part of a large one may have been in its memory only.
    with pytest.raises(tidelog.TransactionExpiredError):
        await staged.commit()
    with pytest.raises(tidelog.TransactionExpiredError):
        await client.commit_prepared([handle], "etl", 1)
    await unstaged.commit()
    described = await client.describe_txn(result.txn_id)
    assert (described.state, described.messages) == ("committed", 10)
    assert [payload[:1] for payload in await payloads(client, "orders/0")] == [b"0", b"1", b"2", b"3", b"4"]
    assert [payload[:14] for payload in await payloads(client, "orders/1")][-1] == b"of one request"
    assert len(await payloads(client, "orders/1")) == 6


async def test_a_numbered_batch_and_a_fencing_token_are_known(owners: Owners, client: AsyncClient) -> None:
    await client.create_channel("orders")
    position = await client.open_producer("orders", "p")
    first = await client.append("orders", b"1", producer=position.sequence(1))
    await client.append("orders", b"2", expected_last_tick=first.last_tick)
    await client.fence("orders/0", 7)

    await asyncio.to_thread(owners.move)

    again = await client.append("orders", b"1", producer=position.sequence(1), fencing_token=7)
    assert (again.first_tick, again.duplicate) == (first.first_tick, True)
    with pytest.raises(tidelog.FencedError):
        await client.append("orders", b"3", fencing_token=6)
    with pytest.raises(tidelog.LastTickMismatchError):
        await client.append("orders", b"3", expected_last_tick=first.last_tick, fencing_token=7)
    after = await client.append("orders", b"3", fencing_token=7)
    assert after.first_tick > again.last_tick
    assert await payloads(client, "orders/0") == [b"1", b"2", b"3"]


async def test_a_member_of_a_group_keeps_its_place_and_its_position(owners: Owners, client: AsyncClient) -> None:
    await client.create_channel("orders", vchannels=2)
    await client.create_group("billing", ["orders"], start=At.earliest())
    for number in range(4):
        await client.append(f"orders/{number % 2}", [b"%d" % (10 * number + each) for each in range(10)])
    seen: set[int] = set()
    # The next server gives the vchannels out again; what was delivered since the last commit comes again.
    async with client.consumer("billing", "orders", auto_commit=False, on_lost=lambda _: seen.clear()) as consumer:
        committed = {int(payload) for _ in range(2) for payload in (await anext(consumer)).payloads}
        await consumer.commit()

        await asyncio.to_thread(owners.move)

        await client.append("orders/0", b"40")
        async with asyncio.timeout(WITHIN_S):
            while len(seen) < 41 - len(committed):
                seen |= set(map(int, (await anext(consumer)).payloads))
        # What was committed does not come again.
        assert seen == set(range(41)) - committed
        await consumer.commit()
        group = await client.describe_group("billing")
        assert group.lag_messages == 0
        assert [member.vchannels for member in group.members] == [("orders/0", "orders/1")]


async def test_journals_are_read_and_written_from_where_they_were(owners: Owners, client: AsyncClient) -> None:
    labels = LabelSet.of({"content-type": JSON_LINES})
    await client.journals.apply([JournalUpsert("a/journal", labels)])
    async with AsyncJournalClient(client) as journals:
        publisher = AsyncPublisher(journals)
        reader = AsyncRetryReader(journals, ReadRequest("a/journal", block=True))
        read = AsyncReadUncommittedIter(reader, new_note)
        await publisher.publish_committed(to("a/journal"), note("before"))
        envelope = await anext(read)
        assert text_of(envelope.message) == "before"

        await asyncio.to_thread(owners.move)

        await publisher.publish_committed(to("a/journal"), note("after"))
        async with asyncio.timeout(WITHIN_S):
            assert text_of((await anext(read)).message) == "after"
        await reader.aclose()
        # A position of a reader of the former server is one of the next.
        later = AsyncRetryReader(journals, ReadRequest("a/journal", offset=envelope.end, block=False))
        assert [text_of(each.message) async for each in AsyncReadUncommittedIter(later, new_note)] == ["after"]
    assert [journal.name for journal in (await client.journals.list()).journals] == ["a/journal"]


async def test_a_broadcast_that_is_acknowledged_in_part_is_completed(owners: Owners, client: AsyncClient) -> None:
    await client.create_channel("orders", vchannels=3)
    everywhere, schema = ["orders/0", "orders/1", "orders/2"], tidelog.ResourceKey("schema", "users")
    result = await client.broadcast(everywhere, b"x", resource_keys=[schema])
    await client.ack(result.broadcast_id, ["orders/0"])
    waiting = asyncio.create_task(client.wait_acked(schema, timeout_s=WITHIN_S))

    await asyncio.to_thread(owners.move)

    described = await client.describe_broadcast(result.broadcast_id)
    assert (described.acked, described.missing) == (("orders/0",), ("orders/1", "orders/2"))
    with pytest.raises(tidelog.ResourceAcquiredError):
        await client.broadcast(everywhere, b"y", resource_keys=[schema])
    assert not waiting.done()
    await client.ack(result.broadcast_id, ["orders/1", "orders/2"])
    await waiting
    await client.broadcast(everywhere, b"y", resource_keys=[schema])
    for vchannel in everywhere:
        assert await payloads(client, vchannel) == [b"x", b"y"]


async def test_a_scan_and_the_splits_of_a_plan_go_on(owners: Owners, client: AsyncClient) -> None:
    await client.create_channel("orders")
    sent = [b"%d" % number + bytes(1_000) for number in range(40)]
    for begin in range(0, 40, 4):
        await client.append("orders", sent[begin : begin + 4])
    plan = await client.plan_scan(["orders/0"], min_splits=3)
    assert len(plan.splits) >= 3
    async with client.scan("orders/0", max_response_bytes=5_000) as scan:
        seen = list((await anext(scan)).payloads)
        await client.append("orders", b"behind both")

        await asyncio.to_thread(owners.move)

        seen += [payload async for batch in scan for payload in batch.payloads]
    assert seen == sent
    found = [
        payload
        for split in plan.splits
        async for batch in client.scan(
            split.vchannel, start=At.tick(split.begin_tick), until=At.inside(split.end_tick),
            created_ticks={split.vchannel: split.created_tick},
        )
        for payload in batch.payloads
    ]  # fmt: skip
    assert found == sent
