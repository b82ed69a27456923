"""``benchmarks txn``: one transaction that does not fit into memory."""

import time
from dataclasses import dataclass
from typing import Final

from tidelog import AsyncClient
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Floor, Report
from tidelog_server.commands.bench.server_process import Target

MIB: Final = 1 << 20
_VCHANNELS: Final = 4
# Fraction of the messages in the floor's plain appends: enough for a rate, with less disk space.
_FLOOR_SHARE: Final = 4
_COMMIT_TIMEOUT_S: Final = 300.0
# Approximate bytes per message in addition to its payload.
_MESSAGE_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class LargeTxnSettings:
    """Settings of the large transaction.

    Attributes:
        mebibytes: Size of the transaction in MiB.
        size: Bytes per message.
    """

    mebibytes: int
    size: int


async def measure_large_txn(target: Target, settings: LargeTxnSettings) -> Report:
    """Stage and commit one large transaction, and append a fraction of its messages without one."""
    per_append = max(1, MIB // (settings.size + _MESSAGE_BYTES))
    pool = distinct_payloads(settings.size)
    messages = [pool[i % len(pool)] for i in range(per_append)]
    # Slightly less than requested, because the limit counts the overhead of the columns too.
    appends = max(1, settings.mebibytes * MIB * 99 // 100 // (per_append * (settings.size + _MESSAGE_BYTES)))
    async with AsyncClient(target.grpc, timeout_s=_COMMIT_TIMEOUT_S) as client:
        async with bench_vchannels(client, _VCHANNELS) as vchannels:
            start = time.perf_counter()
            txn = client.txn()
            for number in range(appends):
                await txn.append(vchannels[number % _VCHANNELS], messages)
            staged_s = time.perf_counter() - start
            await txn.commit()
            whole_s = time.perf_counter() - start
            rss_bytes = target.peak_rss_bytes()
        async with bench_vchannels(client, _VCHANNELS) as vchannels:
            start = time.perf_counter()
            share = max(1, appends // _FLOOR_SHARE)
            for number in range(share):
                await client.append(vchannels[number % _VCHANNELS], messages)
            floor_s = time.perf_counter() - start
    megabytes = len(messages) * settings.size / 1e6
    floor = share * megabytes / floor_s
    rate = appends * megabytes / whole_s
    return Report(
        name="large_txn",
        settings={"mebibytes": settings.mebibytes, "size": settings.size, "vchannels": _VCHANNELS},
        messages_per_second=appends * len(messages) / whole_s,
        megabytes_per_second=rate,
        server_rss_bytes=rss_bytes,
        floor=Floor("plain appends of 1 MiB, one after the other", "megabytes_per_second", floor),
        ratio=rate / floor,
        details={"staged_seconds": staged_s, "commit_milliseconds": 1_000 * (whole_s - staged_s)},
    )
