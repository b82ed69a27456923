"""``bench append``: durable messages per second, against RocksDB alone with the same batches and groups."""

import asyncio
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tidelog import Appendable, AsyncClient, At, Tick
from tidelog_server.commands.bench.appending import Load, Timed, append_lists, append_singles
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.floors.disk_floor import Grouping, grouping_between, measure_disk_floor
from tidelog_server.commands.bench.payloads import distinct_payloads, with_keys
from tidelog_server.commands.bench.report import Floor, Report, percentiles
from tidelog_server.commands.bench.server_process import Target, cpu_s_per_gb

FLOOR_NAME: Final = "rocksdict alone, same batches, as many per sync"
# Minimum messages of a run that also measures the rate over time.
LONG_RUN_MESSAGES: Final = 10_000_000
_MAX_FLOOR_MESSAGES: Final = 20_000_000
# Each round writes more than the memtables hold; otherwise the floor would end before its flushes.
_ROUNDS: Final = 3
# Turns per round, each with numbered and with unnumbered batches.
_TURNS: Final = 8
_WARM_UP_SHARE: Final = 4
_RANDOM_SCANS: Final = 200
_WARM_UP_SINGLES: Final = 50


@dataclass(frozen=True, slots=True)
class AppendSettings:
    """Settings of ``bench append``.

    Attributes:
        messages, size: Number of messages, and bytes per payload.
        per_batch: Messages per list that a producer sends.
        producers: Number of producers, all on one client.
        vchannels: Number of vchannels of the channel that the producers append to.
        durability: ``sync`` or ``os``.
        is_single: True if each producer awaits one message at a time.
        has_stalled_follower: True to attach a following scan that does not read to the first vchannel.
        has_keys: True to append messages with keys, instead of payloads.
    """

    messages: int
    size: int
    per_batch: int
    producers: int
    vchannels: int
    durability: str
    is_single: bool
    has_stalled_follower: bool
    has_keys: bool = False


