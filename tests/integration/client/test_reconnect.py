"""Scans and appends across broken connections. Method: a real server behind a proxy.

The proxy forwards bytes; on command it closes all connections at once, as a network failure does.

Promises of docs/reference/guarantees.md: G10, G13.
"""

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

import tidelog
from tidelog import AsyncClient, At, ProducerSequence
from tidelog.testing import start_server
from tidelog.txn import transaction as _transaction
from tidelog_testing.faults.cut_proxy import cut_off_client


async def test_a_following_scan_goes_on_without_loss_or_repeat_however_often_it_is_cut() -> None:
    async with (
        cut_off_client() as (client, proxy, direct),
        client.scan(["orders/0", "orders/1"], until=At.follow()) as scan,
    ):
        seen: list[bytes] = []
        for i in range(30):
            await direct.append(f"orders/{i % 2}", [b"%d.%d" % (i, j) for j in range(3)])
            if i % 3 == 0:
                proxy.cut()
            while len(seen) < 3 * (i + 1):
                seen.extend((await asyncio.wait_for(anext(scan), 60)).payloads)

    assert seen == [b"%d.%d" % (i, j) for i in range(30) for j in range(3)]


async def test_a_tail_that_got_nothing_yet_still_misses_nothing() -> None:
    async with cut_off_client() as (client, proxy, direct):
        await direct.append("orders/0", b"before")
        async with client.tail("orders/0") as tail:
            proxy.cut()
            await direct.append("orders/0", b"while cut off")

            assert (await asyncio.wait_for(anext(tail), 60)).payloads == [b"while cut off"]


async def test_a_bounded_scan_keeps_the_end_that_it_began_with() -> None:
    async with cut_off_client() as (client, proxy, direct):
        expected = [b"%d" % i for i in range(200)]
        for payload in expected:
            await direct.append("orders/0", payload)
        async with client.scan("orders/0", max_response_bytes=1) as scan:
            seen = list((await anext(scan)).payloads)
            await direct.append("orders/0", b"later")
            proxy.cut()
            async for batch in scan:
                seen.extend(batch.payloads)

    assert seen == expected


async def test_a_bounded_scan_of_several_vchannels_keeps_whole_transactions() -> None:
    async with cut_off_client() as (client, proxy, direct):
        for i in range(200):
            await direct.append("orders/0", b"%d" % i)
        # The last one on orders/0 is in the middle of the transaction.
        async with direct.txn() as txn:
            await txn.append("orders/0", [b"in 0", b"in 0"])
            await txn.append("orders/1", [b"in 1", b"in 1"])
        async with client.scan(["orders/0", "orders/1"], max_response_bytes=1) as scan:
            seen = list((await anext(scan)).payloads)
            async with direct.txn() as txn:
                await txn.append("orders/1", b"later")
                await txn.append("orders/0", b"later")
            proxy.cut()
            async for batch in scan:
                seen.extend(batch.payloads)

    assert seen == [*(b"%d" % i for i in range(200)), b"in 0", b"in 0", b"in 1", b"in 1"]


async def test_an_append_cut_off_before_its_answer_has_an_unknown_outcome() -> None:
    async with cut_off_client() as (client, proxy, direct):
        await client.append("orders/0", b"first")
        proxy.passes.clear()
        append = asyncio.create_task(client.append("orders/0", b"second"))
        await asyncio.sleep(0.1)
        proxy.cut()

        with pytest.raises(tidelog.AppendUnknownError) as caught:
            await append
        assert caught.value.effect == "unknown"
        # The next append opens a new stream.
        assert (await client.append("orders/0", b"third")).first_tick
        stored = [payload async for batch in direct.scan("orders/0") for payload in batch.payloads]
        assert stored in ([b"first", b"third"], [b"first", b"second", b"third"])


async def test_a_numbered_append_that_lost_its_answer_is_repeated_and_in_the_log_once() -> None:
    async with cut_off_client() as (client, proxy, direct):
        await client.append("orders/0", b"first")
        async with direct.tail("orders/0") as tail:
            proxy.answers_pass.clear()
            append = asyncio.create_task(client.append("orders/0", b"once", producer=ProducerSequence("p", 1)))
            taken = await anext(tail)
            proxy.cut()

            result = await append

        assert (result.first_tick, result.duplicate) == (taken.ticks[0], True)
        stored = [payload async for batch in direct.scan("orders/0") for payload in batch.payloads]
        assert stored == [b"first", b"once"]


