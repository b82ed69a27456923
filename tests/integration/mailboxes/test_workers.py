"""Workers of a mailbox: leases that are extended, acknowledgements, rejections, lost leases and drains.

Method: a real server, in the process of the test or behind a proxy. Waiting is for a state that must come.
"""

import asyncio
import gc
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

import tidelog
from tidelog import AsyncClient, AsyncDelivery, AsyncMailbox, MailboxSettings, OutgoingMessage
from tidelog.testing import server
from tidelog_testing.faults.cut_proxy import cut_off_client
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.processes import ServerProcess, lasting_port


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with server() as client:
        await client.mailboxes.create("jobs", MailboxSettings(backoff_ms=(50,)))
        yield client


@pytest.fixture
def jobs(client: AsyncClient) -> AsyncMailbox:
    return client.mailbox("jobs")


async def is_empty(mailbox: AsyncMailbox) -> bool:
    counts = await mailbox.counts()
    return (counts.available, counts.delayed, counts.leased) == (0, 0, 0)


async def end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


# -- Handlers ----------------------------------------------------------------------------------------------


async def test_handlers_run_concurrently_and_confirm_on_return(jobs: AsyncMailbox) -> None:
    await jobs.send_many([b"%d" % number for number in range(200)])
    done: Counter[bytes] = Counter()
    running = most = 0

    async def handle(delivery: AsyncDelivery) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        done[delivery.body] += 1

    task = asyncio.create_task(jobs.work(handle, concurrency=8))
    await eventually(lambda: is_empty(jobs))
    await end(task)

    assert done == Counter(b"%d" % number for number in range(200))
    assert most == 8


async def test_an_exception_rejects_with_back_off_and_is_logged(
    jobs: AsyncMailbox, caplog: pytest.LogCaptureFixture
) -> None:
    await jobs.send(b"a")
    counts: list[int] = []

    async def handle(delivery: AsyncDelivery) -> None:
        counts.append(delivery.delivery_count)
        if delivery.delivery_count < 3:
            raise KeyError("no such photo")

    task = asyncio.create_task(jobs.work(handle))
    await eventually(lambda: is_empty(jobs))
    await end(task)

    assert counts == [1, 2, 3]
    assert caplog.text.count("the handler raised an exception") == 2


async def test_leases_are_extended_while_a_handler_runs(jobs: AsyncMailbox) -> None:
    await jobs.send_many([b"%d" % number for number in range(4)])
    counts: list[int] = []

    async def handle(delivery: AsyncDelivery) -> None:
        await asyncio.sleep(1.0)
        counts.append(delivery.delivery_count)

    # Two are in process for a second, and two wait for them.
    task = asyncio.create_task(jobs.work(handle, concurrency=2, lease=0.4))
    await eventually(lambda: is_empty(jobs))
    await end(task)

    assert counts == [1, 1, 1, 1]


async def test_a_handler_may_confirm_its_message_in_a_transaction(client: AsyncClient, jobs: AsyncMailbox) -> None:
    await client.create_channel("results")
    await client.mailboxes.create("next")
    await jobs.send_many([b"%d" % number for number in range(20)])

    async def handle(delivery: AsyncDelivery) -> None:
        async with client.txn() as txn:
            await txn.append("results", delivery.body)
            txn.send("next", OutgoingMessage(delivery.body, {"from": delivery.mailbox}))
            txn.ack(delivery)
        if delivery.body == b"7":
            raise KeyError("after the commit")

    task = asyncio.create_task(jobs.work(handle, concurrency=4))
    await eventually(lambda: is_empty(jobs))
    await end(task)

    results = [payload async for batch in client.scan("results/0") for payload in batch.payloads]
    assert sorted(map(int, results)) == list(range(20))
    assert (await client.mailbox("next").counts()).available == 20


