"""``benchmarks retention``: appends at full speed to a channel with retention, and the disk usage meanwhile.

A consumer group follows in its own process. Retention must keep what it has not committed, so it receives everything.
"""

import asyncio
import itertools
import json
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from benchmarks.children import child_process, line_of
from tidelog import AsyncChannel, AsyncClient, At, Retention
from tidelog_cli.exit_codes import CommandError
from tidelog_server.commands.bench.payloads import DISTINCT
from tidelog_server.commands.bench.report import Floor, Report
from tidelog_server.commands.bench.server_process import Target

_SAMPLE_INTERVAL_S: Final = 1.0
_LOOK_AT_DISK_EVERY_S: Final = 0.1
_RECLAIM_WITHIN_S: Final = 120.0
_CONSUME_WITHIN_S: Final = 120.0
_MEMBER_MODULE: Final = "benchmarks.retention_member"
_BATCH_BYTES: Final = 1 << 20
_MIN_PAYLOAD_BYTES: Final = 100
_MAX_PAYLOAD_BYTES: Final = 1 << 10
# The floor, appends without retention, takes this fraction of the time, because it fills the disk.
_FLOOR_SHARE: Final = 4
_MAX_FLOOR_S: Final = 10.0
_MIN_FLOOR_S: Final = 1.0
# Kinds of files, by suffix.
_KINDS: Final = {".blob": "blob", ".log": "wal", ".sst": "table"}


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """Settings of ``benchmarks retention``.

    Attributes:
        seconds: Duration of appends with retention.
        cap_bytes: Retention of the channel, ``retention.bytes``.
        vchannels: Number of vchannels, with a producer each.
    """

    seconds: float
    cap_bytes: int
    vchannels: int


@dataclass(slots=True)
class _Disk:
    """The disk usage of a folder, sampled each second."""

    folder: Path
    samples: list[int] = field(default_factory=list)
    at_peak: Counter[str] = field(default_factory=Counter)

    async def watch(self) -> None:
        """Sample until cancelled."""
        while True:
            by_kind = await asyncio.to_thread(_disk_use, self.folder)
            if by_kind.total() > max(self.samples, default=0):
                self.at_peak = by_kind
            self.samples.append(by_kind.total())
            await asyncio.sleep(_SAMPLE_INTERVAL_S)

    def figures(self, cap_bytes: int) -> dict[str, float]:
        """Return maximum and mean of the samples, and their ratios to ``cap_bytes``."""
        return {
            "disk_max_bytes": max(self.samples),
            "disk_max_to_cap": max(self.samples) / cap_bytes,
            "disk_mean_to_cap": statistics.fmean(self.samples) / cap_bytes,
            **{f"{kind}_bytes_at_disk_max": self.at_peak[kind] for kind in (*_KINDS.values(), "other")},
        }