async def test_a_numbered_append_without_any_answer_says_that_it_may_be_there() -> None:
    async with cut_off_client() as (client, proxy, direct):
        await client.append("orders/0", b"first")
        proxy.answers_pass.clear()

        with pytest.raises(tidelog.TidelogError) as caught:
            await client.append("orders/0", b"once", producer=ProducerSequence("p", 1), timeout_s=0.5)

        assert caught.value.effect == "unknown"
        proxy.answers_pass.set()
        # A client that knows the sequence can learn the outcome.
        await direct.append("orders/0", b"once", producer=ProducerSequence("p", 1))
        stored = [payload async for batch in direct.scan("orders/0") for payload in batch.payloads]
        assert stored == [b"first", b"once"]


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.trim("orders/0", At.tick(1)),
        lambda client: client.fence("orders/0", 1),
        lambda client: client.open_producer("orders/0", "p"),
        lambda client: client.create_channel("more", if_not_exists=True),
    ],
    ids=["trim", "fence", "open_producer", "create_channel"],
)
async def test_a_change_without_an_answer_says_that_it_may_have_happened(
    call: Callable[[AsyncClient], Awaitable[object]],
) -> None:
    async with cut_off_client() as (client, proxy, _):
        await client.append("orders/0", b"first")
        proxy.answers_pass.clear()
        client.timeout_s = 0.3

        with pytest.raises(tidelog.TidelogError) as caught:
            await call(client)

        assert caught.value.effect == "unknown"
        proxy.answers_pass.set()
        client.timeout_s = 10
        # An idempotent call may be repeated.
        await call(client)


async def test_each_append_without_an_answer_ends_at_its_own_deadline() -> None:
    async with cut_off_client() as (client, proxy, _):
        await client.append("orders/0", b"first")
        proxy.passes.clear()
        begin_s = time.monotonic()
        long, short, none = (
            asyncio.create_task(client.append("orders/0", b"x", timeout_s=timeout_s)) for timeout_s in (0.6, 0.2, 0)
        )

        for append, timeout_s in ((none, 0), (short, 0.2), (long, 0.6)):
            with pytest.raises(tidelog.AppendUnknownError, match=f"within {timeout_s:.1f} s"):
                await append
            assert time.monotonic() - begin_s >= timeout_s
        assert not client._session().appends.pipeline._timer
        proxy.passes.set()


async def test_a_producer_without_numbers_that_lost_an_answer_stops_and_sends_nothing_after_the_gap() -> None:
    async with cut_off_client() as (client, proxy, direct):
        producer = client.producer("orders/0", linger_s=0, idempotent=False)
        await (await producer.send(b"first"))
        proxy.passes.clear()
        ticket = await producer.send(b"second")
        await asyncio.sleep(0.1)
        proxy.cut()

        with pytest.raises(tidelog.AppendUnknownError):
            await ticket
        with pytest.raises(tidelog.ProducerStoppedError):
            await producer.send(b"third")
        stored = [payload async for batch in direct.scan("orders/0") for payload in batch.payloads]
        assert b"third" not in stored


async def test_a_ticket_tells_where_a_message_is_whose_first_answer_was_lost() -> None:
    async with (
        cut_off_client() as (client, proxy, direct),
        direct.tail("orders/0") as tail,
        client.producer("orders/0", linger_s=0) as producer,
    ):
        await (await producer.send(b"first"))
        await asyncio.wait_for(anext(tail), 60)
        proxy.answers_pass.clear()
        ticket = await producer.send(b"once")
        taken = await asyncio.wait_for(anext(tail), 60)
        proxy.cut()

        result = await ticket

        assert (result.first_tick, result.duplicate) == (taken.ticks[0], True)


async def test_a_producer_gives_up_when_no_answer_comes_for_too_long() -> None:
    running = await asyncio.to_thread(start_server)
    retry = tidelog.Retry(base_s=0.01, cap_s=0.02, give_up_s=0.3)
    async with AsyncClient(running.endpoint, retry=retry, connect_timeout_s=0.2) as client:
        await client.create_channel("orders")
        producer = client.producer("orders", linger_s=0)
        await (await producer.send(b"first"))
        await asyncio.to_thread(running.stop)
        ticket = await producer.send(b"second")

        with pytest.raises(tidelog.TidelogError):
            await asyncio.wait_for(asyncio.shield(producer.flush()), 60)
        with pytest.raises(tidelog.TidelogError):
            await ticket
        with pytest.raises(tidelog.ProducerStoppedError):
            await producer.send(b"third")


async def test_a_producer_goes_on_when_its_channel_was_made_anew() -> None:
    async with cut_off_client() as (client, _, direct), client.producer("orders/0", linger_s=0) as producer:
        for payload in (b"gone", b"gone too"):
            await (await producer.send(payload))
        await direct.destroy_channels(["orders"])
        await direct.create_channel("orders")

        await (await producer.send(b"here"))

        assert [payload async for batch in direct.scan("orders/0") for payload in batch.payloads] == [b"here"]