async def test_a_lost_lease_cancels_the_handler(jobs: AsyncMailbox, caplog: pytest.LogCaptureFixture) -> None:
    sent = await jobs.send(b"a")
    outcomes: list[str] = []
    has_begun = asyncio.Event()

    async def handle(delivery: AsyncDelivery) -> None:
        has_begun.set()
        if delivery.delivery_count > 1:
            outcomes.append("processed")
            return
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            outcomes.append(f"cancelled, lost={delivery.is_lost}")
            raise

    task = asyncio.create_task(jobs.work(handle, lease=0.3))
    await has_begun.wait()
    assert await jobs.reenqueue([sent.id]) == 1
    await eventually(lambda: is_empty(jobs))
    await end(task)

    assert sorted(outcomes) == ["cancelled, lost=True", "processed"]
    assert "the lease of message" in caplog.text


async def test_a_lease_that_is_not_extended_in_time_is_lost() -> None:
    async with cut_off_client() as (client, proxy, direct):
        await direct.mailboxes.create("jobs")
        jobs = direct.mailbox("jobs")
        await jobs.send(b"a")
        counts: list[int] = []
        losses: list[bool] = []

        async def handle(delivery: AsyncDelivery) -> None:
            counts.append(delivery.delivery_count)
            if delivery.delivery_count == 1:
                proxy.passes.clear()
                try:
                    await asyncio.sleep(60)
                finally:
                    losses.append(delivery.is_lost)
                    proxy.cut()

        task = asyncio.create_task(client.mailbox("jobs").work(handle, lease=0.5))
        await eventually(lambda: is_empty(jobs))
        await end(task)

        assert counts == [1, 2]
        assert losses == [True]


async def test_a_cancellation_drains(jobs: AsyncMailbox) -> None:
    await jobs.send_many([b"%d" % number for number in range(10)])
    begun: list[bytes] = []
    may_end = asyncio.Event()

    async def handle(delivery: AsyncDelivery) -> None:
        begun.append(delivery.body)
        await may_end.wait()

    task = asyncio.create_task(jobs.work(handle, concurrency=2, prefetch=4))

    async def are_leased(number: int) -> bool:
        return len(begun) == 2 and (await jobs.counts()).leased == number

    await eventually(lambda: are_leased(6))
    task.cancel()
    # What waited for a handler is returned at once, while handlers still run.
    await eventually(lambda: are_leased(2))
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert begun == [b"0", b"1"]
    assert (await jobs.counts()).available == 8


async def test_a_second_cancellation_ends_handlers(jobs: AsyncMailbox) -> None:
    await jobs.send(b"a")
    has_begun = asyncio.Event()

    async def handle(_: AsyncDelivery) -> None:
        has_begun.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(jobs.work(handle))
    await has_begun.wait()
    task.cancel()
    await asyncio.sleep(0.05)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (await jobs.counts()).available == 1


async def test_sigterm_drains_and_the_call_returns(jobs: AsyncMailbox) -> None:
    await jobs.send_many([b"%d" % number for number in range(20)])
    done: list[bytes] = []

    async def handle(delivery: AsyncDelivery) -> None:
        if not done:
            os.kill(os.getpid(), signal.SIGTERM)
        done.append(delivery.body)
        await asyncio.sleep(0.1)

    before = signal.getsignal(signal.SIGTERM)
    await asyncio.wait_for(jobs.work(handle, concurrency=3), 20)

    assert signal.getsignal(signal.SIGTERM) == before
    counts = await jobs.counts()
    assert (counts.available, counts.leased) == (20 - len(done), 0)
    assert len(done) == 3


async def test_a_mailbox_that_does_not_exist_ends_the_work(client: AsyncClient) -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))

    async def handle(_: AsyncDelivery) -> None:
        raise AssertionError("there is no message")

    with pytest.raises(tidelog.MailboxNotFoundError):
        await asyncio.wait_for(client.mailbox("missing").work(handle), 20)
    gc.collect()
    assert reported == []


