"""Starts of a server on Kafka, with its view and without, over starts of a server on RocksDB with the same content.

Method: the same appends go to both servers, which are then stopped and started by turns. A start lasts until the server
is ready. Both are stopped in the usual way before, so neither has to recover.
"""

import asyncio
import itertools
import shutil
import statistics
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.engine.kafka import BenchTopics, engine_figures
from benchmarks.engine.turns import Took, by_turns
from tidelog import AsyncClient
from tidelog_server.commands.bench.common import run_measurement, settings_for
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Floor, Report
from tidelog_server.commands.bench.server_process import ServerProcess

_MIB: Final = 1 << 20
_VCHANNELS_PER_CHANNEL: Final = 1_000
_AT_ONCE: Final = 256
_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class StartSettings:
    """Settings of a measurement of starts.

    Attributes:
        vchannels: Number of vchannels.
        mib: MiB of entries, all live.
        entry_bytes: Bytes of an entry, which is one message.
        rounds: Number of starts of each kind.
    """

    vchannels: int
    mib: int
    entry_bytes: int
    rounds: int

    def names(self) -> list[str]:
        """Return the names of the vchannels."""
        channels = dict(self.channels())
        return [f"{channel}/{index}" for channel, count in channels.items() for index in range(count)]

    def channels(self) -> list[tuple[str, int]]:
        """Return the names of the channels, with their numbers of vchannels."""
        begins = range(0, self.vchannels, _VCHANNELS_PER_CHANNEL)
        return [(f"start-{begin}", min(_VCHANNELS_PER_CHANNEL, self.vchannels - begin)) for begin in begins]


def measure_starts(folder: Path, servers: str, settings: StartSettings) -> Report:
    """Fill both servers, and start them by turns; then start the one on Kafka without its view."""
    with ExitStack() as stack:
        topics = stack.enter_context(BenchTopics.created(servers))
        view = folder / "kafka" / "server"
        ours = stack.enter_context(_server(view, topics.settings))
        theirs = stack.enter_context(_server(folder / "rocksdb" / "server", {}))
        for process in (ours, theirs):
            run_measurement(_fill(process, settings))
        snapshots = engine_figures(ours)["log_snapshots"]
        turns = by_turns(settings.rounds, lambda: _restart(ours), lambda: _restart(theirs))
        without = [_restart(ours, without=view) for _ in range(settings.rounds)]
        return Report(
            name="engine start",
            settings={
                "vchannels": settings.vchannels, "mib": settings.mib, "entry_bytes": settings.entry_bytes,
                "rounds": settings.rounds,
            },
            server_rss_bytes=ours.peak_rss_bytes(),
            floor=Floor(
                "start of a server on RocksDB", "latency_us",
                1e6 * statistics.median(each.seconds for each in turns.floors),
            ),
            ratio=turns.slowness(),
            details={
                **turns.details(),
                "without_view_seconds": statistics.median(each.seconds for each in without),
                "without_view_seconds_max": max(each.seconds for each in without),
                "without_view_cpu_s": statistics.median(each.cpu_s for each in without),
                "snapshots": snapshots,
            },
        )  # fmt: skip


@contextmanager
def _server(folder: Path, settings: Mapping[str, str]) -> Iterator[ServerProcess]:
    """Yield a server with its data in ``folder``."""
    folder.parent.mkdir()
    process = ServerProcess(folder, {**settings_for(0), **settings})
    try:
        yield process
    except BaseException:
        # The caller sees why, and not how it ends.
        process.kill()
        raise
    process.stop()


def _restart(process: ServerProcess, *, without: Path | None = None) -> Took:
    """Stop a server, and start it; before that, delete the folder ``without``."""
    process.stop()
    if without is not None:
        shutil.rmtree(without)
    seconds = process.start()
    return Took(seconds, process.cpu_s())


async def _fill(process: ServerProcess, settings: StartSettings) -> None:
    """Append messages to the vchannels in turn, each of which is an entry."""
    payloads = itertools.cycle(distinct_payloads(settings.entry_bytes))
    async with AsyncClient(process.grpc, timeout_s=_TIMEOUT_S) as client:
        for channel, count in settings.channels():
            await client.create_channel(channel, vchannels=count)
        targets = itertools.islice(itertools.cycle(settings.names()), settings.mib * _MIB // settings.entry_bytes)

        async def keep_appending() -> None:
            for name in targets:
                await client.append(name, next(payloads))

        await asyncio.gather(*(keep_appending() for _ in range(_AT_ONCE)))