async def measure_retention(target: Target, data_folder: Path, settings: RetentionSettings) -> Report:
    """Append without retention, then with it.

    Raises:
        CommandError: Retention removed messages that it must keep.
    """
    payloads = [os.urandom(random.randint(_MIN_PAYLOAD_BYTES, _MAX_PAYLOAD_BYTES)) for _ in range(DISTINCT)]
    floor_s = max(_MIN_FLOOR_S, min(_MAX_FLOOR_S, settings.seconds / _FLOOR_SHARE))
    async with AsyncClient(target.grpc, timeout_s=60.0) as client:
        channel = await client.ensure_channel("bench-without", vchannels=settings.vchannels)
        floor = await _append(channel, payloads, seconds=floor_s, vchannels=settings.vchannels)
        await channel.destroy()
        await _until_small(data_folder, settings.cap_bytes // 2)
        disk = _Disk(data_folder)
        watching = asyncio.create_task(disk.watch())
        retention = Retention(bytes=settings.cap_bytes)
        channel = await client.ensure_channel("bench-with", vchannels=settings.vchannels, retention=retention)
        async with child_process(_MEMBER_MODULE, await _order(client, target)) as member:
            await line_of(member)
            rate = await _append(channel, payloads, seconds=settings.seconds, vchannels=settings.vchannels)
            await _check_consumed(client, member, rate.messages)
        if rate.bytes > 2 * settings.cap_bytes:
            await _until_removed(client, "bench-with")
        watching.cancel()
        kept_bytes = await _check_kept(client, "bench-with", settings.cap_bytes)
    details = {"kept_bytes": kept_bytes, **disk.figures(settings.cap_bytes)}
    return replace(_report(settings, rate, floor, details), server_rss_bytes=target.peak_rss_bytes())


@dataclass(frozen=True, slots=True)
class _Rate:
    messages_per_second: float
    megabytes_per_second: float
    messages: int
    bytes: int


async def _append(channel: AsyncChannel, payloads: Sequence[bytes], *, seconds: float, vchannels: int) -> _Rate:
    """Append to each vchannel at full speed."""
    per_batch = _BATCH_BYTES // (_MIN_PAYLOAD_BYTES + _MAX_PAYLOAD_BYTES) * 2
    start = time.perf_counter()

    async def produce(index: int) -> tuple[int, int]:
        source, messages, size_bytes = itertools.cycle(payloads), 0, 0
        async with channel.vchannel(index).producer(max_batch_bytes=_BATCH_BYTES) as producer:
            while time.perf_counter() - start < seconds:
                batch = list(itertools.islice(source, per_batch))
                await producer.send_many(batch)
                messages += len(batch)
                size_bytes += sum(map(len, batch))
        return messages, size_bytes

    done = await asyncio.gather(*map(produce, range(vchannels)))
    took_s = time.perf_counter() - start
    messages, size_bytes = (sum(counts) for counts in zip(*done, strict=True))
    return _Rate(messages / took_s, size_bytes / took_s / 1e6, messages, size_bytes)


async def _order(client: AsyncClient, target: Target) -> dict[str, object]:
    """Create a group on the channel, and return the order for its member."""
    await client.create_group("bench-group", "bench-with")
    return {"endpoint": target.grpc, "group": "bench-group", "channel": "bench-with"}


async def _check_consumed(client: AsyncClient, member: asyncio.subprocess.Process, messages: int) -> None:
    """Send the member the ends of the vchannels, and check the number of its messages. Raises CommandError."""
    [channel] = await client.describe_channels(["bench-with"])
    ends = {vchannel.name: int(vchannel.last_tick) + 1 for vchannel in channel.vchannels}
    assert member.stdin is not None
    member.stdin.write(json.dumps(ends).encode() + b"\n")
    async with asyncio.timeout(_CONSUME_WITHIN_S):
        consumed = json.loads(await line_of(member))["messages"]
    if consumed != messages:
        raise CommandError(f"the group received {consumed} messages, but {messages} were appended")
    if any(vchannel.cut is not None for vchannel in channel.vchannels):
        raise CommandError("retention removed messages that the group had not committed, without a hard cap")


async def _until_small(folder: Path, below_bytes: int) -> None:
    """Wait until the disk space of the destroyed channel's columns is reclaimed. The write-ahead log does not count."""
    async with asyncio.timeout(_RECLAIM_WITHIN_S):
        while (await asyncio.to_thread(_disk_use, folder))["blob"] > below_bytes:
            await asyncio.sleep(_LOOK_AT_DISK_EVERY_S)


async def _until_removed(client: AsyncClient, name: str) -> None:
    """Wait until retention has removed messages: after a short run, its next check may be the first to find any."""
    async with asyncio.timeout(_CONSUME_WITHIN_S):
        while True:
            [channel] = await client.describe_channels([name])
            if any(vchannel.trim_tick for vchannel in channel.vchannels):
                return
            await asyncio.sleep(_LOOK_AT_DISK_EVERY_S)


async def _check_kept(client: AsyncClient, name: str, cap_bytes: int) -> int:
    """Read the remaining messages of a channel, check their number and size, and return their bytes."""
    # After this call, retention removes no further messages.
    [channel] = await client.alter_channels([name], retention=Retention())
    kept_bytes = sum(vchannel.bytes for vchannel in channel.vchannels)
    for vchannel in channel.vchannels:
        found = 0
        async for batch in client.scan(vchannel.name, start=At.tick(vchannel.trim_tick)):
            found += len(batch)
        if found != vchannel.messages:
            raise CommandError(f"{vchannel.name} has {found} messages, expected {vchannel.messages}")
    appended = any(vchannel.trim_tick for vchannel in channel.vchannels)
    if appended and kept_bytes < cap_bytes:
        raise CommandError(f"{name} has {kept_bytes} bytes left, but retention must keep {cap_bytes}")
    return kept_bytes


def _disk_use(folder: Path) -> Counter[str]:
    """Return the disk usage of the files in bytes, by kind."""
    found: Counter[str] = Counter()
    for path in folder.rglob("*"):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue  # Removed since it was listed.
        found[_KINDS.get(path.suffix, "other")] += status.st_blocks * 512
    return found


def _report(settings: RetentionSettings, rate: _Rate, floor: _Rate, details: Mapping[str, float]) -> Report:
    return Report(
        name="retention",
        settings={
            "seconds": settings.seconds, "cap_bytes": settings.cap_bytes, "vchannels": settings.vchannels,
        },
        messages_per_second=rate.messages_per_second,
        megabytes_per_second=rate.megabytes_per_second,
        floor=Floor("the same without retention", "megabytes_per_second", floor.megabytes_per_second),
        ratio=rate.megabytes_per_second / floor.megabytes_per_second,
        details={
            "appended_bytes": rate.bytes, **details},
    )  # fmt: skip