async def test_a_worker_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    settings, folder = lasting_port(), tmp_path / "data"
    done: set[bytes] = set()

    async def handle(delivery: AsyncDelivery) -> None:
        done.add(delivery.body)

    with ServerProcess(folder, settings) as server:
        async with AsyncClient(server.grpc) as client:
            await client.mailboxes.create("jobs")
            jobs = client.mailbox("jobs")
            await jobs.send(b"a")
            task = asyncio.create_task(jobs.work(handle, lease=0.5))
            await eventually(lambda: is_empty(jobs))
            server.kill()
            with ServerProcess(folder, settings):
                async with asyncio.timeout(30):
                    await jobs.send(b"b", dedup_key="b")
                    while done != {b"a", b"b"}:
                        await asyncio.sleep(0.01)
                await end(task)


async def test_a_worker_survives_lost_connections() -> None:
    async with cut_off_client() as (client, proxy, direct):
        await direct.mailboxes.create("jobs", MailboxSettings(lease_ms=1_000))
        jobs = direct.mailbox("jobs")
        done: set[bytes] = set()

        async def handle(delivery: AsyncDelivery) -> None:
            await asyncio.sleep(0.01)
            done.add(delivery.body)

        task = asyncio.create_task(client.mailbox("jobs").work(handle, concurrency=4, lease=1.0))
        for begin in range(0, 200, 20):
            await jobs.send_many([b"%d" % number for number in range(begin, begin + 20)])
            await asyncio.sleep(0.05)
            proxy.cut()
        await eventually(lambda: is_empty(jobs))
        await end(task)

        assert done == {b"%d" % number for number in range(200)}


async def test_a_client_that_is_closed_ends_its_workers(client: AsyncClient, jobs: AsyncMailbox) -> None:
    await jobs.send(b"a")
    other = AsyncClient(client.endpoint)
    worker = other.mailbox("jobs").worker(lease=0.3)
    delivery = await anext(worker)
    await other.aclose()

    with pytest.raises(tidelog.ClosedError):
        await anext(worker)
    # It is delivered again, because nothing extends its lease.
    [again] = await jobs.fetch(wait=10)
    assert (again.id, again.delivery_count) == (delivery.id, 2)
    await worker.aclose()


# -- Iterators ---------------------------------------------------------------------------------------------


async def test_an_iterator_confirms_when_it_is_asked_for_the_next_one(jobs: AsyncMailbox) -> None:
    await jobs.send_many([b"a", b"b", b"c"])
    seen: list[bytes] = []
    async with jobs.worker(concurrency=2) as worker:
        async for delivery in worker:
            seen.append(delivery.body)
            if len(seen) == 2:
                [first] = [each.header.id for each in await jobs.peek(message_id=delivery.id)]
                assert first == delivery.id
                break

    assert seen == [b"a", b"b"]
    # Nothing has confirmed the second one: it is back.
    assert await _are(jobs, available=2)
    assert sorted(each.body for each in await jobs.fetch(2)) == [b"b", b"c"]


async def test_a_loop_that_was_left_returns_its_message_at_once(jobs: AsyncMailbox) -> None:
    await jobs.send(b"a")
    counts: list[int] = []

    async def one(worker: tidelog.AsyncMailboxWorker, error: BaseException | None) -> None:
        async for delivery in worker:
            counts.append(delivery.delivery_count)
            if error is not None:
                raise error
            break

    async with jobs.worker(concurrency=1) as worker:
        for error in (KeyError("a"), asyncio.CancelledError(), None):
            with suppress(KeyError, asyncio.CancelledError):
                await asyncio.create_task(one(worker, error))
        # The worker is open, so the collection of the iterator has returned it.
        await eventually(lambda: _are(jobs, available=1))
        async for delivery in worker:
            counts.append(delivery.delivery_count)
            worker.stop()

    assert counts == [1, 2, 3, 4]
    assert await is_empty(jobs)


