"""``benchmarks security``: the cost of TLS and a token, and the rate of a client during idle streams and an attack."""

import json
import statistics
from dataclasses import dataclass
from typing import Final

from benchmarks.children import child_process, line_of
from benchmarks.siege.server import BenchServer
from tidelog import AsyncClient
from tidelog_server.commands.bench.appending import Load, append_lists, append_singles
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Floor, Report, percentiles
from tidelog_server.commands.bench.server_process import ServerProcess

_ROUNDS: Final = 8
# Maximum single messages per round; or the number of messages divided by _SINGLES_SHARE if that is smaller.
_MAX_SINGLES: Final = 400
_SINGLES_SHARE: Final = 1_000
_WARM_UP_SHARE: Final = 4
_CHANNEL: Final = "bench-security"
_IDLE_CHANNEL: Final = "bench-idle"
_TASKS: Final = 16


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Settings of ``benchmarks security``.

    Attributes:
        messages, size: Number of messages each in plaintext and with TLS, and bytes per payload.
        per_batch: Messages per list that the producer sends.
        streams: Number of idle streams.
        seconds: Duration of the attack.
    """

    messages: int
    size: int
    per_batch: int
    streams: int
    seconds: float


async def measure_tls(plain: ServerProcess, secured: BenchServer, settings: SecuritySettings) -> Report:
    """Append with and without TLS and token in turns, then one message at a time; the ratio is the median."""
    payloads = distinct_payloads(settings.size)
    async with AsyncClient(plain.grpc) as open_client, secured.client() as closed_client:
        clients = [open_client, closed_client]
        for client in clients:
            await client.ensure_channel(_CHANNEL)
        load = Load(settings.messages // _ROUNDS, settings.per_batch, [_CHANNEL])
        warm_up = Load(max(1, load.messages // _WARM_UP_SHARE), settings.per_batch, [_CHANNEL])
        for client in clients:
            await append_lists(client, payloads, warm_up)
        singles_load = Load(min(_MAX_SINGLES, max(1, settings.messages // _SINGLES_SHARE)), 1, [_CHANNEL])
        seconds: tuple[list[float], list[float]] = ([], [])
        singles: tuple[list[float], list[float]] = ([], [])
        for turn in range(_ROUNDS):
            order = (0, 1) if turn % 2 else (1, 0)
            for which in order:
                seconds[which].append((await append_lists(clients[which], payloads, load)).seconds)
            for which in order:
                _, durations = await append_singles(clients[which], payloads, singles_load)
                singles[which].extend(durations)
    rates = [_ROUNDS * load.messages / sum(each) for each in seconds]
    latencies = [percentiles(each) for each in singles]
    return Report(
        "security tls",
        {"messages": settings.messages, "size": settings.size, "per_batch": settings.per_batch, "rounds": _ROUNDS},
        messages_per_second=rates[1],
        megabytes_per_second=rates[1] * settings.size / 1e6,
        latency_us=latencies[1],
        server_rss_bytes=secured.process.peak_rss_bytes(),
        floor=Floor("the same in plaintext without a token", "messages_per_second", rates[0]),
        ratio=statistics.median(a / b for a, b in zip(*seconds, strict=True)),
        details={
            "plaintext_p50_us": latencies[0]["p50"], "plaintext_p99_us": latencies[0]["p99"],
            "p50_to_plaintext": latencies[1]["p50"] / latencies[0]["p50"],
        },
    )  # fmt: skip


async def measure_siege(secured: BenchServer, settings: SecuritySettings) -> Report:
    """Measure the rate of a client during idle streams and an attack, each from its own process.

    The hostile client has no certificate: a server that requires one closes its connections before their first stream.
    """
    payloads = distinct_payloads(settings.size)
    assert secured.tls is not None
    has_certificates = secured.tls.cert is not None
    common = {"endpoint": secured.process.grpc, "ca": secured.ca}
    async with secured.client() as client:
        await client.ensure_channel(_CHANNEL)
        await client.ensure_channel(_IDLE_CHANNEL)
        await _rate(client, payloads, 1.0)
        alone = await _rate(client, payloads, settings.seconds / 2)
        tls = {name: str(path) for name, path in (("cert", secured.tls.cert), ("key", secured.tls.key)) if path}
        idle_order = {
            **common, **tls, "token": secured.token, "channel": _IDLE_CHANNEL, "streams": settings.streams,
        }  # fmt: skip
        async with child_process("benchmarks.siege.idle", idle_order) as idle:
            await line_of(idle)
            beside_idle = await _rate(client, payloads, settings.seconds / 2)
            order = {**common, "seconds": settings.seconds}
            async with child_process("benchmarks.siege.hostile", order) as hostile:
                await line_of(hostile)
                besieged = await _rate(client, payloads, settings.seconds)
                counts = json.loads(await line_of(hostile))
            assert idle.stdin is not None
            idle.stdin.close()
            standing = json.loads(await line_of(idle))["standing"]
        after = await _rate(client, payloads, settings.seconds / 2)
    # The machine's speed drifts: the rate without other load is measured before and after.
    quiet = (alone.rate + after.rate) / 2
    return Report(
        "security siege, certificates" if has_certificates else "security siege",
        {"streams": settings.streams, "size": settings.size, "tasks": _TASKS, "seconds": settings.seconds},
        messages_per_second=besieged.rate,
        latency_us=besieged.latency_us,
        server_rss_bytes=secured.process.peak_rss_bytes(),
        floor=Floor("the same client alone", "messages_per_second", quiet),
        ratio=besieged.rate / quiet,
        details={
            "beside_idle_to_alone": beside_idle.rate / quiet, "alone_p50_us": alone.latency_us["p50"],
            "idle_streams_standing": standing, **{f"hostile_{name}": count for name, count in counts.items()},
        },
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Rate:
    """Rate of single appends in messages per second, and their latencies."""

    rate: float
    latency_us: dict[str, float]


async def _rate(client: AsyncClient, payloads: list[bytes], seconds: float) -> _Rate:
    """Append single messages from several tasks for about ``seconds``."""
    spent_s, durations = 0.0, []
    while spent_s < seconds:
        took_s, each = await append_singles(client, payloads, Load(_TASKS * 50, 1, [_CHANNEL], _TASKS))
        spent_s += took_s
        durations += each
    return _Rate(len(durations) / spent_s, percentiles(durations))