@dataclass(frozen=True, slots=True)
class _Run:
    """The objects of one run of the benchmark."""

    client: AsyncClient
    target: Target
    folder: Path
    settings: AppendSettings
    messages: Sequence[Appendable]
    vchannels: list[str]

    def load(self, messages: int) -> Load:
        """Return a load of ``messages`` with the settings of this run: lists for the channel, singles for vchannels."""
        per_batch = 1 if self.settings.is_single else self.settings.per_batch
        is_divided = len(self.vchannels) > 1 and not self.settings.is_single
        names = [self.vchannels[0].partition("/")[0]] if is_divided else self.vchannels
        return Load(max(1, messages), per_batch, names, self.settings.producers)

    async def metrics(self) -> Mapping[str, float]:
        """Return the server's metrics."""
        return await asyncio.to_thread(self.target.metrics)

    async def floor_s(self, grouping: Grouping, messages: int) -> float:
        """Return the seconds that RocksDB alone takes after a warm-up, like that of the server."""
        return sum(await self.floor_tenths_s(grouping, messages, warm_up=messages // _WARM_UP_SHARE))

    async def floor_tenths_s(self, grouping: Grouping, messages: int, *, warm_up: int = 0) -> list[float]:
        """Return the seconds that RocksDB alone takes, by tenths; measured on at most _MAX_FLOOR_MESSAGES."""
        part = min(messages, _MAX_FLOOR_MESSAGES)
        is_synced = self.settings.durability == "sync"
        tenths_s = await asyncio.to_thread(
            measure_disk_floor,
            self.folder,
            self.settings.size,
            grouping,
            messages=part,
            warm_up=warm_up,
            synced=is_synced,
        )
        return [tenth_s * messages / part for tenth_s in tenths_s]


async def measure_append(target: Target, folder: Path, settings: AppendSettings) -> Report:
    """Append to a new channel, and measure the floor.

    A long run ends with a restart of the server with the full log, if the benchmark started the server.
    """
    is_long = not settings.is_single and settings.messages >= LONG_RUN_MESSAGES
    async with (
        AsyncClient(target.grpc) as client,
        bench_vchannels(client, settings.vchannels, is_kept=target.process is not None) as vchannels,
        # Which is not read.
        client.scan(vchannels[0], start=At.latest(), until=At.follow())
        if settings.has_stalled_follower
        else nullcontext(),
    ):
        payloads = distinct_payloads(settings.size)
        run = _Run(client, target, folder, settings, with_keys(payloads) if settings.has_keys else payloads, vchannels)
        if settings.is_single:
            report = await _measure_singles(run)
        else:
            report = await (_measure_long(run) if is_long else _measure_rounds(run))
    if is_long and target.process is not None:
        await asyncio.to_thread(target.process.stop)
        restart_s = await asyncio.to_thread(target.process.start)
        return replace(report, details={**report.details, "restart_s": restart_s})
    return report


async def _measure_rounds(run: _Run) -> Report:
    """Measure appends and the floor in turns, because a disk's speed drifts; the ratio is the median over the rounds.

    The cost of numbering is measured in much shorter turns with and without numbers; otherwise a second in which the
    disk is busy would outweigh it. So is that of several vchannels, against one of them.
    """
    await append_lists(run.client, run.messages, run.load(run.settings.messages // _ROUNDS // _WARM_UP_SHARE))
    load = run.load(run.settings.messages // _ROUNDS // _TURNS)
    numbered_s: list[float] = []
    plain_s: list[float] = []
    one_s: list[float] = []
    turns = [(load, numbered_s), (replace(load, idempotent=False), plain_s)]
    if len(run.vchannels) > 1:
        turns.append((replace(load, vchannels=run.vchannels[:1]), one_s))
    floors_s: list[float] = []
    rounds_s: list[float] = []
    cpu_s: list[float] = []
    for _ in range(_ROUNDS):
        before, before_s = await run.metrics(), run.target.cpu_s()
        for _ in range(_TURNS):
            await _take_turns(run, turns)
        messages = _TURNS * load.messages
        # The server groups numbered and unnumbered batches in the same way.
        grouping = grouping_between(before, await run.metrics(), len(turns) * messages)
        cpu_s += cpu_s_per_gb(before_s, run.target.cpu_s(), len(turns) * messages * run.settings.size).values()
        floors_s.append(await run.floor_s(grouping, messages))
        rounds_s.append(sum(numbered_s[-_TURNS:]))
    report = _report(run, _ROUNDS * _TURNS * load.messages, sum(numbered_s), sum(floors_s))
    details = {
        "numbered_to_unnumbered": _median_ratio(plain_s, numbered_s),
        "numbered_to_unnumbered_in_all": sum(plain_s) / sum(numbered_s),
    }
    if one_s:
        details["vchannels_to_one"] = _median_ratio(one_s, numbered_s)
    if cpu_s:
        details["server_cpu_s_per_gb"] = statistics.median(cpu_s)
    return replace(report, ratio=_median_ratio(floors_s, rounds_s), details=details)


async def _take_turns(run: _Run, turns: list[tuple[Load, list[float]]]) -> None:
    """Append each load once, and begin with the next one the next time."""
    turn = len(turns[0][1]) % len(turns)
    for load, seconds in (*turns[turn:], *turns[:turn]):
        seconds.append((await append_lists(run.client, run.messages, load)).seconds)


def _median_ratio(others_s: Sequence[float], ours_s: Sequence[float]) -> float:
    """Return the median ratio of our rate to the other one of the same round."""
    return statistics.median(other / our for our, other in zip(ours_s, others_s, strict=True))


async def _measure_long(run: _Run) -> Report:
    """Measure one run without a pause: the rate of each tenth, and seeks at the end.

    RocksDB alone also starts empty, so its tenths show how much of the slowdown is due to the disk and the system.
    """
    load = run.load(run.settings.messages)
    before = await run.metrics()
    timed = await append_lists(run.client, run.messages, load)
    grouping = grouping_between(before, await run.metrics(), load.messages)
    details = dict(_tenths(timed, load.messages / 10 / load.producers))
    details |= await _seek_times(run.client, run.vchannels[0])
    floor_tenths_s = await run.floor_tenths_s(grouping, load.messages)
    details["floor_last_tenth_to_first"] = floor_tenths_s[0] / floor_tenths_s[-1]
    return replace(_report(run, load.messages, timed.seconds, sum(floor_tenths_s)), details=details)


async def _measure_singles(run: _Run) -> Report:
    await append_singles(run.client, run.messages, run.load(run.settings.producers * _WARM_UP_SINGLES))
    before = await run.metrics()
    seconds, durations = await append_singles(run.client, run.messages, run.load(run.settings.messages))
    grouping = grouping_between(before, await run.metrics(), len(durations))
    floor_s = await run.floor_s(grouping, len(durations))
    return replace(_report(run, len(durations), seconds, floor_s), latency_us=percentiles(durations))


def _tenths(timed: Timed, messages_per_tenth: float) -> Mapping[str, float]:
    """Return the rates of the first and the last tenth, and their ratio."""
    spans = [end - begin for begin, end in zip([0.0, *timed.marks], timed.marks, strict=False)]
    return {
        "first_tenth_messages_per_second": messages_per_tenth / spans[0],
        "last_tenth_messages_per_second": messages_per_tenth / spans[-1],
        "last_tenth_to_first": spans[0] / spans[-1],
    }


async def _seek_times(client: AsyncClient, name: str) -> Mapping[str, float]:
    """Return percentiles of the time from opening a scan at a random tick to its first batch, in milliseconds."""
    [channel] = await client.describe_channels([name.partition("/")[0]])
    first = channel.created_tick
    last = next(vchannel.last_tick for vchannel in channel.vchannels if vchannel.name == name)
    durations = []
    for _ in range(_RANDOM_SCANS):
        start = time.perf_counter()
        async with client.scan(name, start=Tick(random.randint(first, last))) as scan:
            await anext(aiter(scan))
        durations.append(time.perf_counter() - start)
    return {f"seek_{key}_ms": value / 1e3 for key, value in percentiles(durations).items() if key != "p999"}


def _report(run: _Run, messages: int, seconds: float, floor_s: float) -> Report:
    settings = run.settings
    return Report(
        name="append",
        settings={
            "messages": settings.messages,
            "size": settings.size,
            "batch_messages": 1 if settings.is_single else settings.per_batch,
            "producers": settings.producers,
            "vchannels": settings.vchannels,
            "durability": settings.durability,
            "single": settings.is_single,
            "stalled_follower": settings.has_stalled_follower,
            "keys": settings.has_keys,
        },
        messages_per_second=messages / seconds,
        megabytes_per_second=messages * settings.size / seconds / 1e6,
        server_rss_bytes=run.target.peak_rss_bytes(),
        floor=Floor(FLOOR_NAME, "messages_per_second", messages / floor_s),
        ratio=floor_s / seconds,
    )
