"""Consumer groups by their calls: records, subscriptions, positions, lag, seek, consume. Method: a real server.

Members are tested in test_consumers.py, refusals in test_bad_input_groups.py.

Promises of docs/reference/guarantees.md: G31, G34, G35.
"""

import asyncio

import pytest

import tidelog
from tidelog import AsyncClient, At, PositionCommit, Tick
from tidelog_testing.parts.fixtures import client_with

client = client_with(orders=2, payments=1)


async def append(client: AsyncClient, vchannel: str, *payloads: bytes) -> list[int]:
    result = await client.append(vchannel, list(payloads))
    return list(range(result.first_tick, result.last_tick + 1))


async def test_a_group_is_subscribed_to_whole_channels_and_listed(client: AsyncClient) -> None:
    created = await client.create_group("billing", ["orders", "payments"])
    await client.create_group("audit", "payments")
    await client.create_group("idle")

    assert list(created.positions) == ["orders/0", "orders/1", "payments/0"]
    assert created.members == ()
    listed = [group async for group in client.list_groups()]
    assert [(group.name, group.vchannels, group.members) for group in listed] == [
        ("audit", 1, 0), ("billing", 3, 0), ("idle", 0, 0)
    ]  # fmt: skip
    assert [group.name async for group in client.list_groups("b")] == ["billing"]
    assert [group.name async for group in client.list_groups(channel="payments")] == ["audit", "billing"]
    assert listed[0].created_tick > created.created_tick


async def test_subscriptions_come_and_go(client: AsyncClient) -> None:
    ticks = await append(client, "payments", b"a", b"b")
    await client.create_group("billing", "orders", start=At.latest())

    subscribed = await client.subscribe_group("billing", "payments", start=At.tick(ticks[1]))
    assert subscribed.positions["payments/0"].next_tick == ticks[1]
    again = await client.subscribe_group("billing", ["orders", "payments"], start=At.earliest())
    assert again.positions == subscribed.positions
    left = await client.unsubscribe_group("billing", "orders")
    assert list(left.positions) == ["payments/0"]
    assert (await client.unsubscribe_group("billing", "orders")).positions.keys() == {"payments/0"}


async def test_a_new_subscription_begins_where_the_group_does(client: AsyncClient) -> None:
    ticks = await append(client, "orders/0", b"a", b"b", b"c")
    for name, start, expected in (
        ("earliest", At.earliest(), 0),
        ("tick", At.tick(ticks[1]), ticks[1]),
        ("id", At.message_id(ticks[1].to_bytes(8, "big")), ticks[1]),
        ("time", At.time(0), 0),
    ):
        group = await client.create_group(name, "orders", start=start)
        assert group.positions["orders/0"].next_tick == expected
    group = await client.create_group("after", "orders/0", start=At.after(ticks[1]))
    assert group.positions["orders/0"].next_tick == ticks[2]
    group = await client.create_group("latest", "orders", start=At.latest())
    assert ticks[2] < group.positions["orders/0"].next_tick
    await client.create_channel("later")
    assert (await client.subscribe_group("tick", "later")).positions["later/0"].next_tick == ticks[1]


async def test_one_tick_behind_which_a_group_would_be_on_several_vchannels_is_refused(client: AsyncClient) -> None:
    [tick] = await append(client, "orders/0", b"a")
    await client.create_group("billing", "orders")
    await client.create_group("empty")
    for after in (At.after(tick), At.after_message_id(tick.to_bytes(8, "big"))):
        for call in (
            client.create_group("other", "orders", start=after),
            client.subscribe_group("empty", "orders", start=after),
            client.seek_group("billing", after),
            client.seek_group("billing", after, "orders"),
        ):
            with pytest.raises(tidelog.InvalidRequestError, match="the copies of a broadcast have the same tick"):
                await call
        assert (await client.seek_group("billing", after, "orders/0"))["orders/0"].next_tick == tick + 1
    assert [group.name async for group in client.list_groups(channel="orders")] == ["billing"]


