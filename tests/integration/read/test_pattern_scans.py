"""Goal: a pattern stands for the channels that match it when a scan opens, and that the caller may read.

Method: a server in this process, and one with authentication; channels with one message each.
"""

import asyncio

import pytest

import tidelog
from tidelog import AsyncClient, At, ChannelNotFoundError, InvalidRequestError, Tick
from tidelog_testing.parts.fixtures import client_with, secured_with
from tidelog_testing.servers.secured import Secured

client = client_with(**{"orders.eu": 1, "orders.us": 2, "orders": 1, "shop": 1})
secured = secured_with()


async def payloads(scan: tidelog.AsyncScan) -> list[bytes]:
    return [payload async for batch in scan for payload in batch.payloads]


async def append_names(client: AsyncClient) -> None:
    """Append to each vchannel its name."""
    async for channel in client.list_channels():
        for vchannel in channel.vchannels:
            await client.append(vchannel.name, vchannel.name.encode())


async def test_a_pattern_stands_for_every_channel_that_matches(client: AsyncClient) -> None:
    await append_names(client)

    assert await payloads(client.scan("orders.*")) == [b"orders.eu/0", b"orders.us/0", b"orders.us/1"]
    # Of several names each vchannel is read once, in the order of ticks.
    assert await payloads(client.scan(["shop", "*.us", "orders.us/1", "orders.*"])) == [
        b"orders.eu/0", b"orders.us/0", b"orders.us/1", b"shop/0",
    ]  # fmt: skip
    assert await payloads(client.scan("?hop")) == [b"shop/0"]
    assert len(await payloads(client.scan("*"))) == 5


async def test_a_pattern_without_a_match_says_what_it_means(client: AsyncClient) -> None:
    with pytest.raises(
        ChannelNotFoundError, match=r"no channel matches the pattern 's\.\*': it matches names that begin"
    ):
        await anext(client.scan("s.*"))
    with pytest.raises(ValueError, match="regular expressions are not supported"):
        client.scan("(orders|shop)*")


async def test_lists_take_a_pattern_too(client: AsyncClient) -> None:
    assert [channel.name async for channel in client.list_channels("*.us")] == ["orders.us"]
    assert [channel.name async for channel in client.list_channels("orders*", only_readable=True)] == [
        "orders", "orders.eu", "orders.us",
    ]  # fmt: skip
    assert await client.vchannels_of(["shop", "orders.us/1", "orders.u?"]) == ["shop/0", "orders.us/1", "orders.us/0"]
    with pytest.raises(ChannelNotFoundError, match="'nowhere' does not exist"):
        await client.vchannels_of(["nowhere"])


async def test_a_channel_that_is_created_later_is_read_by_a_scan_that_resumes(client: AsyncClient) -> None:
    await append_names(client)
    async with client.tail("orders.*", start=At.earliest()) as tail:
        seen = [(await anext(tail)).payloads for _ in range(3)]
        await client.create_channel("orders.asia")
        await client.append("orders.asia", b"new")
        await client.append("orders.eu", b"more")
        assert (await anext(tail)).payloads == [b"more"]
        positions = tail.positions
    assert len(seen) == 3
    assert set(positions) == {"orders.eu/0", "orders.us/0", "orders.us/1"}

    assert await payloads(client.scan("orders.*", start=positions)) == [b"new"]
    with pytest.raises(InvalidRequestError, match=r"no position for orders\.asia/0, shop/0"):
        await anext(client.scan(["orders.asia", "shop", "*.us"], start=positions))


async def test_the_synchronous_twin_takes_patterns(client: AsyncClient) -> None:
    await append_names(client)

    def read() -> tuple[list[bytes], list[str]]:
        with tidelog.Client(client.endpoint) as twin, twin.scan("orders.*", start=Tick(0)) as scan:
            found = [payload for batch in scan for payload in batch.payloads]
            return found, [channel.name for channel in twin.list_channels("s*")]

    assert await asyncio.to_thread(read) == ([b"orders.eu/0", b"orders.us/0", b"orders.us/1"], ["shop"])


async def test_only_channels_that_the_caller_may_read_are_read(secured: Secured) -> None:
    token = await secured.token("read:a.*", "append:b.*")
    async with secured.client() as admin, secured.client(token) as client:
        for name in ("a.x", "b.x", "c.x"):
            await admin.create_channel(name)
            await admin.append(name, name.encode())

        assert [channel.name async for channel in client.list_channels("*.x")] == ["a.x", "b.x"]
        assert await payloads(client.scan("*")) == [b"a.x"]
        with pytest.raises(ChannelNotFoundError, match=r"no channel matches the pattern 'b\*'"):
            await anext(client.scan("b*"))