async def test_a_producer_with_nothing_under_way_does_not_notice_a_cut() -> None:
    async with cut_off_client() as (client, proxy, _), client.producer("orders/0", linger_s=0) as producer:
        first = await (await producer.send(b"first"))
        proxy.cut()
        await client.wal_name()

        assert (await (await producer.send(b"second"))).first_tick > first.first_tick


async def test_a_scan_gives_up_when_the_server_stays_away() -> None:
    running = await asyncio.to_thread(start_server)
    retry = tidelog.Retry(give_up_s=0.5)
    async with AsyncClient(running.endpoint, retry=retry) as client:
        await client.create_channel("orders")
        async with client.tail("orders") as tail:
            await asyncio.to_thread(running.stop)

            with pytest.raises(tidelog.UnavailableError):
                await asyncio.wait_for(anext(tail), 60)


async def test_a_transaction_that_lost_its_answer_is_there_once_and_its_commit_returns_where() -> None:
    async with cut_off_client() as (client, proxy, direct), direct.tail(["orders/0", "orders/1"]) as tail:
        await client.append("orders/0", b"first")
        await asyncio.wait_for(anext(tail), 60)
        proxy.answers_pass.clear()
        txn = client.txn()
        await txn.append("orders/0", b"a")
        await txn.append("orders/1", b"b")
        commit = asyncio.create_task(txn.commit())
        taken = await asyncio.wait_for(anext(tail), 60)
        proxy.cut()

        result = await asyncio.wait_for(commit, 60)

        assert result is not None
        assert (result.txn_id, result.duplicate) == (taken.txn_id, True)
        stored = [batch.payloads async for batch in direct.scan(["orders/0", "orders/1"])]
        assert stored == [[b"first"], [b"a"], [b"b"]]


async def test_a_commit_that_ran_out_of_time_may_be_asked_again() -> None:
    async with cut_off_client() as (client, proxy, direct):
        await client.append("orders/0", b"first")
        proxy.answers_pass.clear()
        txn = client.txn(timeout_s=0.3)
        await txn.append("orders/1", b"once")
        with pytest.raises(tidelog.AppendUnknownError, match="commit\\(\\) again"):
            await txn.commit()
        with pytest.raises(tidelog.TransactionStateError, match="commit\\(\\) again"):
            await txn.rollback()
        proxy.cut()

        async def commit() -> tidelog.TransactionResult:
            while True:
                with suppress(tidelog.AppendUnknownError):
                    result = await txn.commit()
                    assert result is not None
                    return result

        result = await asyncio.wait_for(commit(), 60)
        assert result.results["orders/1"].first_tick == result.first_tick
        assert [batch.payloads async for batch in direct.scan("orders/1")] == [[b"once"]]


async def test_a_commit_that_may_be_there_stays_unsettled_while_the_server_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_transaction, "STAGE_FROM_BYTES", 2_000)
    async with cut_off_client() as (client, proxy, direct):
        txn = client.txn(timeout_s=1)
        await txn.append("orders/0", bytes(5_000))
        # Its answer follows those of the staged batches, because they share a stream.
        await client.append("orders/1", b"x")
        proxy.answers_pass.clear()
        with pytest.raises(tidelog.AppendUnknownError):
            await txn.commit()
        # The server is unreachable: by itself, the next commit's failure would have no effect.
        proxy.refuses = True
        proxy.cut()
        client.timeout_s = 1
        with pytest.raises(tidelog.TidelogError):
            await client.wal_name()
        with pytest.raises(tidelog.AppendUnknownError) as caught:
            await txn.commit()
        assert caught.value.effect == "unknown"
        with pytest.raises(tidelog.TransactionStateError, match="being committed"):
            await txn.rollback()
        proxy.refuses = False

        async with asyncio.timeout(60):
            while True:
                try:
                    result = await txn.commit()
                    break
                except (tidelog.UnavailableError, tidelog.AppendUnknownError):
                    continue
        assert result is not None
        assert [len(batch) async for batch in direct.scan("orders/0")] == [1]


@pytest.mark.extended
async def test_a_client_that_waits_long_for_a_server_still_tries_to_connect_twice_a_second() -> None:
    # Accepts connections and closes them at once, as one attempt after the other fails.
    attempts_s: list[float] = []

    def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attempts_s.append(time.monotonic())
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        async with AsyncClient(f"127.0.0.1:{port}", connect_timeout_s=20.0) as client:
            with pytest.raises(tidelog.DeadlineError):
                await client.append("orders/0", b"1", timeout_s=8.0)
    pauses_s = [after - before for before, after in itertools.pairwise(attempts_s)]
    # Half a second, and gRPC adds a fifth at random: a server that starts meanwhile is found within that time.
    assert statistics.median(pauses_s[-4:]) < 0.9
