"""Transactions, over gRPC, on a server in this process. Method: commit in every way, then compare with scans.

Promises of docs/reference/guarantees.md: G21, G22, G23.
"""

import asyncio

import pytest

import tidelog
from tidelog import AsyncClient, At, Message, Tick
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import client_with

client = client_with(orders=2, payments=1)


async def test_messages_of_several_channels_are_there_together_in_runs_of_consecutive_ticks(
    client: AsyncClient,
) -> None:
    async with client.txn() as txn:
        await txn.append("orders/0", [b"1", b"2"])
        await txn.append("payments", b"3")
        await txn.append("orders/0", Message(b"4", key=b"k"))
        await txn.append("orders/1", b"5")
        assert await payloads(client, "orders/0") == []

    result = txn.result
    assert list(result.results) == ["orders/0", "payments", "orders/1"]
    assert [(part.first_tick, part.last_tick) for part in result.results.values()] == [
        (result.first_tick, result.first_tick + 2),
        (result.first_tick + 3, result.first_tick + 3),
        (result.first_tick + 4, result.last_tick),
    ]
    assert (result.durability, result.duplicate) == ("sync", False)
    found = [batch async for batch in client.scan(["orders/0", "orders/1", "payments/0"])]
    assert [batch.vchannel for batch in found] == ["orders/0", "payments/0", "orders/1"]
    assert {batch.txn_id for batch in found} == {result.txn_id}
    assert [payload for batch in found for payload in batch.payloads] == [b"1", b"2", b"4", b"3", b"5"]


async def test_a_batch_of_no_transaction_says_so(client: AsyncClient) -> None:
    await client.append("orders/0", b"plain")

    assert [batch.txn_id async for batch in client.scan("orders/0")] == [None]


async def test_more_messages_than_a_batch_may_have_are_one_run(client: AsyncClient) -> None:
    messages = [b"%d" % i for i in range(25_000)]
    async with client.txn() as txn:
        await txn.append("orders/0", messages)

    found = [batch async for batch in client.scan("orders/0")]

    assert [payload for batch in found for payload in batch.payloads] == messages
    assert [tick for batch in found for tick in batch.ticks] == list(
        range(txn.result.first_tick, txn.result.last_tick + 1)
    )
    assert {batch.txn_id for batch in found} == {txn.result.txn_id}


async def test_an_exception_rolls_back(client: AsyncClient) -> None:
    with pytest.raises(KeyError):
        async with client.txn() as txn:
            await txn.append("orders/0", b"never")
            raise KeyError

    assert await payloads(client, "orders/0") == []
    with pytest.raises(tidelog.TransactionStateError, match="rolled back"):
        await txn.commit()
    await txn.rollback()


async def test_a_committed_transaction_takes_nothing_more_and_tells_the_same_again(client: AsyncClient) -> None:
    txn = client.txn()
    await txn.append("orders/0", b"once")
    result = await txn.commit()

    assert await txn.commit() is result
    with pytest.raises(tidelog.TransactionStateError, match="committed"):
        await txn.append("orders/0", b"more")
    with pytest.raises(tidelog.TransactionStateError, match="committed"):
        await txn.rollback()
    assert await payloads(client, "orders/0") == [b"once"]


async def test_a_transaction_without_messages_commits_nothing(client: AsyncClient) -> None:
    async with client.txn() as txn:
        pass

    assert await txn.commit() is None
    with pytest.raises(tidelog.TransactionStateError):
        _ = txn.result


async def test_a_condition_of_one_vchannel_refuses_all_of_it_and_the_transaction_stays_open(
    client: AsyncClient,
) -> None:
    last = (await client.append("orders/1", b"there")).last_tick
    txn = client.txn()
    await txn.append("orders/0", b"a")
    await txn.append("orders/1", b"b", expected_last_tick=0)

    with pytest.raises(tidelog.LastTickMismatchError) as caught:
        await txn.commit()
    assert (caught.value.last_tick, caught.value.effect) == (last, "none")
    await txn.rollback()
    assert await payloads(client, "orders/0") == []

    async with client.txn() as txn:
        await txn.append("orders/0", b"a", expected_last_tick=0)
        await txn.append("orders/1", b"b", expected_last_tick=last)
    assert await payloads(client, "orders/0") == [b"a"]


async def test_a_fenced_off_writer_commits_nothing(client: AsyncClient) -> None:
    await client.fence("payments", 2)
    txn = client.txn()
    await txn.append("orders/0", b"a")
    await txn.append("payments", b"b", fencing_token=1)

    with pytest.raises(tidelog.FencedError):
        await txn.commit()

    assert await payloads(client, "orders/0") == []


async def test_one_refused_transaction_harms_none_that_commit_beside_it(client: AsyncClient) -> None:
    async def commit(number: int) -> None:
        async with client.txn() as txn:
            # Every third one is refused.
            await txn.append("orders/0", b"%d" % number, expected_last_tick=1 if number % 3 == 0 else None)
            await txn.append("payments", b"%d" % number)

    outcomes = await asyncio.gather(*(commit(number) for number in range(90)), return_exceptions=True)

    refused = [number for number, outcome in enumerate(outcomes) if outcome is not None]
    assert refused == [number for number in range(90) if number % 3 == 0]
    assert all(isinstance(outcomes[number], tidelog.LastTickMismatchError) for number in refused)
    expected = sorted(b"%d" % number for number in range(90) if number % 3)
    found = await payloads(client, "orders/0")
    assert sorted(found) == expected
    assert await payloads(client, "payments/0") == found


