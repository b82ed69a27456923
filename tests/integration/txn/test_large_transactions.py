"""Transactions of the client that do not fit into one request. Method: real servers, also such as go away meanwhile."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient
from tidelog.testing import server
from tidelog.txn import transaction as _transaction
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.processes import ServerProcess, lasting_port


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncClient]:
    monkeypatch.setattr(_transaction, "STAGE_FROM_BYTES", 2_000)
    async with server() as client:
        await client.create_channel("orders", vchannels=2)
        await client.create_channel("payments")
        yield client


async def test_a_large_transaction_is_staged_as_it_comes_and_there_as_a_whole(client: AsyncClient) -> None:
    large = [b"%04d" % i * 100 for i in range(100)]
    async with client.txn() as txn:
        await txn.append("payments", b"first")
        for payload in large:
            await txn.append("orders/0", payload)
        await txn.append("orders/1", [b"x"] * 10)
        await txn.append("payments", b"last")
        async with asyncio.timeout(60):
            while (staged := (await client.list_txns())[0]).messages < 90:
                await asyncio.sleep(0.01)
        assert staged.state == "open"
        assert [batch async for batch in client.scan(["orders/0", "orders/1", "payments/0"])] == []

    result = txn.result
    assert set(result.results) == {"payments", "orders/0", "orders/1"}
    assert await client.list_txns() == []
    described = await client.describe_txn(result.txn_id)
    assert (described.state, described.messages) == ("committed", 112)
    assert await payloads(client, "orders/0") == large
    assert await payloads(client, "payments") == [b"first", b"last"]
    batches = [batch async for batch in client.scan(["orders/0", "orders/1", "payments/0"])]
    assert {batch.txn_id for batch in batches} == {result.txn_id}
    ticks = [tick for batch in batches for tick in batch.ticks]
    assert ticks == list(range(result.first_tick, result.last_tick + 1))
    for name, part in result.results.items():
        first = next(batch for batch in batches if batch.vchannel.startswith(name))
        assert part.first_tick == first.ticks[0]


async def test_one_append_may_be_as_large_as_it_likes(client: AsyncClient) -> None:
    messages = [bytes(1_000)] * 50
    async with client.txn() as txn:
        await txn.append("orders/0", messages)

    assert await payloads(client, "orders/0") == messages


async def test_a_large_transaction_that_is_rolled_back_leaves_nothing(client: AsyncClient) -> None:
    with pytest.raises(KeyError):
        async with client.txn() as txn:
            await txn.append("orders/0", bytes(10_000))
            raise KeyError

    assert await payloads(client, "orders/0") == []
    assert await client.list_txns() == []
    with pytest.raises(tidelog.TransactionStateError):
        await txn.append("orders/0", b"x")


async def test_a_condition_that_fails_leaves_a_large_transaction_open(client: AsyncClient) -> None:
    last = await client.append("orders/0", b"there")
    txn = client.txn()
    await txn.append("orders/0", bytes(10_000), expected_last_tick=last.last_tick)
    await client.append("orders/0", b"meanwhile")

    with pytest.raises(tidelog.LastTickMismatchError) as caught:
        await txn.commit()

    assert caught.value.effect == "none"
    await txn.rollback()
    assert await payloads(client, "orders/0") == [b"there", b"meanwhile"]


async def test_a_large_transaction_lives_as_long_as_its_process(client: AsyncClient) -> None:
    txn = client.txn(keepalive_s=1.0)
    await txn.append("orders/0", bytes(10_000))
    await asyncio.sleep(2.5)

    await txn.commit()

    assert len(await payloads(client, "orders/0")) == 1


async def test_one_that_nobody_has_any_more_ends(client: AsyncClient) -> None:
    txn = client.txn(keepalive_s=1.0)
    await txn.append("orders/0", bytes(10_000))
    assert len(await client.list_txns()) == 1
    del txn
    gc.collect()

    await eventually(client.list_txns, lambda found: not found)


async def test_one_that_failed_is_kept_by_nobody(client: AsyncClient) -> None:
    txn = client.txn()
    await txn.append("orders/0", bytes(10_000))
    [open_] = await client.list_txns()
    await client.abort_txn(open_.txn_id, reason="maintenance")
    errors = list[str]()
    async with asyncio.timeout(60):
        while len(errors) < 2:
            try:
                await txn.append("orders/0", bytes(10_000))
            except tidelog.TransactionExpiredError as error:
                errors.append(str(error))

    kept = weakref.ref(txn)
    del txn
    gc.collect()

    assert kept() is None
    assert errors[0] == errors[1]


async def test_an_aborted_one_says_so_and_stays_over(client: AsyncClient) -> None:
    txn = client.txn()
    await txn.append("orders/0", bytes(10_000))
    [open_] = await client.list_txns()
    await client.abort_txn(open_.txn_id, reason="maintenance")

    with pytest.raises(tidelog.TransactionExpiredError) as caught:
        await txn.commit()
    assert (caught.value.values["cause"], caught.value.effect) == ("aborted", "none")
    with pytest.raises(tidelog.TransactionStateError):
        await txn.commit()
    with pytest.raises(tidelog.TransactionExpiredError):
        await client.abort_txn(open_.txn_id, reason="again")
    with pytest.raises(tidelog.TransactionNotFoundError):
        await client.describe_txn(open_.txn_id + 1)


async def test_one_vchannel_under_two_names_is_refused(client: AsyncClient) -> None:
    txn = client.txn()
    await txn.append("payments", b"a")
    with pytest.raises(tidelog.InvalidRequestError, match="two names"):
        await txn.append("payments/0", bytes(10_000))


async def test_many_vchannels_with_little_each_are_staged_from_a_sum_on(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_transaction, "_MAX_REQUEST_BYTES", 3_000)
    monkeypatch.setattr(_transaction, "_MAX_GATHERED_BYTES", 20_000)
    await client.create_channel("wide", vchannels=50)
    async with client.txn() as txn:
        for i in range(200):
            await txn.append(f"wide/{i % 50}", b"%03d" % i * 100)
        assert len(await client.list_txns()) == 1

    for i in range(50):
        assert await payloads(client, f"wide/{i}") == [b"%03d" % number * 100 for number in range(i, 200, 50)]
    assert [part.last_tick - part.first_tick for part in txn.result.results.values()] == [3] * 50


async def test_many_at_once_do_not_mix(client: AsyncClient) -> None:
    async def one(number: int) -> tidelog.TransactionResult:
        async with client.txn() as txn:
            for i in range(20):
                await txn.append(f"orders/{i % 2}", b"%d" % number * 300)
                await client.append("orders/0", b"plain")
        return txn.result

    results = await asyncio.gather(*(one(number) for number in range(10)))

    by_txn: dict[int | None, set[bytes]] = {}
    async for batch in client.scan(["orders/0", "orders/1"]):
        by_txn.setdefault(batch.txn_id, set()).update(batch.payloads)
    assert by_txn.pop(None) == {b"plain"}
    assert by_txn == {result.txn_id: {b"%d" % number * 300} for number, result in enumerate(results)}


async def test_a_commit_beside_an_append_that_is_being_staged_takes_it_along_once(client: AsyncClient) -> None:
    txn = client.txn()
    await txn.append("payments", b"first")
    appending = asyncio.create_task(txn.append("orders/0", [bytes(100)] * 100))
    await asyncio.sleep(0)

    result = await txn.commit()
    await appending

    assert result is not None
    assert len(await payloads(client, "orders/0")) == 100
    assert await payloads(client, "payments") == [b"first"]
    assert await txn.commit() == result
    assert await client.list_txns() == []


async def test_a_commit_that_is_cancelled_before_it_is_sent_can_be_rolled_back_or_repeated(client: AsyncClient) -> None:
    txn, other = client.txn(), client.txn()
    for each in (txn, other):
        await each.append("orders/0", bytes(5_000))
    for each in (txn, other):
        committing = asyncio.create_task(each.commit())
        await asyncio.sleep(0)
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)

    await txn.rollback()
    await other.commit()

    assert len(await payloads(client, "orders/0")) == 1
    assert await client.list_txns() == []


async def test_a_block_that_is_left_by_a_failed_commit_leaves_nothing_open(client: AsyncClient) -> None:
    with pytest.raises(tidelog.LastTickMismatchError):
        async with client.txn() as txn:
            await txn.append("orders/0", bytes(5_000), expected_last_tick=7)

    assert await client.list_txns() == []
    with pytest.raises(tidelog.TransactionStateError, match="rolled back"):
        await txn.commit()


async def test_a_rollback_beside_an_append_that_begins_leaves_nothing_open(client: AsyncClient) -> None:
    txn = client.txn()
    appending = asyncio.create_task(txn.append("orders/0", bytes(5_000)))
    await asyncio.sleep(0)
    await txn.rollback()
    await asyncio.gather(appending, return_exceptions=True)

    assert await client.list_txns() == []
    assert await payloads(client, "orders/0") == []


async def test_a_closed_client_hides_no_error_of_a_block(client: AsyncClient) -> None:
    other = AsyncClient(client.endpoint)
    with pytest.raises(KeyError):
        async with other.txn() as txn:
            await txn.append("orders/0", bytes(5_000))
            await other.aclose()
            raise KeyError
    txn = other.txn()
    with pytest.raises(tidelog.ClosedError):
        await txn.append("orders/0", bytes(5_000))


async def test_what_the_server_has_no_room_for_now_is_staged_once_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_transaction, "STAGE_FROM_BYTES", 1_000)
    async with (
        running_server(
            limits__max_message_bytes=2_000,
            limits__max_batch_bytes=5_000,
            limits__max_txn_bytes=8_000,
            limits__max_staged_bytes=8_000,
        ) as running,
        AsyncClient(running.grpc_endpoint) as client,
    ):
        await client.create_channel("orders", vchannels=2)
        first, second = client.txn(), client.txn()
        await first.append("orders/0", [bytes(1_500)] * 4)
        async with asyncio.timeout(60):
            while not (await client.list_txns())[0].bytes >= 6_000:
                await asyncio.sleep(0)
        await second.append("orders/1", [bytes(1_500)] * 4)
        await first.commit()

        await second.commit()

        assert len(await payloads(client, "orders/1")) == 4


async def test_a_transaction_that_could_not_begin_is_begun_by_its_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_transaction, "STAGE_FROM_BYTES", 2_000)
    port = lasting_port()
    with ServerProcess(tmp_path / "log", port) as process:
        async with AsyncClient(process.grpc, connect_timeout_s=1) as client:
            await client.create_channel("orders")
            process.kill()
            txn = client.txn()
            with pytest.raises(tidelog.UnavailableError):
                await txn.append("orders", bytes(5_000))
            with ServerProcess(tmp_path / "log", port):
                # The connection comes back when gRPC tries again.
                async with asyncio.timeout(60):
                    while True:
                        try:
                            await txn.commit()
                        except tidelog.UnavailableError:
                            continue
                        break
                assert len(await payloads(client, "orders")) == 1


async def test_what_a_closed_client_leaves_open_is_rolled_back_without_a_word_and_cannot_be_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_transaction, "STAGE_FROM_BYTES", 2_000)
    async with server() as client:
        await client.create_channel("orders")
        first, second = client.txn(), client.txn()
        await first.append("orders", bytes(5_000))
        await second.append("orders", bytes(5_000))
        await client.aclose()

        await first.rollback()
        with pytest.raises(tidelog.ClosedError):
            await second.commit()


def test_the_synchronous_twin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_transaction, "STAGE_FROM_BYTES", 2_000)
    with ServerProcess(tmp_path / "log") as process, tidelog.Client(process.grpc) as client:
        client.create_channel("orders")
        with client.txn() as txn:
            for i in range(100):
                txn.append("orders", b"%d" % i * 100)
            assert len(client.list_txns()) == 1
        assert sum(len(batch.payloads) for batch in client.scan("orders/0")) == 100
        assert client.describe_txn(txn.result.txn_id).state == "committed"
        other = client.txn()
        other.append("orders", bytes(5_000))
        client.abort_txn(client.list_txns()[0].txn_id, reason="test")
        with pytest.raises(tidelog.TransactionExpiredError):
            other.commit()


async def test_a_server_that_restarts_ends_an_open_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_transaction, "STAGE_FROM_BYTES", 2_000)
    port = lasting_port()
    with ServerProcess(tmp_path / "log", port) as process:
        async with AsyncClient(process.grpc) as client:
            await client.create_channel("orders")
            txn = client.txn()
            await txn.append("orders", bytes(5_000))
            process.kill()
            with ServerProcess(tmp_path / "log", port):
                with pytest.raises(tidelog.TransactionExpiredError):
                    await txn.commit()
                assert await payloads(client, "orders") == []
