"""Trim over real gRPC: a prefix goes, what is left stays, and no reader passes the gap silently.

Method: both log stores, trims at and within batches, and scans from every position around them.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from tidelog.v1 import error_pb2
from tidelog.v1 import wal_service_pb2 as wal
from tidelog_testing.parts.grpc_calls import Client, connected, refused, running_server


@pytest.fixture(params=["memory", "rocksdb"])
async def client(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    folder = None if request.param == "memory" else tmp_path / "data"
    async with running_server(folder) as server, connected(server) as client:
        await client.create("a")
        yield client


async def filled(client: Client) -> list[int]:
    """Append ten batches of three; return the ticks of all messages."""
    firsts = [(await client.append("a", b"0", b"1", b"2")).first_tick for _ in range(10)]
    return [first + index for first in firsts for index in range(3)]


async def trim(client: Client, **until: object) -> int:
    response = await client.wal.Trim(wal.TrimRequest(vchannel="a", **until))  # type: ignore[arg-type]  # One of several.
    first: int = response.first_available_tick
    return first


async def ticks_left(client: Client) -> list[int]:
    return [tick for _, tick, _ in await client.rows("a")]


@pytest.mark.parametrize("place", [0, 1, 3, 14, 15, 29])
async def test_exactly_the_messages_below_the_tick_go(client: Client, place: int) -> None:
    ticks = await filled(client)
    first = await trim(client, before_tick=ticks[place])
    assert first <= ticks[place]
    assert await ticks_left(client) == ticks[place:]
    found_rows = await client.rows("a", policy=wal.DeliverPolicy(from_tick=first))
    assert [tick for _, tick, _ in found_rows] == ticks[place:]


@pytest.mark.parametrize("place", [1, 3, 14, 15, 29])
async def test_a_position_below_the_trim_is_refused_with_the_first_that_is_left(client: Client, place: int) -> None:
    ticks = await filled(client)
    first = await trim(client, before_tick=ticks[place])
    assert first > ticks[0]
    async with refused() as found:
        await client.rows("a", policy=wal.DeliverPolicy(from_tick=first - 1))
    assert (found[0].code, found[0].reason) == (
        grpc.StatusCode.OUT_OF_RANGE.value[0], error_pb2.REASON_POSITION_TRIMMED,
    )  # fmt: skip
    assert found[0].values == {
        "vchannel": "a/0", "requested_tick": str(first - 1), "first_available_tick": str(first),
    }  # fmt: skip


@pytest.mark.parametrize("until", [{"before_tick": 0}, {"before_tick": 1}, {"before_time_ms": 0}])
async def test_a_trim_below_everything_removes_nothing(client: Client, until: dict[str, int]) -> None:
    ticks = await filled(client)
    await trim(client, **until)
    assert await ticks_left(client) == ticks


@pytest.mark.parametrize("until", [{"all": wal.TrimAll()}, {"before_tick": (1 << 63) - 1}, {"before_time_ms": 1 << 44}])
async def test_a_trim_of_everything_leaves_the_vchannel_usable(client: Client, until: dict[str, object]) -> None:
    ticks = await filled(client)
    assert await trim(client, **until) == ticks[-1] + 1
    assert await ticks_left(client) == []
    # A reader that had read everything is still in range.
    assert await client.rows("a", policy=wal.DeliverPolicy(after_tick=ticks[-1])) == []
    later = await client.append("a", b"later")
    assert await ticks_left(client) == [later.first_tick]


async def test_a_trim_below_an_earlier_one_changes_nothing(client: Client) -> None:
    ticks = await filled(client)
    first = await trim(client, before_tick=ticks[12])
    assert await trim(client, before_tick=ticks[3]) == first
    assert await ticks_left(client) == ticks[12:]


async def test_a_trim_of_an_empty_vchannel_is_no_harm(client: Client) -> None:
    await trim(client, all=wal.TrimAll())
    later = await client.append("a", b"x")
    assert await ticks_left(client) == [later.first_tick]


async def test_a_scan_by_time_or_filter_passes_over_what_was_trimmed(client: Client) -> None:
    ticks = await filled(client)
    await trim(client, before_tick=ticks[12])
    by_time = await client.rows("a", policy=wal.DeliverPolicy(from_time_ms=1))
    by_filter = await client.rows("a", filters=[wal.DeliverFilter(tick_gte=ticks[3])])
    assert [tick for _, tick, _ in by_time] == [tick for _, tick, _ in by_filter] == ticks[12:]


async def test_a_trim_is_there_after_a_restart(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        await client.create("a")
        ticks = await filled(client)
        first = await trim(client, before_tick=ticks[13])
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        assert await ticks_left(client) == ticks[13:]
        assert await trim(client, before_tick=1) == first