@pytest.mark.parametrize("ends", ["break", "error", "cancellation"])
async def test_the_end_of_a_context_confirms_nothing(jobs: AsyncMailbox, ends: str) -> None:
    await jobs.send_many([b"a", b"b", b"c"])
    errors = {"error": KeyError("a"), "cancellation": asyncio.CancelledError()}
    with suppress(KeyError, asyncio.CancelledError):
        async with jobs.worker(concurrency=3) as worker:
            held = [await anext(worker), await anext(aiter(worker)), await anext(kept := aiter(worker))]
            if ends in errors:
                raise errors[ends]

    assert await _are(jobs, available=3)
    assert all(delivery.is_lost or delivery.is_settled for delivery in held)
    # The processing of the last one ends after the end of the worker, so its message is not confirmed.
    with pytest.raises(StopAsyncIteration):
        await anext(kept)
    assert await _are(jobs, available=3)


async def _in_task(asked: Awaitable[AsyncDelivery]) -> AsyncDelivery:
    async def ask() -> AsyncDelivery:
        return await asked

    return await asyncio.create_task(ask())


async def _waited(asked: Awaitable[AsyncDelivery]) -> AsyncDelivery:
    done, _ = await asyncio.wait({asyncio.ensure_future(asked)})
    return done.pop().result()


async def _gathered(asked: Awaitable[AsyncDelivery]) -> AsyncDelivery:
    [delivery] = await asyncio.gather(asked)
    return delivery


WRAPPERS: list[Callable[[Awaitable[AsyncDelivery]], Awaitable[AsyncDelivery]]] = [
    lambda asked: asked, lambda asked: asyncio.wait_for(asked, 5), _in_task, _waited, _gathered,
]  # fmt: skip


@pytest.mark.parametrize("wrapped", WRAPPERS)
async def test_a_delivery_outlives_the_task_that_took_it(
    jobs: AsyncMailbox, wrapped: Callable[[Awaitable[AsyncDelivery]], Awaitable[AsyncDelivery]]
) -> None:
    await jobs.send_many([b"a", b"b", b"c"])
    async with jobs.worker(concurrency=2) as worker:
        first = await wrapped(anext(worker))
        deliveries = aiter(worker)
        second = await wrapped(anext(deliveries))
        gc.collect()
        # A round trip, in which an acknowledgement would have come first.
        assert (await jobs.counts()).leased == 2
        await first.ack()
        third = await wrapped(anext(deliveries))
        # The call for the third one has confirmed the second one.
        assert [each.header.id for each in await jobs.peek()] == [third.id]
        assert (first.is_settled, second.is_settled, third.is_settled) == (True, True, False)
        del deliveries
        again = await anext(worker)
        assert (again.id, again.delivery_count) == (third.id, 2)


async def test_a_call_for_the_next_one_that_times_out_loses_nothing(jobs: AsyncMailbox) -> None:
    async with jobs.worker(concurrency=1) as worker:
        deliveries, taken = aiter(worker), list[AsyncDelivery]()
        for body in (b"a", b"b"):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(deliveries), 0.02)
            await jobs.send(body)
            taken.append(await asyncio.wait_for(anext(deliveries), 20))
            assert (taken[-1].body, taken[-1].delivery_count) == (body, 1)
        # The confirmation of a delivery continues when the call that began it is cancelled.
        asking = asyncio.ensure_future(anext(deliveries))
        await asyncio.sleep(0)
        asking.cancel()

        async def are_settled() -> bool:
            return all(delivery.is_settled for delivery in taken)

        # After the server has confirmed it, the answer is on its way.
        await eventually(are_settled)
        assert await is_empty(jobs)


