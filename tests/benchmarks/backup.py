"""``benchmarks backup``: appends with and without a running backup, in turns; and whether the restored log is equal.

One channel holds the log to back up. Another one is appended to at full speed, with retention, so that the disk does
not fill up and reclaim runs meanwhile. The backup is made by the command itself, in its own process.
"""

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Final

from tidelog import AsyncChannel, AsyncClient, At, Retention, Tick
from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import CommandError
from tidelog_server.backup.folder import open_backup_folder
from tidelog_server.commands.bench.payloads import DISTINCT
from tidelog_server.commands.bench.report import Floor, Report
from tidelog_server.commands.bench.server_process import ServerProcess

_KEPT: Final = "bench-kept"
_LOAD: Final = "bench-load"
_BATCH_BYTES: Final = 1 << 20
_WITHIN_S: Final = 1_800.0
_PROGRAM: Final = "import sys; from tidelog_cli import main; main(sys.argv[1:])"


@dataclass(frozen=True, slots=True)
class BackupSettings:
    """Settings of ``benchmarks backup``.

    Attributes:
        log_bytes: Bytes that are written in advance and backed up.
        size: Bytes per payload.
        rate: Maximum rate of copying, as for ``--rate``.
        rounds: Number of backups, with a phase without a backup before each and after the last.
        plain_s: Seconds of each phase without a backup.
    """

    log_bytes: int
    size: int
    rate: str
    rounds: int
    plain_s: float


