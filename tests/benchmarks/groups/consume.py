"""``benchmarks consume``: messages per second through a consumer group, against a scan of the same log."""

import asyncio
import json
import statistics
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from benchmarks.children import child_process, line_of
from tidelog import AsyncClient, At
from tidelog_server.commands.bench.appending import Load, append_lists
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Floor, Report
from tidelog_server.commands.bench.server_process import Target

_ROUNDS: Final = 3
_MEMBER_MODULE: Final = "benchmarks.groups.consume_member"
_JOIN_WITHIN_S: Final = 30.0
_CONSUME_WITHIN_S: Final = 300.0
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class ConsumeSettings:
    """Settings of ``benchmarks consume``.

    Attributes:
        messages: Total number of messages.
        size: Bytes per payload.
        members: Number of members, each a process.
        vchannels: Number of vchannels.
        commit_every: Messages per batch; each batch is committed durably.
        waits: True if a member waits for each commit before the next batch.
    """

    messages: int
    size: int
    members: int
    vchannels: int
    commit_every: int
    waits: bool


@dataclass(frozen=True, slots=True)
class _Order:
    """The work of a group's members: consume a channel up to ``ends``, exclusive ticks by vchannel."""

    endpoint: str
    group: str
    channel: str
    ends: Mapping[str, int]
    settings: ConsumeSettings


async def measure_consume(target: Target, settings: ConsumeSettings) -> Report:
    """Append messages, then scan and consume them in turns; returns medians over the rounds."""
    async with AsyncClient(target.grpc) as client, bench_vchannels(client, settings.vchannels) as vchannels:
        load = Load(settings.messages, settings.commit_every, vchannels, producers=settings.vchannels)
        await append_lists(client, distinct_payloads(settings.size), load)
        channel = vchannels[0].rpartition("/")[0]
        described = await client.describe_channels([channel])
        ends = {vchannel.name: int(vchannel.last_tick) + 1 for vchannel in described[0].vchannels}
        scanned: list[float] = []
        consumed: list[float] = []
        commits: list[float] = []
        for number in range(_ROUNDS):
            scanned.append(settings.messages / await _scan_seconds(client, vchannels, settings.messages))
            seconds, count = await _consume_seconds(
                client, _Order(target.grpc, f"{channel}-{number}", channel, ends, settings)
            )
            consumed.append(settings.messages / seconds)
            commits.append(count / seconds)
    ratios = [ours / floor for ours, floor in zip(consumed, scanned, strict=True)]
    shown: dict[str, object] = {
        "messages": settings.messages, "size": settings.size, "members": settings.members,
        "vchannels": settings.vchannels, "commit_every": settings.commit_every, "waits_for_commits": settings.waits,
    }  # fmt: skip
    return Report(
        name="consume",
        settings=shown,
        messages_per_second=statistics.median(consumed),
        server_rss_bytes=target.peak_rss_bytes(),
        floor=Floor("a scan of all vchannels in one process", "messages_per_second", statistics.median(scanned)),
        ratio=statistics.median(ratios),
        details={"commits_per_second": statistics.median(commits)},
    )


async def _scan_seconds(client: AsyncClient, vchannels: list[str], messages: int) -> float:
    """Scan every payload into its own bytes object, as ``bench scan`` does."""
    start = time.perf_counter()
    count = 0
    async with client.scan(vchannels, until=At.watermark()) as scan:
        async for batch in scan:
            count += len(batch.payloads)
    assert count == messages
    return time.perf_counter() - start


async def _consume_seconds(client: AsyncClient, order: _Order) -> tuple[float, int]:
    """Consume all messages with a group; return the seconds from start to end of all members, and their commits."""
    settings, group = order.settings, order.group
    await client.create_group(group, order.channel)
    try:
        async with AsyncExitStack() as stack:
            members = [
                await stack.enter_async_context(child_process(_MEMBER_MODULE, _member_order(order)))
                for _ in range(settings.members)
            ]
            async with asyncio.timeout(_JOIN_WITHIN_S):
                await _wait_for_shares(client, order)
            start = time.perf_counter()
            for member in members:
                assert member.stdin is not None
                member.stdin.write(b"go\n")
            async with asyncio.timeout(_CONSUME_WITHIN_S):
                ended = [json.loads(await line_of(member)) for member in members]
            seconds = time.perf_counter() - start
        assert sum(each["messages"] for each in ended) == settings.messages
        described = await client.describe_group(group)
        assert described.lag_messages == 0, f"{described.lag_messages} messages were not committed"
        return seconds, sum(each["commits"] for each in ended)
    finally:
        await client.destroy_group(group, force=True)


async def _wait_for_shares(client: AsyncClient, order: _Order) -> None:
    """Wait until all members have joined and have equal shares."""
    settings = order.settings
    while True:
        described = await client.describe_group(order.group)
        shares = [len(member.vchannels) for member in described.members]
        if shares == [settings.vchannels // settings.members] * settings.members:
            return
        await asyncio.sleep(_POLL_S)


def _member_order(order: _Order) -> dict[str, object]:
    return {
        "endpoint": order.endpoint, "group": order.group, "channel": order.channel, "ends": order.ends,
        "waits": order.settings.waits,
    }  # fmt: skip
