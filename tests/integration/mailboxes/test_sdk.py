"""The handle for a mailbox: every call, its results and errors. Method: a real server in the process of the test."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

import tidelog
from tidelog import (
    AsyncClient,
    AsyncMailbox,
    Client,
    DeliveryStatus,
    MailboxSettings,
    MessageState,
    OutgoingMessage,
    SendResult,
)
from tidelog.testing import server
from tidelog_testing.faults.cut_proxy import cut_off_client
from tidelog_testing.parts.waiting import eventually


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with server() as client:
        await client.mailboxes.create("jobs")
        yield client


@pytest.fixture
def jobs(client: AsyncClient) -> AsyncMailbox:
    return client.mailbox("jobs")


async def numbers(mailbox: AsyncMailbox) -> tuple[int, int, int, int]:
    """Return the numbers of available, delayed, leased and dead messages."""
    counts = await mailbox.counts()
    return counts.available, counts.delayed, counts.leased, counts.dead


async def test_a_message_is_sent_fetched_extended_and_confirmed(jobs: AsyncMailbox) -> None:
    sent = await jobs.send(b"job", headers={"kind": "resize"}, priority=3, group="photos")
    [delivery] = await jobs.fetch(lease=20)

    assert (delivery.id, delivery.body, delivery.mailbox, delivery.delivery_count) == (sent.id, b"job", "jobs", 1)
    assert (delivery.headers, delivery.priority, delivery.group) == ({"kind": "resize"}, 3, "photos")
    assert (delivery.status, delivery.dead_letter, len(delivery.lock_id)) == (DeliveryStatus.NOT_DELIVERED, None, 40)
    assert delivery.received_at <= datetime.now(UTC) < delivery.leased_until
    before = delivery.leased_until
    await delivery.extend(timedelta(minutes=1))
    assert delivery.leased_until - before > timedelta(seconds=39)
    assert await numbers(jobs) == (0, 0, 1, 0)
    await delivery.ack()
    assert delivery.is_settled
    assert await numbers(jobs) == (0, 0, 0, 0)
    with pytest.raises(tidelog.AlreadyAcknowledgedError) as error:
        await delivery.ack()
    assert error.value.lock_id == delivery.lock_id


async def test_a_rejected_message_comes_again_with_its_status(jobs: AsyncMailbox) -> None:
    await jobs.send(b"job")
    [delivery] = await jobs.fetch()
    await delivery.reject()
    [again] = await jobs.fetch()

    assert (again.id, again.delivery_count, again.status) == (delivery.id, 2, DeliveryStatus.REJECTED)
    await again.reject(timedelta(hours=1))
    assert await numbers(jobs) == (0, 1, 0, 0)


async def test_delays_duplicates_and_expiry_are_those_of_the_call(jobs: AsyncMailbox) -> None:
    first = await jobs.send(b"a", dedup_key="k")
    assert await jobs.send(b"b", dedup_key="k") == SendResult(first.id, duplicate=True)
    await jobs.send(b"c", delay=timedelta(hours=1))
    await jobs.send(b"d", due=datetime.now(UTC) + timedelta(hours=1))
    results = await jobs.send_many([b"e", OutgoingMessage(b"f", dedup_key="k")])

    assert results[1] == SendResult(first.id, duplicate=True)
    assert await numbers(jobs) == (2, 2, 0, 0)
    await jobs.send(b"g", ttl=0.05, priority=200)
    async with asyncio.timeout(10):
        while await jobs.peek(message_id=0, max_messages=100) and (await jobs.counts()).available > 2:
            await asyncio.sleep(0.01)
    assert [each.body for each in await jobs.fetch(10)] == [b"a", b"e"]


async def test_a_fetch_waits_for_a_message(jobs: AsyncMailbox) -> None:
    waiting = asyncio.create_task(jobs.fetch(5, wait=30))
    assert await jobs.fetch(wait=0.05) == []
    await jobs.send_many([b"a", b"b"])

    assert {each.body for each in await waiting} == {b"a", b"b"}


async def test_a_fetch_that_is_cancelled_takes_no_messages(jobs: AsyncMailbox) -> None:
    for _ in range(20):
        waiting = asyncio.create_task(jobs.fetch(wait=60))
        # The mailbox has answered something that was sent after the fetch.
        await jobs.fetch()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await jobs.send(b"a")
    [delivery] = await jobs.fetch(wait=10)

    assert (delivery.body, delivery.delivery_count) == (b"a", 1)


async def test_a_fetch_that_is_cancelled_after_its_lease_returns_the_message() -> None:
    async with cut_off_client() as (client, proxy, direct):
        await direct.mailboxes.create("jobs")
        await direct.mailbox("jobs").send(b"a")
        jobs = client.mailbox("jobs")
        assert (await jobs.counts()).available == 1
        proxy.answers_pass.clear()
        waiting = asyncio.create_task(jobs.fetch(wait=60))
        await eventually(lambda: direct.mailbox("jobs").counts(), lambda found: found.leased != 0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        proxy.answers_pass.set()
        [delivery] = await direct.mailbox("jobs").fetch(wait=10)

    assert delivery.delivery_count == 2


async def test_deliveries_are_settled_independently(jobs: AsyncMailbox) -> None:
    await jobs.send_many([b"%d" % number for number in range(1_000)])
    deliveries = await jobs.fetch(1_000)
    await jobs.ack_many(deliveries[:3])
    with pytest.raises(tidelog.DeliveriesRefusedError, match="3 of 1000 deliveries were refused") as error:
        await jobs.ack_many(deliveries)

    assert [delivery for delivery, _ in error.value.failures] == deliveries[:3]
    assert {type(failure) for _, failure in error.value.failures} == {tidelog.AlreadyAcknowledgedError}
    assert await numbers(jobs) == (0, 0, 0, 0)
    await jobs.ack_many([])


async def test_headers_peek_and_pages_leave_messages_alone(jobs: AsyncMailbox) -> None:
    before = datetime.now(UTC) - timedelta(minutes=1)
    ids = [each.id for each in await jobs.send_many([b"a", OutgoingMessage(b"b", {"x": "y"}), b"c"])]
    [leased] = await jobs.fetch()

    assert [header.id for header in await jobs.headers(before)] == ids[1:]
    assert await jobs.headers(datetime.now(UTC) + timedelta(minutes=1)) == []
    assert [header.id for header in await jobs.headers(after_id=ids[1])] == ids[2:]
    [first] = await jobs.peek(MessageState.LEASED)
    assert (first.header.id, first.header.state, first.header.leased_until) == (
        ids[0], MessageState.LEASED, leased.leased_until,
    )  # fmt: skip
    [second] = await jobs.peek(message_id=ids[1])
    assert (second.body, second.headers, second.header.leased_until) == (b"b", {"x": "y"}, None)
    assert [each.header.id for each in await jobs.peek(max_messages=2)] == ids[:2]
    assert (second.header.body_bytes, second.header.received_at >= before) == (1, True)


async def test_pause_purge_and_reenqueue(jobs: AsyncMailbox) -> None:
    await jobs.send_many([b"a", b"b"])
    await jobs.pause()
    assert (await jobs.counts()).is_paused
    assert await jobs.fetch() == []
    await jobs.resume()
    [delivery] = await jobs.fetch()
    assert await jobs.reenqueue() == 0
    assert await jobs.reenqueue([delivery.id]) == 1
    with pytest.raises(tidelog.LockError):
        await delivery.ack()
    assert await jobs.purge() == 2
    assert await numbers(jobs) == (0, 0, 0, 0)


async def test_dead_letters_and_redrive(client: AsyncClient, jobs: AsyncMailbox) -> None:
    await client.mailboxes.create("dead")
    await client.mailboxes.configure("jobs", MailboxSettings(dead_letter="dead", max_deliveries=1))
    sent = await jobs.send(b"a")
    [delivery] = await jobs.fetch()
    await delivery.reject()
    dead = client.mailbox("dead")
    [letter] = await dead.fetch(wait=10)
    assert letter.dead_letter == ("jobs", sent.id, 1)
    await letter.reject()

    progress = [each async for each in dead.redrive()]
    assert progress[-1] == (1, 1)
    [again] = await jobs.fetch(wait=10)
    assert again.body == b"a"
    await again.reject(final=True)
    [letter] = await dead.fetch(wait=10)
    assert letter.dead_letter is not None


async def test_dead_letters_of_any_size_are_redriven_to_another_mailbox(
    client: AsyncClient, jobs: AsyncMailbox
) -> None:
    for name in ("dead", "other"):
        await client.mailboxes.create(name)
    await client.mailboxes.configure("jobs", MailboxSettings(dead_letter="dead", max_deliveries=1))
    await jobs.send_many([bytes(400_000) for _ in range(5)])
    for _ in range(5):
        [delivery] = await jobs.fetch(wait=10)
        await delivery.reject()
    dead, other = client.mailbox("dead"), client.mailbox("other")
    # Returns once all have arrived.
    letters = [(await dead.fetch(wait=10))[0] for _ in range(5)]
    await dead.reject_many(letters)
    await dead.send(b"not a dead letter")

    with pytest.raises(tidelog.MailboxNotFoundError):
        await anext(dead.redrive(destination="missing"))
    # More than one write holds.
    assert [each async for each in dead.redrive(destination="other")][-1] == (5, 5)
    assert await numbers(other) == (5, 0, 0, 0)
    assert await numbers(dead) == (1, 0, 0, 0)
    assert [each async for each in dead.redrive()][-1] == (0, 0)


async def test_errors_name_the_mistake(client: AsyncClient, jobs: AsyncMailbox) -> None:
    with pytest.raises(tidelog.MailboxNotFoundError) as missing:
        await client.mailbox("missing").send(b"")
    assert missing.value.name == "missing"
    with pytest.raises(tidelog.MailboxNotFoundError):
        await client.mailbox("missing").counts()
    with pytest.raises(tidelog.InvalidRequestError, match="lease"):
        await jobs.fetch(lease=timedelta(days=30))
    with pytest.raises(tidelog.InvalidRequestError):
        await jobs.send(b"", delay=-1)
    with pytest.raises(tidelog.InvalidRequestError):
        await jobs.send_many([])
    with pytest.raises(TypeError):
        await jobs.send("text")  # type: ignore[arg-type]  # that is the point
    await client.mailboxes.configure("jobs", MailboxSettings(max_messages=1, max_body_bytes=10))
    with pytest.raises(tidelog.InvalidRequestError):
        await jobs.send(b"x" * 11)
    await jobs.send(b"x")
    with pytest.raises(tidelog.MailboxFullError) as full:
        await jobs.send(b"y")
    assert (full.value.max_messages, full.value.effect) == (1, "none")


async def test_many_callers_share_one_stream(jobs: AsyncMailbox) -> None:
    async def cycles() -> None:
        for _ in range(5):
            await jobs.send(b"x")
            [delivery] = await jobs.fetch(wait=10)
            await delivery.ack()

    await asyncio.gather(*(cycles() for _ in range(100)))

    assert await numbers(jobs) == (0, 0, 0, 0)


async def test_a_close_waits_for_sends_and_ends_waiting_fetches() -> None:
    async with server() as direct:
        await direct.mailboxes.create("jobs")
        await direct.mailboxes.create("empty")
        client = AsyncClient(direct.endpoint)
        jobs = client.mailbox("jobs")
        waiting = asyncio.create_task(client.mailbox("empty").fetch(wait=60))
        await jobs.fetch()
        sending = asyncio.create_task(jobs.send(b"a"))
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await client.aclose()

        assert (await sending).id
        with pytest.raises(tidelog.ClosedError):
            await waiting
        with pytest.raises(tidelog.ClosedError):
            await jobs.send(b"b")
        assert await numbers(direct.mailbox("jobs")) == (1, 0, 0, 0)


async def test_the_synchronous_twin(client: AsyncClient) -> None:
    def use() -> None:
        with Client(client.endpoint) as twin:
            jobs = twin.mailbox("jobs")
            sent = jobs.send(b"a", headers={"x": "y"})
            [delivery] = jobs.fetch(wait=timedelta(seconds=10))
            assert (delivery.id, delivery.headers, delivery.mailbox) == (sent.id, {"x": "y"}, "jobs")
            delivery.extend(60)
            delivery.reject(0)
            [delivery] = jobs.fetch(wait=10)
            delivery.ack()
            with pytest.raises(tidelog.AlreadyAcknowledgedError):
                delivery.reject()
            jobs.send_many([b"b", b"c"])
            assert jobs.counts().available == 2
            assert len(jobs.headers()) == len(jobs.peek()) == 2
            jobs.ack_many(jobs.fetch(2))
            assert list(jobs.redrive()) == [(0, 0)]

    await asyncio.to_thread(use)
