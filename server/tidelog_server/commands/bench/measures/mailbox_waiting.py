"""``bench mailbox --waiting``: memory and fetches of a mailbox with many waiting messages."""

import asyncio
from typing import Final

from tidelog_server.commands.bench.measures.mailbox import Advance, MailboxSettings, lone_fetches
from tidelog_server.commands.bench.measures.mailbox_stream import BenchMailbox, bench_mailbox
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Floor, Report, percentiles
from tidelog_server.commands.bench.server_process import Target

_PER_SEND: Final = 1_000
_SENDS_AT_ONCE: Final = 8
_ROUNDS: Final = 20


async def measure_waiting(target: Target, settings: MailboxSettings, advance: Advance) -> Report:
    """Fetch by turns from a mailbox that is empty but for one message, and from one with many waiting messages."""
    payloads = distinct_payloads(settings.size)
    empty_s: list[float] = []
    full_s: list[float] = []
    details: dict[str, float] = {}
    async with bench_mailbox(target.grpc) as empty, bench_mailbox(target.grpc) as full:
        if target.process is not None:
            details["server_memory_without_messages_mb"] = target.process.rss_bytes() / 1e6
        await _fill(full, payloads, settings.waiting, advance)
        share = max(1, settings.lone // _ROUNDS)
        for mailbox in (empty, full):
            await lone_fetches(mailbox, payloads, share)
        for _ in range(_ROUNDS):
            empty_s += await lone_fetches(empty, payloads, share)
            full_s += await lone_fetches(full, payloads, share)
        if target.process is not None:
            details["server_memory_with_messages_mb"] = target.process.rss_bytes() / 1e6
    empty_us, full_us = percentiles(empty_s)["p50"], percentiles(full_s)
    return Report(
        name="mailbox with waiting messages",
        settings={"waiting": settings.waiting, "fetches": settings.lone, "size": settings.size, "durability": "sync"},
        latency_us=full_us,
        server_rss_bytes=target.peak_rss_bytes(),
        floor=Floor("a fetch from a mailbox with one message, p50", "latency_us", empty_us),
        ratio=full_us["p50"] / empty_us,
        details=details,
    )


async def _fill(mailbox: BenchMailbox, payloads: list[bytes], messages: int, advance: Advance) -> None:
    sent = 0
    while sent < messages:
        sizes = [min(_PER_SEND, messages - begin) for begin in range(sent, messages, _PER_SEND)][:_SENDS_AT_ONCE]
        await asyncio.gather(*(mailbox.send(payloads[:size]) for size in sizes))
        sent += sum(sizes)
        advance(sum(sizes))
