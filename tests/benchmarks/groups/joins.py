"""``benchmarks joins``: members join a group with many vchannels one after the other, until each has its share.

The members are consumers of one process that wait for messages; nothing is appended. The group has settled once each
member has its share, and no vchannel waits for a release.
"""

import asyncio
import resource
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from tidelog import AsyncClient, AsyncConsumer
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.report import Report
from tidelog_server.commands.bench.server_process import Target
from tidelog_server.core.limits import MAX_VCHANNELS_PER_CHANNEL

_MEMBERS_PER_CLIENT: Final = 16
_SETTLE_WITHIN_S: Final = 600.0
_POLL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class JoinsSettings:
    """Settings of ``benchmarks joins``.

    Attributes:
        members: Number of members.
        vchannels: Number of vchannels, over as many channels as they need.
        settles_each: True if a member joins only once the group has settled after the one before.
    """

    members: int
    vchannels: int
    settles_each: bool


async def measure_joins(target: Target, settings: JoinsSettings) -> Report:
    """Let members join one after the other; returns the seconds until the last has joined, and until all settled."""
    async with _clients(target, settings) as clients, _channels(clients[0], settings.vchannels) as channels:
        # The name of the first channel is unique.
        group = channels[0]
        await clients[0].create_group(group, channels)
        server_s, own_s, start_s = target.cpu_s() or 0.0, _own_cpu_s(), time.perf_counter()
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as scope:
            consumers: list[AsyncConsumer] = []
            tasks = []
            for number in range(settings.members):
                consumer = clients[number % len(clients)].consumer(group, channels)
                consumers.append(await stack.enter_async_context(consumer))
                tasks.append(scope.create_task(_consume(consumer)))
                if settings.settles_each:
                    await _settled(consumers, settings.vchannels)
            joined_s = time.perf_counter() - start_s
            await _settled(consumers, settings.vchannels)
            settled_s = time.perf_counter() - start_s
            cpu = {"server_cpu_s": (target.cpu_s() or 0.0) - server_s, "client_cpu_s": _own_cpu_s() - own_s}
            # Before the members leave, which moves their vchannels.
            moved = target.metrics().get("tidelog_group_assignments_total", 0.0)
            await _check(clients[0], group, consumers)
            for task in tasks:
                task.cancel()
        await clients[0].destroy_group(group)
    return Report(
        name="joins",
        settings={
            "members": settings.members, "vchannels": settings.vchannels, "settles_each": settings.settles_each,
        },
        server_rss_bytes=target.peak_rss_bytes(),
        details={"joined_s": joined_s, "settled_s": settled_s, "assignments": moved, **cpu},
    )  # fmt: skip


@asynccontextmanager
async def _clients(target: Target, settings: JoinsSettings) -> AsyncIterator[list[AsyncClient]]:
    async with AsyncExitStack() as stack:
        count = -(-settings.members // _MEMBERS_PER_CLIENT)
        yield [await stack.enter_async_context(AsyncClient(target.grpc)) for _ in range(count)]


@asynccontextmanager
async def _channels(client: AsyncClient, vchannels: int) -> AsyncIterator[list[str]]:
    async with AsyncExitStack() as stack:
        channels = []
        for begin in range(0, vchannels, MAX_VCHANNELS_PER_CHANNEL):
            count = min(vchannels - begin, MAX_VCHANNELS_PER_CHANNEL)
            names = await stack.enter_async_context(bench_vchannels(client, count))
            channels.append(names[0].rpartition("/")[0])
        yield channels


async def _consume(consumer: AsyncConsumer) -> None:
    async for _ in consumer:
        pass


async def _settled(consumers: Sequence[AsyncConsumer], vchannels: int) -> None:
    """Wait until the consumers have all vchannels, and none has two more than another."""
    async with asyncio.timeout(_SETTLE_WITHIN_S):
        while True:
            shares = [len(consumer.assignment) for consumer in consumers]
            if sum(shares) == vchannels and max(shares) - min(shares) <= 1:
                return
            await asyncio.sleep(_POLL_S)


async def _check(client: AsyncClient, group: str, consumers: Sequence[AsyncConsumer]) -> None:
    """Check that the server has the same holders: each vchannel one."""
    described = await client.describe_group(group)
    assert {member.member_id: member.vchannels for member in described.members} == {
        consumer.member_id: consumer.assignment for consumer in consumers
    }


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
