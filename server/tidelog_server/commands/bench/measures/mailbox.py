"""``bench mailbox``: cycles of send, fetch and acknowledge, against appends in the same run."""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidelog import AsyncClient
from tidelog_server.commands.bench.appending import Load, append_lists, append_singles
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.measures.mailbox_stream import BenchMailbox, bench_mailbox
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Floor, Report, percentiles
from tidelog_server.commands.bench.server_process import Target

Advance = Callable[[int], None]
"""Receives the number of messages that were processed."""

_ROUNDS: Final = 5
# Messages that are appended per cycle, so that both take about as long.
_APPENDS_PER_CYCLE: Final = 10
_APPEND_BATCH: Final = 5_000
_WARM_UP_SHARE: Final = 10
# Lone appends and lone fetches take turns in short spells, so that variations of the disk affect both alike.
_LONE_SPELL: Final = 20


@dataclass(frozen=True, slots=True)
class MailboxSettings:
    """Settings of ``bench mailbox``.

    Attributes:
        cycles: Cycles in batches.
        size: Bytes per message.
        per_batch: Messages per send, fetch and acknowledgement.
        in_flight: Number of batches in flight.
        workers: Number of workers that process one message at a time.
        worker_cycles: Cycles of all workers together.
        lone: Number of lone fetches.
        waiting: Number of waiting messages; 0 to skip that part.
    """

    cycles: int
    size: int
    per_batch: int
    in_flight: int
    workers: int
    worker_cycles: int
    lone: int
    waiting: int


@dataclass(slots=True)
class _Measured:
    """Figures of each round, and durations in seconds."""

    appends: list[float] = field(default_factory=list)
    batches: list[float] = field(default_factory=list)
    workers: list[float] = field(default_factory=list)
    worker_s: list[float] = field(default_factory=list)
    lone_append_s: list[float] = field(default_factory=list)
    lone_fetch_s: list[float] = field(default_factory=list)


async def measure_mailbox(target: Target, settings: MailboxSettings, advance: Advance) -> Sequence[Report]:
    """Run all parts by turns; return the reports of batches, of workers and of lone fetches."""
    measured = _Measured()
    payloads = distinct_payloads(settings.size)
    async with (
        AsyncClient(target.grpc) as client,
        bench_vchannels(client, 1) as vchannels,
        bench_mailbox(target.grpc) as mailbox,
    ):
        run = _Run(client, mailbox, vchannels, payloads, settings)
        await run.appends(_share(settings.cycles) * _APPENDS_PER_CYCLE // _WARM_UP_SHARE)
        await run.batches(_share(settings.cycles) // _WARM_UP_SHARE)
        for _ in range(_ROUNDS):
            measured.appends.append(await run.appends(_share(settings.cycles) * _APPENDS_PER_CYCLE))
            measured.batches.append(await run.batches(_share(settings.cycles)))
            advance(_share(settings.cycles))
            rate, durations_s = await run.workers(_share(settings.worker_cycles))
            measured.workers.append(rate)
            measured.worker_s += durations_s
            advance(_share(settings.worker_cycles))
            await run.lone(_share(settings.lone), measured)
    return _reports(target, settings, measured)


def _share(count: int) -> int:
    return max(1, count // _ROUNDS)


@dataclass(frozen=True, slots=True)
class _Run:
    """The parts of a run."""

    client: AsyncClient
    mailbox: BenchMailbox
    vchannels: Sequence[str]
    payloads: list[bytes]
    settings: MailboxSettings

    async def appends(self, messages: int) -> float:
        """Return the messages per second of a producer, as ``bench append`` measures them."""
        load = Load(max(messages, 1), _APPEND_BATCH, self.vchannels)
        return load.messages / (await append_lists(self.client, self.payloads, load)).seconds

    async def batches(self, cycles: int) -> float:
        """Return the cycles per second in batches, several in flight."""
        settings = self.settings
        left = max(1, cycles // settings.per_batch)
        bodies = self.payloads[: settings.per_batch]

        async def keep_one_in_flight() -> int:
            nonlocal left
            done = 0
            while left > 0:
                left -= 1
                await self.mailbox.cycle(bodies)
                done += len(bodies)
            return done

        start = time.perf_counter()
        done = await asyncio.gather(*(keep_one_in_flight() for _ in range(settings.in_flight)))
        return sum(done) / (time.perf_counter() - start)

    async def workers(self, cycles: int) -> tuple[float, list[float]]:
        """Return the cycles per second of workers that process one message at a time, and the seconds of each cycle."""
        durations_s: list[float] = []
        each = max(1, cycles // self.settings.workers)

        async def work() -> None:
            for number in range(each):
                start = time.perf_counter()
                await self.mailbox.cycle(self.payloads[number % len(self.payloads) :][:1])
                durations_s.append(time.perf_counter() - start)

        start = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(self.settings.workers)))
        return len(durations_s) / (time.perf_counter() - start), durations_s

    async def lone(self, count: int, measured: _Measured) -> None:
        """Measure single appends and single fetches with nothing else in flight."""
        for begin in range(0, count, _LONE_SPELL):
            spell = min(_LONE_SPELL, count - begin)
            measured.lone_append_s += (
                await append_singles(self.client, self.payloads, Load(spell, 1, self.vchannels))
            )[1]
            measured.lone_fetch_s += await lone_fetches(self.mailbox, self.payloads, spell)


async def lone_fetches(mailbox: BenchMailbox, payloads: Sequence[bytes], count: int) -> list[float]:
    """Return the seconds of fetches of one message, each of which was sent before and is confirmed afterwards."""
    durations_s: list[float] = []
    for number in range(count):
        await mailbox.send(payloads[number % len(payloads) :][:1])
        start = time.perf_counter()
        locks = await mailbox.fetch(1)
        durations_s.append(time.perf_counter() - start)
        await mailbox.ack(locks)
    return durations_s


def _reports(target: Target, settings: MailboxSettings, measured: _Measured) -> Sequence[Report]:
    fetch_us = percentiles(measured.lone_fetch_s)
    append_us = percentiles(measured.lone_append_s)
    ratios = [ours / floor for ours, floor in zip(measured.batches, measured.appends, strict=True)]
    return (
        Report(
            name="mailbox in batches",
            settings={
                "cycles": settings.cycles, "size": settings.size, "batch_messages": settings.per_batch,
                "in_flight": settings.in_flight, "durability": "sync",
            },
            messages_per_second=statistics.median(measured.batches),
            floor=Floor("appends of one producer", "messages_per_second", statistics.median(measured.appends)),
            ratio=statistics.median(ratios),
        ),
        Report(
            name="mailbox, one message at a time",
            settings={
                "cycles": settings.worker_cycles, "size": settings.size, "workers": settings.workers,
                "durability": "sync",
            },
            messages_per_second=statistics.median(measured.workers),
            latency_us=percentiles(measured.worker_s),
        ),
        Report(
            name="mailbox, a lone fetch",
            settings={"fetches": settings.lone, "size": settings.size, "durability": "sync"},
            latency_us=fetch_us,
            server_rss_bytes=target.peak_rss_bytes(),
            floor=Floor("a lone append p50", "latency_us", append_us["p50"]),
            ratio=fetch_us["p50"] / append_us["p50"],
        ),
    )  # fmt: skip
