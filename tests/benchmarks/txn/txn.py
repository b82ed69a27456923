"""``benchmarks txn``: commits per second, against plain appends of the same messages with the same concurrency."""

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from tidelog import AsyncClient
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Floor, Report, percentiles
from tidelog_server.commands.bench.server_process import Target

# Transactions and appends alternate, because the speed of a machine varies.
_ROUNDS: Final = 6
_WARM_UP_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class TxnSettings:
    """Settings of ``benchmarks txn``.

    Attributes:
        transactions: Number of transactions in all rounds.
        messages, size: Messages per transaction, and bytes per message.
        concurrency: Number of concurrent transactions.
        channels, vchannels: Channels and vchannels per transaction.
    """

    transactions: int
    messages: int
    size: int
    concurrency: int
    channels: int
    vchannels: int


_Act = Callable[[list[bytes]], Awaitable[object]]


async def measure_txn(target: Target, settings: TxnSettings) -> Report:
    """Commit transactions, and append as many messages in as many appends, in turns; returns medians of the rounds."""
    async with AsyncClient(target.grpc) as client, AsyncExitStack() as stack:
        per_channel = settings.vchannels // settings.channels
        vchannels = [
            name
            for _ in range(settings.channels)
            for name in await stack.enter_async_context(bench_vchannels(client, per_channel))
        ]
        payloads = distinct_payloads(settings.size)
        targets = itertools.cycle(vchannels)

        async def append(messages: list[bytes]) -> None:
            await client.append(next(targets), messages)

        async def commit(messages: list[bytes]) -> None:
            async with client.txn() as txn:
                for index, vchannel in enumerate(vchannels):
                    await txn.append(vchannel, messages[index :: len(vchannels)])

        share = max(1, settings.transactions // _ROUNDS // settings.concurrency)
        warm_up = max(1, share // _WARM_UP_SHARE)
        for act in (append, commit):
            await _run(act, payloads, settings, warm_up)
        rounds = [
            (await _run(commit, payloads, settings, share), await _run(append, payloads, settings, share))
            for _ in range(_ROUNDS)
        ]
    return _report(target, settings, rounds)


@dataclass(frozen=True, slots=True)
class _Timed:
    """Operations per second, and the seconds of each."""

    per_second: float
    durations: Sequence[float]


async def _run(act: _Act, payloads: list[bytes], settings: TxnSettings, share: int) -> _Timed:
    """Run ``act`` ``share`` times in each task, one after the other."""
    durations: list[float] = []

    async def client_task(number: int) -> None:
        for step in range(share):
            begin = (number + step) * settings.messages % (len(payloads) - settings.messages + 1)
            start = time.perf_counter()
            await act(payloads[begin : begin + settings.messages])
            durations.append(time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*(client_task(number) for number in range(settings.concurrency)))
    return _Timed(settings.concurrency * share / (time.perf_counter() - start), durations)


def _report(target: Target, settings: TxnSettings, rounds: Sequence[tuple[_Timed, _Timed]]) -> Report:
    commits = statistics.median(commit.per_second for commit, _ in rounds)
    appends = statistics.median(append.per_second for _, append in rounds)
    return Report(
        name="txn",
        settings={
            "transactions": settings.transactions,
            "messages": settings.messages,
            "size": settings.size,
            "concurrency": settings.concurrency,
            "vchannels": settings.vchannels,
            "channels": settings.channels,
        },
        messages_per_second=commits * settings.messages,
        latency_us=percentiles([duration for commit, _ in rounds for duration in commit.durations]),
        server_rss_bytes=target.peak_rss_bytes(),
        floor=Floor(
            "plain appends of the same messages, on as many vchannels", "messages_per_second",
            appends * settings.messages,
        ),
        ratio=statistics.median(commit.per_second / append.per_second for commit, append in rounds),
        details={"commits_per_second": commits, "appends_per_second": appends},
    )  # fmt: skip