async def test_more_unsettled_deliveries_than_the_concurrency_are_refused(jobs: AsyncMailbox) -> None:
    async with jobs.worker(concurrency=2) as worker:
        waiting = [asyncio.ensure_future(anext(worker)) for _ in range(3)]
        await jobs.send_many([b"%d" % number for number in range(4)])
        first, second, third = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(third, tidelog.UnsettledDeliveriesError)
        for _ in range(2):
            with pytest.raises(tidelog.UnsettledDeliveriesError, match=r"2 deliveries of mailbox jobs .* ack\(\)"):
                await anext(worker)
        # A loop waits for its turn; an acknowledgement or a rejection makes room.
        looping = asyncio.ensure_future(anext(deliveries := aiter(worker)))
        assert isinstance(first, AsyncDelivery)
        await first.ack()
        assert (await looping).body == b"2"
        assert isinstance(second, AsyncDelivery)
        await second.reject(final=True)
        assert (await anext(worker)).body == b"3"
        with pytest.raises(tidelog.UnsettledDeliveriesError):
            await anext(worker)
        del deliveries

    assert await _are(jobs, available=2)


async def test_a_transaction_makes_room(client: AsyncClient, jobs: AsyncMailbox) -> None:
    await jobs.send_many([b"a", b"b"])
    async with jobs.worker(concurrency=1) as worker:
        for body in (b"a", b"b"):
            delivery = await anext(worker)
            assert delivery.body == body
            async with client.txn() as txn:
                txn.ack(delivery)
    assert await is_empty(jobs)


async def test_two_calls_on_one_iterator_are_refused(jobs: AsyncMailbox) -> None:
    async with jobs.worker() as worker:
        deliveries = aiter(worker)
        assert aiter(deliveries) is deliveries
        waiting = asyncio.ensure_future(anext(deliveries))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="an iterator of its own"):
            await anext(deliveries)
        await jobs.send(b"a")
        assert (await waiting).body == b"a"


async def test_a_worker_that_is_collected_returns_what_it_holds(jobs: AsyncMailbox) -> None:
    await jobs.send_many([b"a", b"b", b"c"])
    async for delivery in jobs.worker(concurrency=1, prefetch=2):
        assert delivery.body == b"a"
        break

    await eventually(lambda: _are(jobs, available=3))
    # That of a call on the worker itself remains under its lease: its holder may confirm it.
    alone = await anext(jobs.worker(concurrency=1))
    await eventually(lambda: _are(jobs, available=2, leased=1))
    await alone.ack()


async def test_several_tasks_share_a_worker_and_what_the_body_settles_is_left_alone(jobs: AsyncMailbox) -> None:
    await jobs.send_many([b"%d" % number for number in range(50)])
    done: Counter[bytes] = Counter()
    held = most = 0

    async def consume(worker: tidelog.AsyncMailboxWorker) -> None:
        nonlocal held, most
        async for delivery in worker:
            held += 1
            most = max(most, held)
            await asyncio.sleep(0)
            done[delivery.body] += 1
            if int(delivery.body) % 2:
                await delivery.ack()
            held -= 1
            if sum(done.values()) == 50:
                worker.stop()

    async with jobs.worker(concurrency=3) as worker, asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(consume(worker))

    assert done == Counter(b"%d" % number for number in range(50))
    assert most <= 3
    assert await is_empty(jobs)


async def _are(mailbox: AsyncMailbox, *, available: int, leased: int = 0) -> bool:
    counts = await mailbox.counts()
    return (counts.available, counts.leased) == (available, leased)


async def test_a_handler_of_the_wrong_kind_ends_the_work_and_rejects_nothing(client: AsyncClient) -> None:
    jobs = client.mailbox("jobs")
    await jobs.send(b"job")
    with pytest.raises(TypeError, match="expected a function of a delivery"):
        await jobs.work(cast("Any", "handler"))
    with pytest.raises(TypeError, match="returned NoneType, expected an awaitable"):
        await asyncio.wait_for(jobs.work(cast("Any", lambda _: None)), 20)
    # A fetch that was in flight may have received the returned message: it is returned again in the background.
    await eventually(lambda: _are(jobs, available=1))
    assert (await jobs.counts()).dead == 0
