"""Appends under conditions: the last tick that the caller knows, and a fencing token. Method: real calls over gRPC.

Promises of docs/reference/guarantees.md: G16, G17.
"""

import asyncio
from pathlib import Path

import grpc.aio
import pytest

import tidelog
from tidelog import AsyncClient, AsyncProducer
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import client_with
from tidelog_testing.parts.grpc_calls import a_request, connected, refusal_in, running_server

ABORTED = grpc.StatusCode.ABORTED.value[0]
client = client_with(orders=2)


async def token_of(client: AsyncClient, index: int = 0) -> int:
    (channel,) = await client.describe_channels(["orders"])
    return channel.vchannels[index].fencing_token


# -- The last tick -------------------------------------------------------------------------------------------


async def test_the_first_append_may_insist_on_being_first(client: AsyncClient) -> None:
    first = await client.append("orders/0", b"first", expected_last_tick=0)

    with pytest.raises(tidelog.LastTickMismatchError) as caught:
        await client.append("orders/0", b"second", expected_last_tick=0)

    assert (caught.value.expected_last_tick, caught.value.last_tick) == (0, first.last_tick)
    assert caught.value.effect == "none"
    assert await payloads(client, "orders/0") == [b"first"]


async def test_an_append_after_what_the_caller_knows_is_taken(client: AsyncClient) -> None:
    known = await client.append("orders/0", [b"a", b"b"])

    after = await client.append("orders/0", [b"c"], expected_last_tick=known.last_tick)

    with pytest.raises(tidelog.LastTickMismatchError) as caught:
        await client.append("orders/0", [b"d"], expected_last_tick=known.last_tick)
    assert caught.value.last_tick == after.last_tick


async def test_another_vchannel_does_not_matter(client: AsyncClient) -> None:
    await client.append("orders/1", b"elsewhere")

    await client.append("orders/0", b"first", expected_last_tick=0)


async def test_of_many_who_know_the_same_exactly_one_wins(client: AsyncClient) -> None:
    async def count_up(times: int) -> None:
        """Append the number after the last one: wrong as soon as two do so at once."""
        done = 0
        while done < times:
            last_tick = await client.latest_mvcc_tick("orders/0")
            numbers = await payloads(client, "orders/0")
            known = await client.latest_mvcc_tick("orders/0")
            if known != last_tick:
                continue
            try:
                await client.append("orders/0", b"%d" % len(numbers), expected_last_tick=last_tick)
            except tidelog.LastTickMismatchError:
                continue
            done += 1

    await asyncio.gather(*(count_up(5) for _ in range(8)))

    assert await payloads(client, "orders/0") == [b"%d" % number for number in range(40)]


async def test_what_is_not_durable_yet_counts(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as node, connected(node) as client:
        await client.create("a")
        requests = [a_request("a", b"%d" % number, request_id=number + 1) for number in range(20)]
        for request in requests:
            request.options.expected_last_tick = 0

        answers = await client.append_all(requests)

        assert [answer.WhichOneof("answer") for answer in answers] == ["result"] + ["error"] * 19
        refusal = refusal_in(answers[-1])
        assert refusal.code == ABORTED
        assert refusal.values["last_tick"] == str(answers[0].result.last_tick)


# -- The fencing token ---------------------------------------------------------------------------------------


async def test_an_older_writer_is_fenced_off(client: AsyncClient) -> None:
    orders = client.vchannel("orders/0")
    await orders.fence(1)
    await orders.append(b"old", fencing_token=1)

    await orders.fence(2)

    with pytest.raises(tidelog.FencedError) as caught:
        await orders.append(b"late", fencing_token=1)
    assert (caught.value.fencing_token, caught.value.actual_fencing_token) == (1, 2)
    assert caught.value.effect == "none"
    await orders.append([b"new"], fencing_token=2)
    await orders.append(b"whoever")
    assert await payloads(client, "orders/0") == [b"old", b"new", b"whoever"]
    assert (await token_of(client, 0), await token_of(client, 1)) == (2, 0)


async def test_a_token_only_grows(client: AsyncClient) -> None:
    await client.fence("orders/0", 5)
    await client.fence("orders/0", 5)

    with pytest.raises(tidelog.FencedError) as caught:
        await client.fence("orders/0", 4)

    assert caught.value.actual_fencing_token == 5
    assert await token_of(client) == 5


async def test_a_token_that_was_never_set_is_refused(client: AsyncClient) -> None:
    with pytest.raises(tidelog.FencedError, match="set it first"):
        await client.append("orders/0", b"x", fencing_token=3)


@pytest.mark.parametrize("token", [0, -1, 1 << 64])
async def test_what_is_no_token_is_refused_before_anything_is_sent(client: AsyncClient, token: int) -> None:
    with pytest.raises(ValueError, match="fencing token"):
        await client.fence("orders/0", token)
    with pytest.raises(ValueError, match="fencing token"):
        await client.append("orders/0", b"x", fencing_token=token)
    with pytest.raises(ValueError, match="fencing token"):
        client.producer("orders/0", fencing_token=token)


async def test_a_producer_that_is_fenced_off_stops(client: AsyncClient) -> None:
    await client.fence("orders/0", 1)
    old: AsyncProducer = client.producer("orders/0", fencing_token=1)
    await old.send_many([b"1", b"2"])
    await old.flush()

    await client.fence("orders/0", 2)

    await old.send(b"3")
    with pytest.raises(tidelog.FencedError):
        await old.flush()
    with pytest.raises(tidelog.ProducerStoppedError):
        await old.send(b"4")
    async with client.producer("orders/0", fencing_token=2) as new:
        await new.send(b"5")
    assert await payloads(client, "orders/0") == [b"1", b"2", b"5"]


async def test_both_conditions_hold_or_nothing_happens(client: AsyncClient) -> None:
    await client.fence("orders/0", 1)
    with pytest.raises(tidelog.FencedError):
        await client.append("orders/0", b"x", fencing_token=2, expected_last_tick=9)
    with pytest.raises(tidelog.LastTickMismatchError):
        await client.append("orders/0", b"x", fencing_token=1, expected_last_tick=9)
    await client.append("orders/0", b"y", fencing_token=1, expected_last_tick=0)
    assert await payloads(client, "orders/0") == [b"y"]