async def test_no_end_of_a_scan_lies_within_a_transaction_unless_it_is_asked_for(client: AsyncClient) -> None:
    before = (await client.append("orders/0", b"before")).last_tick
    async with client.txn() as txn:
        await txn.append("orders/0", [b"a", b"b"])
        await txn.append("orders/1", [b"c", b"d"])
    await client.append("orders/0", b"after")
    first, last = txn.result.first_tick, txn.result.last_tick

    async def until(end: At) -> list[bytes]:
        return [
            payload async for batch in client.scan(["orders/0", "orders/1"], until=end) for payload in batch.payloads
        ]

    for tick in (before + 1, *range(first, last + 1)):
        assert await until(At.tick(tick)) == [b"before"], tick
    assert await until(At.tick(last + 1)) == [b"before", b"a", b"b", b"c", b"d"]
    assert await until(At.inside(first + 3)) == [b"before", b"a", b"b", b"c"]
    # A reader that continues where it stopped gets the rest.
    rest = [payload async for batch in client.scan("orders/0", start=Tick(first + 1)) for payload in batch.payloads]
    assert rest == [b"b", b"after"]


async def test_no_plan_ends_within_a_transaction_and_its_splits_hold_all_of_it(client: AsyncClient) -> None:
    await client.append("orders/0", b"before")
    async with client.txn() as txn:
        await txn.append("orders/0", [b"%d" % i for i in range(25_000)])
        await txn.append("orders/1", [b"x", b"y"])
    first, last = txn.result.first_tick, txn.result.last_tick

    async def count(end_tick: int) -> int:
        plan = await client.plan_scan(["orders/0", "orders/1"], end_tick=end_tick, max_messages_per_split=4_000)
        found = [
            len(batch)
            for split in plan.splits
            async for batch in client.scan(split.vchannel, start=split.begin_tick, until=At.inside(split.end_tick))
        ]
        return sum(found)

    assert await count(0) == 25_003
    assert await count(last + 1) == 25_003
    for end_tick in (first + 1, first + 12_345, last):
        assert await count(end_tick) == 1
        # On the first vchannel the whole part lies before the last tick, which is that of the second one.
        assert (await client.plan_scan(["orders/0"], end_tick=end_tick)).end_tick == first
    for end_tick in (first, last + 1):
        assert (await client.plan_scan(["orders/0", "orders/1"], end_tick=end_tick)).end_tick == end_tick


async def test_a_transaction_that_is_larger_than_a_batch_may_be_commits(client: AsyncClient) -> None:
    async with client.txn() as txn:
        await txn.append("orders/0", [b"x" * 1_000_000] * 6)
        await txn.append("payments", [b"x" * 1_000_000] * 2)

    assert len(await payloads(client, "orders/0")) == 6
    assert len(await payloads(client, "payments/0")) == 2


@pytest.mark.parametrize(
    ("vchannel", "messages", "error"),
    [
        ("nowhere", b"x", tidelog.ChannelNotFoundError),
        ("No Name", b"x", tidelog.InvalidRequestError),
        ("orders/0", b"x" * ((1 << 20) + 1), tidelog.InvalidRequestError),
    ],
)
async def test_a_wrong_part_refuses_all_of_it(
    client: AsyncClient, vchannel: str, messages: bytes, error: type[Exception]
) -> None:
    txn = client.txn()
    await txn.append("payments", b"good")
    await txn.append(vchannel, messages)

    with pytest.raises(error):
        await txn.commit()

    assert await payloads(client, "payments/0") == []
    # The next one is not held up by it.
    async with client.txn() as txn:
        await txn.append("payments", b"next")
    assert await payloads(client, "payments/0") == [b"next"]


async def test_a_vchannel_under_two_names_is_refused(client: AsyncClient) -> None:
    txn = client.txn()
    await txn.append("payments", b"a")
    await txn.append("payments/0", b"b")

    with pytest.raises(tidelog.InvalidRequestError, match="names payments/0 twice"):
        await txn.commit()


async def test_wrong_calls_are_refused_at_once_and_leave_the_transaction_as_it_was(client: AsyncClient) -> None:
    txn = client.txn()
    await txn.append("payments", b"good", fencing_token=None, expected_last_tick=0)

    with pytest.raises(tidelog.InvalidRequestError, match="no messages"):
        await txn.append("payments", [])
    with pytest.raises(TypeError):
        await txn.append("payments", ["text"])  # type: ignore[list-item]  # the point of the test
    with pytest.raises(ValueError, match="token"):
        await txn.append("payments", b"x", fencing_token=0)
    with pytest.raises(tidelog.InvalidRequestError, match="expected_last_tick"):
        await txn.append("payments", b"x", expected_last_tick=5)
    with pytest.raises(ValueError, match="durability"):
        client.txn(durability="disk")  # type: ignore[arg-type]  # the point of the test

    await txn.commit()
    assert await payloads(client, "payments/0") == [b"good"]


@pytest.mark.not_on_engine(reason="a log in an engine acknowledges `os` as `sync`")
async def test_a_transaction_in_mode_os_says_so(client: AsyncClient) -> None:
    async with client.txn(durability="os") as txn:
        await txn.append("payments", b"x")

    assert txn.result.durability == "os"
    assert txn.result.results["payments"].durability == "os"