async def test_a_seek_takes_a_position_of_each_vchannel_and_sets_all_or_none(client: AsyncClient) -> None:
    await client.create_group("billing", ["orders", "payments"])
    first, second = await append(client, "orders/0", b"a", b"b"), await append(client, "orders/1", b"c", b"d")
    async with client.scan("orders") as scan:
        _ = [batch async for batch in scan]

    moved = await client.seek_group("billing", scan.positions)
    assert {name: each.next_tick for name, each in moved.items()} == {
        "orders/0": scan.positions["orders/0"] + 1, "orders/1": scan.positions["orders/1"] + 1,
    }  # fmt: skip
    moved = await client.seek_group("billing", {"orders/1": Tick(second[0]), "orders/0": Tick(0)})
    assert [each.next_tick for each in moved.values()] == [1, second[0] + 1]
    assert [message.payload for message in (await client.consume("billing", "orders/1")).messages] == [b"d"]
    assert (await client.seek_group("billing", {"orders/0": Tick(first[0])}))["orders/0"].next_tick == first[0] + 1

    before = (await client.describe_group("billing")).positions
    await client.trim("orders/0", before=Tick(first[1]))
    for positions, error in (
        ({"orders/1": Tick(0), "orders/0": Tick(0)}, tidelog.PositionTrimmedError),
        ({"orders/1": Tick(0), "orders/0": Tick(1 << 62)}, tidelog.PositionBeyondEndError),
        ({"orders/1": Tick(0), "orders/2": Tick(0)}, tidelog.ChannelNotFoundError),
        ({}, ValueError),
    ):
        with pytest.raises(error):
            await client.seek_group("billing", positions)
    with pytest.raises(ValueError, match="pass the positions only"):
        await client.seek_group("billing", {"orders/1": Tick(0)}, "orders")
    after = (await client.describe_group("billing")).positions
    assert [each.next_tick for each in after.values()] == [each.next_tick for each in before.values()]


async def test_creating_again_is_refused_or_adds_what_is_missing(client: AsyncClient) -> None:
    created = await client.create_group("billing", "orders")
    with pytest.raises(tidelog.GroupAlreadyExistsError):
        await client.create_group("billing", "payments")
    again = await client.create_group("billing", ["orders", "payments"], if_not_exists=True)
    assert again.created_tick == created.created_tick
    assert list(again.positions) == ["orders/0", "orders/1", "payments/0"]


async def test_destroying_forgets_the_positions(client: AsyncClient) -> None:
    ticks = await append(client, "payments", b"a", b"b")
    await client.create_group("billing", "payments")
    await client.commit_positions([PositionCommit("billing", "payments/0", ticks[1])])

    assert await client.destroy_group("billing")
    assert not await client.destroy_group("billing", ignore_missing=True)
    with pytest.raises(tidelog.GroupNotFoundError):
        await client.describe_group("billing")
    assert (await client.create_group("billing", "payments")).positions["payments/0"].next_tick == 0


async def test_commits_move_forward_only(client: AsyncClient) -> None:
    ticks = await append(client, "payments", b"a", b"b", b"c")
    await client.create_group("billing", ["orders", "payments"])
    await client.commit_positions(
        [PositionCommit("billing", "payments/0", ticks[2]), PositionCommit("billing", "orders/1", ticks[0])]
    )
    await client.commit_positions([PositionCommit("billing", "payments", ticks[1])])

    positions = (await client.describe_group("billing")).positions
    assert (positions["payments/0"].next_tick, positions["orders/1"].next_tick) == (ticks[2], ticks[0])


async def test_lag_is_exact_in_messages_and_tells_bytes_and_age(client: AsyncClient) -> None:
    await client.create_group("billing", "payments")
    ticks = [tick for _ in range(30) for tick in await append(client, "payments", *[b"x" * 100] * 7)]
    described = await client.describe_channels(["payments"])
    in_all = described[0].vchannels[0].bytes

    for consumed in (0, 1, 6, 7, 8, 100, 209, 210):
        to = At.tick(ticks[consumed]) if consumed < 210 else At.latest()
        await client.seek_group("billing", to, "payments")
        position = (await client.describe_group("billing")).positions["payments/0"]
        assert position.lag_messages == 210 - consumed
        assert abs(position.lag_bytes - in_all * (210 - consumed) / 210) <= 210
        assert (position.lag_s > 0) == (consumed < 210)
        assert not position.is_trimmed
    assert (await client.describe_group("billing")).lag_messages == 0


