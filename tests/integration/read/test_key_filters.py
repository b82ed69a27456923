"""Scans that select messages by key, of a server in this process. Method: append, scan, compare."""

import asyncio
from typing import Any

import pytest

from tidelog import AsyncClient, At, Message, Tick
from tidelog_testing.parts.fixtures import client_with

client = client_with(orders=2)


def keyed(keys: str) -> list[Message]:
    """Return a message for each letter, which is its key; a dot is a message without one."""
    return [Message(letter.encode(), key=None if letter == "." else letter.encode()) for letter in keys]


async def read(client: AsyncClient, **options: Any) -> str:
    scan = client.scan("orders", **options)
    return b"".join([payload async for batch in scan for payload in batch.payloads]).decode()


async def test_only_the_messages_with_the_key_or_its_prefix_are_delivered(client: AsyncClient) -> None:
    await client.append("orders/0", keyed("ab.a"))
    await client.append("orders/1", [Message(b"1", key=b"ab"), Message(b"2", key=b"ba"), Message(b"3", key=b"")])

    assert await read(client, key=b"a") == "aa"
    assert await read(client, key_prefix=b"a") == "aa1"
    assert await read(client, key_prefix=b"") == "aba123"
    assert await read(client, key=b"") == "3"
    assert await read(client, key=b"absent") == ""


async def test_ticks_and_fields_of_what_is_left_are_as_before(client: AsyncClient) -> None:
    result = await client.append("orders/0", [Message(b"0", key=b"x"), Message(b"1", key=b"k", type=7), b"2"])

    [batch] = [batch async for batch in client.scan("orders/0", key=b"k")]

    [message] = batch
    assert (message.tick, message.payload, message.type) == (result.first_tick + 1, b"1", 7)


async def test_positions_pass_what_is_left_out_and_resume_after_it(client: AsyncClient) -> None:
    first = await client.append("orders/0", keyed("ab"))
    last = await client.append("orders/1", keyed("b"))
    async with client.scan("orders", key=b"a") as scan:
        assert [batch.payloads async for batch in scan] == [[b"a"]]
        positions = scan.positions

    assert first.last_tick <= positions["orders/0"]
    assert last.last_tick <= positions["orders/1"]
    await client.append("orders/1", keyed("ab"))
    assert await read(client, start=positions) == "ab"
    assert await read(client, start=positions, key=b"b") == "b"


async def test_a_position_within_a_response_never_passes_what_is_undelivered(client: AsyncClient) -> None:
    for letters in ("x", "a", "x", "a", "x"):
        await client.append("orders/0", keyed(letters))
    delivered: list[Tick] = []
    async with client.scan("orders/0", key=b"a") as scan:
        async for batch in scan:
            delivered.append(batch.last_tick)
            rest = client.scan("orders/0", start=scan.positions, key=b"a")
            assert len([each async for each in rest]) == 2 - len(delivered)
    assert len(delivered) == 2


async def test_a_following_scan_catches_up_and_its_watermark_advances_over_what_is_left_out(
    client: AsyncClient,
) -> None:
    await client.append("orders/0", keyed("bbb"))
    async with asyncio.timeout(30), client.scan("orders/0", until=At.follow(), key=b"a") as scan:
        following = asyncio.create_task(anext(scan))
        await scan.caught_up.wait()
        skipped = await client.append("orders/0", keyed("b"))
        await client.append("orders/0", keyed("a"))

        batch = await following

        assert batch.payloads == [b"a"]
        assert scan.positions["orders/0"] >= batch.last_tick > skipped.last_tick


async def test_transactions_and_broadcasts_keep_their_ids(client: AsyncClient) -> None:
    async with client.txn() as txn:
        await txn.append("orders/0", keyed("ab"))
        await txn.append("orders/1", keyed("ba"))
    broadcast = await client.broadcast(["orders/0", "orders/1"], Message(b"A", key=b"a"))
    await client.broadcast(["orders/0", "orders/1"], Message(b"B", key=b"b"))

    batches = [batch async for batch in client.scan("orders", key=b"a")]

    assert [batch.payloads for batch in batches] == [[b"a"], [b"a"], [b"A"], [b"A"]]
    assert batches[0].txn_id == batches[1].txn_id is not None
    assert [batch.broadcast_id for batch in batches[2:]] == [broadcast.broadcast_id] * 2


async def test_filters_of_the_server_and_of_keys_apply_together(client: AsyncClient) -> None:
    await client.append("orders/0", [Message(b"%d" % i, key=b"%d" % (i % 3), type=i % 2) for i in range(12)])

    assert await read(client, types=[1], key=b"0") == "39"


async def test_wrong_keys_are_refused_before_anything_is_read(client: AsyncClient) -> None:
    with pytest.raises(TypeError, match="key is of type str, expected bytes: encode it"):
        client.scan("orders", key="a")  # type: ignore[arg-type]  # The error is tested.
    with pytest.raises(ValueError, match="both set"):
        client.scan("orders", key=b"a", key_prefix=b"a")