@dataclass(slots=True)
class _Load:
    """Appends until it is cancelled, and counts the acknowledged bytes."""

    channel: AsyncChannel
    payloads: Sequence[bytes]
    acked_bytes: int = 0

    async def run(self) -> None:
        source = itertools.cycle(self.payloads)
        per_batch = max(1, _BATCH_BYTES // len(self.payloads[0]))
        async with self.channel.vchannel(0).producer(max_batch_bytes=_BATCH_BYTES) as producer:
            while True:
                batch = list(itertools.islice(source, per_batch))
                await producer.send_many(batch)
                self.acked_bytes += per_batch * len(self.payloads[0])

    async def rate_during(self, seconds: float) -> float:
        """Return the bytes per second over the next ``seconds``."""
        start_s, before = time.perf_counter(), self.acked_bytes
        await asyncio.sleep(seconds)
        return (self.acked_bytes - before) / (time.perf_counter() - start_s)


async def measure_backup(server: ServerProcess, folder: Path, settings: BackupSettings) -> Report:
    """Fill a log, append during backups of it, restore the last backup and compare it with the log.

    Raises:
        CommandError: A command failed, or the restored log differs.
    """
    payloads = [os.urandom(settings.size) for _ in range(DISTINCT)]
    plain, during, took_s = [], [], []
    async with AsyncClient(server.grpc, timeout_s=120.0) as client:
        await _fill(await client.ensure_channel(_KEPT, vchannels=2), payloads, settings.log_bytes)
        retention = Retention(bytes=max(64 << 20, settings.log_bytes // 10))
        load = _Load(await client.ensure_channel(_LOAD, retention=retention), payloads)
        appending = asyncio.create_task(load.run())
        try:
            for _ in range(settings.rounds):
                plain.append(await load.rate_during(settings.plain_s))
                start_s, before = time.perf_counter(), load.acked_bytes
                await _command("create", folder / "backups", "--reuse", "none", "--rate", settings.rate, server=server)
                took_s.append(time.perf_counter() - start_s)
                during.append((load.acked_bytes - before) / took_s[-1])
            plain.append(await load.rate_during(settings.plain_s))
        finally:
            appending.cancel()
            await asyncio.gather(appending, return_exceptions=True)
        await client.alter_channels([_LOAD], retention=Retention())
    ratios = [one / ((before + after) / 2) for one, (before, after) in zip(during, pairwise(plain), strict=True)]
    normal, beside = sum(plain) / len(plain), sum(during) / len(during)
    peak_rss_bytes = server.peak_rss_bytes()
    compared = await _compare_restored(server, folder)
    report = Report(
        name="backup",
        settings={
            "log_bytes": settings.log_bytes, "size": settings.size, "rate": settings.rate, "rounds": settings.rounds,
        },
        megabytes_per_second=beside / 1e6,
        floor=Floor("the same without a backup", "megabytes_per_second", normal / 1e6),
        ratio=beside / normal,
        details={
            "backup_s": sum(took_s) / len(took_s),
            "ratio_min": min(ratios),
            **compared,
        },
    )  # fmt: skip
    return replace(report, server_rss_bytes=peak_rss_bytes)


async def _fill(channel: AsyncChannel, payloads: Sequence[bytes], log_bytes: int) -> None:
    async def fill(index: int) -> None:
        source, written = itertools.cycle(payloads), 0
        per_batch = max(1, _BATCH_BYTES // len(payloads[0]))
        async with channel.vchannel(index).producer(max_batch_bytes=_BATCH_BYTES) as producer:
            while written < log_bytes // 2:
                await producer.send_many(list(itertools.islice(source, per_batch)))
                written += per_batch * len(payloads[0])

    await asyncio.gather(fill(0), fill(1))


async def _command(*arguments: object, server: ServerProcess | None = None) -> None:
    environment = child_environment() | ({"TIDELOG_ENDPOINT": server.grpc} if server is not None else {})
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PROGRAM, "backup", *map(str, arguments), env=environment,
        stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    async with asyncio.timeout(_WITHIN_S):
        code = await process.wait()
    if code:
        raise CommandError(f"`tidelog backup {arguments[0]}` failed with exit code {code}")


async def _compare_restored(server: ServerProcess, folder: Path) -> dict[str, float]:
    """Verify and restore the newest backup, and compare the logs by a hash over ticks and payloads."""
    await _command("verify", folder / "backups")
    await _command("restore", folder / "backups", folder / "restored")
    manifest = open_backup_folder(folder / "backups").manifest(None)
    restored_server = ServerProcess(folder / "restored", {"limits.min_free_disk_bytes": "0"})
    try:
        async with (
            AsyncClient(server.grpc, timeout_s=120.0) as one,
            AsyncClient(restored_server.grpc, timeout_s=120.0) as other,
        ):
            # The restored channel has the retention of the backup, and may have removed more messages by now.
            await other.alter_channels([_LOAD], retention=Retention())
            loads = [(await client.describe_channels([_LOAD]))[0].vchannels[0] for client in (one, other)]
            begin = {f"{_KEPT}/0": 0, f"{_KEPT}/1": 0, f"{_LOAD}/0": max(int(load.trim_tick) for load in loads)}
            written, restored = [
                {name: await _digest(client, name, tick, manifest.facts.tick) for name, tick in begin.items()}
                for client in (one, other)
            ]
    finally:
        restored_server.stop()
    if restored != written:
        different = [name for name in begin if restored[name] != written[name]]
        raise CommandError(f"the restored log differs from the original in {', '.join(different)}")
    return {
        "backup_bytes": manifest.size_bytes,
        "compared_messages": sum(messages for _, messages in written.values()),
    }


async def _digest(client: AsyncClient, vchannel: str, begin_tick: int, last_tick: int) -> tuple[str, int]:
    """Return a hash over all ticks and payloads from ``begin_tick`` to ``last_tick``, and the number of messages."""
    digest, messages = blake2b(), 0
    async for batch in client.scan(vchannel, start=At.tick(Tick(begin_tick))):
        ticks = list(batch.ticks)
        wanted = sum(begin_tick <= tick <= last_tick for tick in ticks)
        first = next((index for index, tick in enumerate(ticks) if begin_tick <= tick), len(ticks))
        digest.update(b"".join(int(tick).to_bytes(8, "big") for tick in ticks[first : first + wanted]))
        digest.update(b"".join(batch.payloads[first : first + wanted]))
        messages += wanted
    return digest.hexdigest(), messages