async def test_lag_behind_a_trim_says_so(client: AsyncClient) -> None:
    await client.create_group("billing", "payments")
    ticks = [tick for _ in range(10) for tick in await append(client, "payments", *[b"x"] * 10)]
    await client.trim("payments", At.tick(ticks[35]))

    position = (await client.describe_group("billing")).positions["payments/0"]
    assert (position.is_trimmed, position.lag_messages) == (True, 65)
    await client.seek_group("billing", At.earliest())
    position = (await client.describe_group("billing")).positions["payments/0"]
    assert (position.is_trimmed, position.next_tick, position.lag_messages) == (False, ticks[35], 65)
    await client.trim("payments", everything=True)
    position = (await client.describe_group("billing")).positions["payments/0"]
    assert (position.is_trimmed, position.lag_messages) == (True, 0)


async def test_seek_goes_anywhere_on_some_vchannels_or_all(client: AsyncClient) -> None:
    first, second = await append(client, "orders/0", b"a", b"b"), await append(client, "orders/1", b"c", b"d")
    await client.create_group("billing", ["orders", "payments"])

    moved = await client.seek_group("billing", At.latest(), ["orders"])
    assert list(moved) == ["orders/0", "orders/1"]
    assert min(position.next_tick for position in moved.values()) > max(*first, *second)
    assert list(await client.seek_group("billing", At.tick(first[1]), "orders/0")) == ["orders/0"]
    assert list(await client.seek_group("billing", At.time(0))) == ["orders/0", "orders/1", "payments/0"]
    assert {each.next_tick for each in (await client.describe_group("billing")).positions.values()} == {0}


async def test_consume_hands_out_each_message_until_it_is_committed(client: AsyncClient) -> None:
    await client.create_group("billing", "payments")
    assert len(await client.consume("billing", "payments")) == 0
    payloads = [b"%d" % number for number in range(25)]
    for begin in range(0, 25, 10):
        await append(client, "payments", *payloads[begin : begin + 10])

    got = await client.consume("billing", "payments", 12)
    assert [message.payload for message in got.messages] == payloads[:12]
    assert [message.payload for message in (await client.consume("billing", "payments", 3)).messages] == payloads[:3]
    await client.commit_positions([PositionCommit("billing", "payments", got.next_tick)])
    rest = await client.consume("billing", "payments/0", 100)
    assert [message.payload for message in rest.messages] == payloads[12:]
    assert {message.vchannel for message in rest.messages} == {"payments/0"}


async def test_consuming_at_once_gives_each_message_to_one_caller(client: AsyncClient) -> None:
    await client.create_group("billing", "payments")
    payloads = [b"%d" % number for number in range(500)]
    for begin in range(0, 500, 50):
        await append(client, "payments", *payloads[begin : begin + 50])

    async def consume_all() -> list[bytes]:
        found: list[bytes] = []
        while got := await client.consume("billing", "payments", 7, commit=True):
            found += [message.payload for message in got.messages]
        return found

    found = await asyncio.gather(*(consume_all() for _ in range(4)))
    assert sorted(payload for each in found for payload in each) == sorted(payloads)
    for each in found:
        assert each == sorted(each, key=int)


async def test_consume_waits_for_a_first_message(client: AsyncClient) -> None:
    await client.create_group("billing", "payments")
    waiting = asyncio.create_task(client.consume("billing", "payments", wait_s=30))
    # The server is asked, and finds nothing, before anything is appended.
    assert len(await client.consume("billing", "payments", wait_s=0.05)) == 0
    await append(client, "payments", b"a")
    assert [message.payload for message in (await waiting).messages] == [b"a"]


async def test_consume_ends_at_its_size(client: AsyncClient) -> None:
    await client.create_group("billing", "payments")
    for _ in range(5):
        await append(client, "payments", *[b"x" * 10_000] * 3)
    got = await client.consume("billing", "payments", max_bytes=35_000)
    assert 3 < len(got) < 15
    assert len(await client.consume("billing", "payments", max_bytes=1)) >= 1


async def test_a_destroyed_channel_takes_its_positions_along(client: AsyncClient) -> None:
    await append(client, "payments", b"a")
    await client.create_group("billing", ["orders", "payments"])
    await client.seek_group("billing", At.latest(), "payments")
    await client.destroy_channels(["payments"])
    assert list((await client.describe_group("billing")).positions) == ["orders/0", "orders/1"]
    await client.create_channel("payments")
    again = await client.subscribe_group("billing", "payments")
    assert again.positions["payments/0"].next_tick == 0
