"""Vchannels that are added across SIGKILL: a channel has the old number or the new one, and groups follow it.

Method: a server kills itself between the steps of a growth, and the next one shows the channel, its groups and its
messages. Then growths under a load of appends, on servers that are killed at random.

Promises of docs/reference/guarantees.md: G57.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, Retry
from tidelog_server.runtime.failpoints import VARIABLE, Failpoint
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.engine_stores import create_log
from tidelog_testing.parts.folder_engine import FolderEngine
from tidelog_testing.servers.on_folder import server_on_folder
from tidelog_testing.servers.processes import ServerProcess

pytestmark = pytest.mark.crash

IMPATIENT = Retry(give_up_s=0.1)
ROUNDS = 8
POINTS = [point for point in Failpoint if point.startswith("channel_growth")]


async def positions(client: AsyncClient, group: str) -> list[str]:
    return sorted((await client.describe_group(group)).positions)


def starter(folder: Path, *, has_engine: bool) -> Callable[..., ServerProcess]:
    """Return what starts a server on the data of the one before: its folder, or a log in an engine and a new view."""
    if not has_engine:
        return partial(ServerProcess, folder / "log", None)
    create_log(FolderEngine(folder / "engine"))
    views = count()

    def start(env: Mapping[str, str] | None = None) -> ServerProcess:
        return server_on_folder(folder / "engine", folder / f"view-{next(views)}", env)

    return start


@pytest.mark.parametrize("has_engine", [False, True])
@pytest.mark.parametrize("point", POINTS)
async def test_a_server_that_dies_between_the_steps_has_added_the_vchannels(
    tmp_path: Path, point: Failpoint, has_engine: bool
) -> None:
    start = starter(tmp_path, has_engine=has_engine)
    with start() as server:
        async with AsyncClient(server.grpc) as client:
            await client.create_channels(["orders", "more"], vchannels=2)
            await client.create_group("all", ["orders", "more"], start=tidelog.At.latest())
            await client.create_group("part", ["orders/0"])
            await client.append("orders/1", b"before")
    with start({VARIABLE: str(point)}) as server:
        async with AsyncClient(server.grpc, retry=IMPATIENT) as client:
            with pytest.raises(tidelog.TidelogError) as unknown:
                await client.alter_channels(["orders", "more"], vchannels=4)
            assert unknown.value.effect == "unknown"
    for _ in range(2):
        with start() as server:
            async with AsyncClient(server.grpc) as client:
                described = await client.describe_channels(["orders", "more"])
                assert [(len(each.vchannels), len(each.growths)) for each in described] == [(4, 1), (4, 1)]
                # The same call again succeeds, and changes nothing.
                again = await client.alter_channels(["orders", "more"], vchannels=4)
                assert [each.growths for each in again] == [each.growths for each in described]
                grown = [f"{name}/{index}" for name in ("more", "orders") for index in range(4)]
                assert await positions(client, "all") == grown
                assert await positions(client, "part") == ["orders/0"]
                await client.append("orders/3", b"after")
                found = await client.consume("all", "orders/3", commit=True)
                assert [message.payload for message in found.messages] == [b"after"]
    with start() as server:
        async with AsyncClient(server.grpc) as client:
            assert await payloads(client, "orders/1") == [b"before"]
            assert await payloads(client, "orders/3") == [b"after"] * 2


@pytest.mark.parametrize("point", [Failpoint.BEFORE_WRITE, Failpoint.AFTER_WRITE_BEFORE_SYNC])
async def test_a_server_that_dies_before_the_record_is_durable_has_the_old_number_or_the_new_one(
    tmp_path: Path, point: Failpoint
) -> None:
    for hit in range(1, 6):
        folder = tmp_path / f"log-{hit}"
        with ServerProcess(folder) as server:
            async with AsyncClient(server.grpc) as client:
                await client.create_channels(["orders", "more"])
                await client.create_group("all", ["orders", "more"])
        with ServerProcess(folder, env={VARIABLE: f"{point}:{hit}"}) as server:
            async with AsyncClient(server.grpc, retry=IMPATIENT) as client:
                with suppress(tidelog.TidelogError):
                    await client.alter_channels(["orders", "more"], vchannels=3)
                    await client.append("orders/2", b"after")
        with ServerProcess(folder) as server:
            async with AsyncClient(server.grpc) as client:
                [number] = {len(each.vchannels) for each in await client.describe_channels(["orders", "more"])}
                assert number in (1, 3)
                assert len(await positions(client, "all")) == 2 * number


async def append_to_all(client: AsyncClient, appended: dict[str, list[bytes]]) -> None:
    """Append to each vchannel in turn until the server is killed."""
    number = 0
    while True:
        for each in (await client.describe_channels(["orders"]))[0].vchannels:
            payload = b"%d" % number
            await client.append(each.name, payload)
            appended.setdefault(each.name, []).append(payload)
            number += 1


async def grow(client: AsyncClient, acknowledged: list[int]) -> None:
    """Add vchannels, one at a time, until the server is killed."""
    while True:
        [grown] = await client.alter_channels(["orders"], vchannels=acknowledged[-1] + 1)
        acknowledged.append(len(grown.vchannels))


async def test_acknowledged_growths_and_messages_outlive_servers_that_are_killed_at_random(tmp_path: Path) -> None:
    chance = random.Random(random.randrange(1 << 32))
    appended: dict[str, list[bytes]] = {}
    acknowledged = [1]
    with ServerProcess(tmp_path / "log") as server:
        async with AsyncClient(server.grpc) as client:
            await client.create_channel("orders")
            await client.create_group("all", ["orders"])
    for _ in range(ROUNDS):
        with ServerProcess(tmp_path / "log") as server:
            async with AsyncClient(server.grpc, retry=IMPATIENT) as client:
                [found] = await client.describe_channels(["orders"])
                # One growth at most was not acknowledged.
                assert acknowledged[-1] <= len(found.vchannels) <= acknowledged[-1] + 1
                assert [growth.vchannels for growth in found.growths] == list(range(1, len(found.vchannels)))
                assert len(await positions(client, "all")) == len(found.vchannels)
                acknowledged.append(len(found.vchannels))
                load = [append_to_all(client, appended), append_to_all(client, appended), grow(client, acknowledged)]
                tasks = [asyncio.ensure_future(each) for each in load]
                await asyncio.wait(tasks, timeout=chance.uniform(0.1, 0.5))
                server.kill()
                for task in tasks:
                    with suppress(tidelog.TidelogError):
                        await task
    with ServerProcess(tmp_path / "log") as server:
        async with AsyncClient(server.grpc) as client:
            for vchannel, wanted in appended.items():
                found_there = await payloads(client, vchannel)
                assert set(wanted) <= set(found_there)
    assert len(acknowledged) > ROUNDS
