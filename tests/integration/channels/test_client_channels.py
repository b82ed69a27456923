"""Channels through the client: many names in one call, and the error of a call that fails half way.

Method: a real server; in some of the requests that a call is divided into, names exist already or are missing.
"""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import tidelog
from tidelog import Retention
from tidelog_testing.parts.grpc_calls import running_server

NAMES = [f"c-{number:03}" for number in range(250)]


@pytest.fixture
async def client() -> AsyncIterator[tidelog.AsyncClient]:
    async with running_server() as server, tidelog.AsyncClient(server.grpc_endpoint) as client:
        yield client


async def listed(client: tidelog.AsyncClient) -> list[str]:
    return [channel.name async for channel in client.list_channels()]


async def test_more_names_than_fit_into_a_request_are_divided(client: tidelog.AsyncClient) -> None:
    created = await client.create_channels(NAMES, retention=Retention(bytes=1))
    assert [channel.name for channel in created] == NAMES
    altered = await client.alter_channels(NAMES, retention={"age": timedelta(days=1)})
    assert {channel.retention for channel in altered} == {Retention(timedelta(days=1), 1)}
    assert [channel.name for channel in await client.describe_channels(NAMES)] == NAMES
    assert await client.destroy_channels([*NAMES, "no"], ignore_missing=True) == NAMES
    assert await listed(client) == []
    assert len(await client.create_channels(number=201)) == 201


async def test_a_call_that_stops_half_way_says_what_was_done(client: tidelog.AsyncClient) -> None:
    await client.create_channels([NAMES[150], NAMES[160]])
    with pytest.raises(tidelog.ChannelsPartlyDoneError) as stopped:
        await client.create_channels(NAMES)
    assert stopped.value.done == tuple(NAMES[:100])
    assert stopped.value.not_done == tuple(NAMES[100:])
    assert (stopped.value.unknown, stopped.value.effect) == ((), "none")
    cause = stopped.value.__cause__
    assert isinstance(cause, tidelog.ChannelAlreadyExistsError)
    assert cause.names == (NAMES[150], NAMES[160])
    assert await listed(client) == [*NAMES[:100], NAMES[150], NAMES[160]]

    with pytest.raises(tidelog.ChannelsPartlyDoneError) as stopped:
        await client.destroy_channels([*NAMES[:100], "no"])
    assert (stopped.value.done, stopped.value.not_done) == (tuple(NAMES[:100]), ("no",))


async def test_a_first_request_that_fails_is_told_as_it_is(client: tidelog.AsyncClient) -> None:
    await client.create_channel(NAMES[7])
    with pytest.raises(tidelog.ChannelAlreadyExistsError) as taken:
        await client.create_channels(NAMES)
    assert taken.value.names == (NAMES[7],)
    assert await listed(client) == [NAMES[7]]


async def test_creating_and_destroying_again_changes_nothing(client: tidelog.AsyncClient) -> None:
    for _ in range(2):
        created = await client.create_channels(["a", "b"], if_not_exists=True)
        assert [channel.name for channel in created] == ["a", "b"]
    assert await client.destroy_channels(["a", "b"], ignore_missing=True) == ["a", "b"]
    assert await client.destroy_channels(["a", "b"], ignore_missing=True) == []
    assert await client.describe_channels(["a"], ignore_missing=True) == []


async def test_neither_names_nor_a_number_or_both_is_refused(client: tidelog.AsyncClient) -> None:
    for names, number in (([], 0), (["a"], 1)):
        with pytest.raises(tidelog.InvalidRequestError, match="either names or a number"):
            await client.create_channels(names, number=number)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"age": timedelta(0)}, "retention.age"),
        ({"age": timedelta(days=-1)}, "retention.age"),
        ({"bytes": 0}, "retention.bytes"),
        ({"bytes": -1}, "retention.bytes"),
        ({"hard_bytes": (1 << 60) + 1}, "retention.hard_bytes"),
        ({"bytes": 2, "hard_bytes": 1}, "below retention.bytes"),
        ({"age": "3 days"}, "not a valid age"),
        ({"bytes": "1 apple"}, "not a valid size"),
    ],
)
def test_a_retention_that_cannot_be_is_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Retention.of(**fields)  # type: ignore[arg-type]  # Some are invalid on purpose.


def test_ages_and_sizes_are_read_as_people_write_them() -> None:
    assert Retention.of("1h30m", "1GiB", "1.5GiB") == Retention(timedelta(minutes=90), 1 << 30, 3 << 29)
    assert Retention.of("250ms", "500MB", "4096000000") == Retention(timedelta(seconds=0.25), 5 * 10**8, 4_096_000_000)
    assert Retention.of(bytes="64k").bytes == 64 << 10


async def test_a_change_of_an_unknown_setting_is_refused(client: tidelog.AsyncClient) -> None:
    with pytest.raises(ValueError, match="unknown retention setting 'size'"):
        await client.alter_channels(["a"], retention={"size": 1})  # type: ignore[arg-type]  # On purpose.
