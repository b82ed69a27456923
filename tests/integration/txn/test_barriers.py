"""Barriers of the client's transactions. Method: a real server, whose clock the barriers are ahead of, or not."""

import asyncio
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient
from tidelog.txn import transaction as _transaction
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import client_with
from tidelog_testing.servers.processes import ServerProcess

HOUR = 3_600_000 << 18
client = client_with(orders=2)


async def test_every_tick_of_the_transaction_exceeds_the_greatest_of_its_barriers(client: AsyncClient) -> None:
    ticks = await client.allocate_ticks(1_000_000)
    async with client.txn() as txn:
        await txn.append("orders/0", b"a", barrier_tick=ticks[0])
        await txn.append("orders/1", [b"b", b"c"], barrier_tick=ticks[-1])
        await txn.append("orders/0", b"d")
        await txn.append("orders/0", b"e", barrier_tick=ticks[1])

    batches = [batch async for batch in client.scan(["orders/0", "orders/1"])]
    assert [(batch.vchannel, batch.payloads) for batch in batches] == [
        ("orders/0", [b"a", b"d", b"e"]),
        ("orders/1", [b"b", b"c"]),
    ]
    assert batches[0].first_tick == txn.result.first_tick > ticks[-1]


async def test_a_barrier_that_is_ahead_is_waited_for_and_holds_up_no_other_append(client: AsyncClient) -> None:
    [now] = await client.allocate_ticks()
    txn = client.txn()
    await txn.append("orders/0", b"late", barrier_tick=now + (1_000 << 18))
    commit = asyncio.create_task(txn.commit())

    plain = await client.append("orders/0", b"plain")
    result = await commit

    assert result is not None
    assert plain.last_tick < now + (1_000 << 18) < result.first_tick


@pytest.mark.parametrize("keepalive_s", [None, 1.0])
async def test_a_barrier_that_is_not_reached_leaves_it_open(client: AsyncClient, keepalive_s: float | None) -> None:
    [now] = await client.allocate_ticks()
    barrier_tick = now + (4_000 << 18)
    txn = client.txn(timeout_s=2, keepalive_s=keepalive_s)
    await txn.append("orders/0", b"a", barrier_tick=barrier_tick)
    with pytest.raises(tidelog.BarrierNotReachedError) as caught:
        await txn.commit()
    assert (caught.value.effect, caught.value.barrier_tick) == ("none", barrier_tick)
    assert await payloads(client, "orders/0") == []

    async with asyncio.timeout(60):
        while True:
            try:
                await txn.commit()
                break
            except (tidelog.BarrierNotReachedError, tidelog.AppendUnknownError):
                continue

    assert txn.result.first_tick > barrier_tick
    assert await payloads(client, "orders/0") == [b"a"]


async def test_one_whose_barrier_is_not_reached_can_be_rolled_back(client: AsyncClient) -> None:
    [now] = await client.allocate_ticks()
    txn = client.txn(timeout_s=2)
    await txn.append("orders/0", b"a", barrier_tick=now + HOUR)
    with pytest.raises(tidelog.BarrierNotReachedError):
        await txn.commit()

    await txn.rollback()

    assert await client.list_txns() == []


@pytest.mark.parametrize("barrier_tick", [-1, 1 << 63])
async def test_a_barrier_that_is_no_tick_is_refused_and_adds_nothing(client: AsyncClient, barrier_tick: int) -> None:
    async with client.txn() as txn:
        with pytest.raises(ValueError, match="barrier"):
            await txn.append("orders/0", b"a", barrier_tick=barrier_tick)

    assert await txn.commit() is None


async def test_a_large_one_has_a_barrier_too(client: AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_transaction, "STAGE_FROM_BYTES", 2_000)
    ticks = await client.allocate_ticks(1_000_000)
    async with client.txn() as txn:
        for _ in range(10):
            await txn.append("orders/0", bytes(1_000), barrier_tick=ticks[-1])

    assert txn.result.first_tick > ticks[-1]


def test_the_synchronous_twin(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "log") as process, tidelog.Client(process.grpc) as client:
        client.create_channel("orders")
        ticks = client.allocate_ticks(1_000_000)
        with client.txn() as txn:
            txn.append("orders", b"a", barrier_tick=ticks[-1])
        assert txn.result.first_tick > ticks[-1]
