"""``benchmarks rebalance``: lost and duplicate messages, and pauses, while members of a group are killed and added.

A producer appends numbers at a steady rate. Members, each a process, consume them and append each to an output in a
transaction that commits their positions. In the output, a missing number was lost, a duplicate number was committed
twice, and the gaps between the outputs of one vchannel are the pauses.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from benchmarks.children import start_child
from tidelog import AsyncClient, At
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.report import Report
from tidelog_server.commands.bench.server_process import Target

_MEMBER_MODULE: Final = "benchmarks.groups.rebalance_member"
_PRODUCE_EVERY_S: Final = 0.02
_DRAIN_WITHIN_S: Final = 120.0
_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class RebalanceSettings:
    """Settings of ``benchmarks rebalance``.

    Attributes:
        seconds: Duration of the run.
        members: Number of concurrent members, each a process.
        vchannels: Number of vchannels of the input.
        messages_per_second: Rate of appends to the input.
        kill_every_s: Seconds between kills; a member is added for each killed one.
        seed: Seed of the random choice of the killed member.
    """

    seconds: float
    members: int
    vchannels: int
    messages_per_second: int
    kill_every_s: float
    seed: int


@dataclass(slots=True)
class _Storm:
    """The state of a run."""

    target: Target
    settings: RebalanceSettings
    inputs: Sequence[str]
    output: str
    group: str
    members: list[asyncio.subprocess.Process] = field(default_factory=list)
    # Times of the kills, in milliseconds since the epoch.
    kills_ms: list[float] = field(default_factory=list)
    produced: int = 0
    is_over: bool = False

    async def add_member(self) -> None:
        """Start a member."""
        order = {
            "endpoint": self.target.grpc, "group": self.group, "channel": self.inputs[0].rpartition("/")[0],
            "output": self.output,
        }  # fmt: skip
        self.members.append(await start_child(_MEMBER_MODULE, order))

    async def kill_member(self, chance: random.Random) -> None:
        """Kill a random member, and wait until it has ended."""
        victim = self.members.pop(chance.randrange(len(self.members)))
        if victim.returncode is not None:
            raise RuntimeError(f"a member failed, with exit code {victim.returncode}")
        victim.kill()
        self.kills_ms.append(time.time() * 1_000)
        await victim.wait()

    async def end(self) -> None:
        """Kill all members."""
        for member in self.members:
            if member.returncode is None:
                member.kill()
            await member.wait()


async def measure_rebalance(target: Target, settings: RebalanceSettings) -> Report:
    """Kill and add members under load, then check the output.

    Returns:
        A report whose details have ``lost`` and ``doubled`` messages, both 0 without errors, and the longest pause.
    """
    async with (
        AsyncClient(target.grpc) as client,
        bench_vchannels(client, settings.vchannels) as inputs,
        bench_vchannels(client, 1) as outputs,
    ):
        channel = inputs[0].rpartition("/")[0]
        storm = _Storm(target, settings, inputs, outputs[0], channel)
        await client.create_group(storm.group, channel)
        try:
            await _run(client, storm)
            found, ticks_ms = await _read(client, storm)
        finally:
            await storm.end()
            await client.destroy_group(storm.group, force=True)
    pauses_s = sorted((_pause_ms(each, storm.kills_ms) / 1_000 for each in ticks_ms.values()), reverse=True)
    return Report(
        name="rebalance",
        settings={
            "seconds": settings.seconds, "members": settings.members, "vchannels": settings.vchannels,
            "messages_per_second": settings.messages_per_second, "kill_every_s": settings.kill_every_s,
        },
        server_rss_bytes=target.peak_rss_bytes(),
        details={
            "produced": storm.produced,
            "kills": len(storm.kills_ms),
            "lost": storm.produced - len(found),
            "doubled": sum(count - 1 for count in found.values()),
            "longest_pause_seconds": pauses_s[0],
        },
    )  # fmt: skip


async def _run(client: AsyncClient, storm: _Storm) -> None:
    """Kill and add members while messages are appended, then wait until the rest is consumed."""
    settings, chance = storm.settings, random.Random(storm.settings.seed)
    for _ in range(settings.members):
        await storm.add_member()
    await _wait_for_members(client, storm)
    producing = asyncio.create_task(_produce(client, storm))
    try:
        end_s = time.monotonic() + settings.seconds
        while time.monotonic() < end_s:
            await asyncio.sleep(settings.kill_every_s)
            await storm.add_member()
            await storm.kill_member(chance)
            if producing.done():
                break
    finally:
        storm.is_over = True
        await producing
    async with asyncio.timeout(_DRAIN_WITHIN_S):
        while (await client.describe_group(storm.group)).lag_messages:
            await asyncio.sleep(_POLL_S)


async def _wait_for_members(client: AsyncClient, storm: _Storm) -> None:
    wanted = storm.settings.members
    while len((await client.describe_group(storm.group)).members) < wanted:
        await asyncio.sleep(_POLL_S)


async def _produce(client: AsyncClient, storm: _Storm) -> None:
    """Append numbers at the given rate, a few to each vchannel at a time."""
    settings = storm.settings
    share = max(1, round(settings.messages_per_second * _PRODUCE_EVERY_S / settings.vchannels))
    next_s = time.monotonic()
    while not storm.is_over:
        begin = storm.produced
        await asyncio.gather(
            *(
                client.append(vchannel, [b"%d" % (begin + i * share + number) for number in range(share)])
                for i, vchannel in enumerate(storm.inputs)
            )
        )
        storm.produced += share * settings.vchannels
        next_s += _PRODUCE_EVERY_S
        await asyncio.sleep(max(0.0, next_s - time.monotonic()))


async def _read(client: AsyncClient, storm: _Storm) -> tuple[Counter[bytes], dict[bytes, list[int]]]:
    """Return the count of each number in the output, and the times of each vchannel's outputs in milliseconds."""
    found: Counter[bytes] = Counter()
    ticks_ms: dict[bytes, list[int]] = {}
    async with client.scan(storm.output, until=At.watermark()) as scan:
        async for batch in scan:
            found.update(batch.payloads)
            vchannel = batch.keys[0]
            assert vchannel is not None
            ticks_ms.setdefault(vchannel, []).append(batch.ticks[0] >> 18)
    return found, ticks_ms


def _pause_ms(ticks_ms: Sequence[int], kills_ms: Sequence[float]) -> float:
    """Return the longest time without an output during which a member was killed."""
    gaps_ms = [
        after - before
        for before, after in pairwise(ticks_ms)
        if any(before <= kill_ms <= after for kill_ms in kills_ms)
    ]
    return max(gaps_ms, default=0.0)
