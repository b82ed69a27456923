"""The rate of a good client during an attack, against its rate beside a process that uses the same CPU time."""

import asyncio
import json
import os
import statistics
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.attacks.attack import Attack, Order
from benchmarks.children import child_process, line_of
from benchmarks.siege.client import GoodClient, Rate
from benchmarks.siege.server import BenchServer, open_server, secured_server
from tidelog import Retry
from tidelog_cli.exit_codes import CommandError
from tidelog_server.commands.bench.report import Floor, Report

_ATTACKER: Final = "benchmarks.siege.attacker"
_BURNER: Final = "benchmarks.siege.burner"
# A burner is one thread; an attack may use more than one core.
_BURNERS: Final = os.cpu_count() or 1
_WARM_UP_S: Final = 1.0
_UNDER_WAY_WITHIN_S: Final = 120.0
# The good client must fail within the benchmark's duration, not after a minute, if the server has ended.
_RETRY: Final = Retry(give_up_s=20)


@dataclass(frozen=True, slots=True)
class AttackSettings:
    """Settings of the measurement of an attack.

    Attributes:
        seconds: Seconds of each measurement in a round.
        rounds: Number of rounds of attack and floor.
        size: Bytes per payload of the good client.
    """

    seconds: float
    rounds: int
    size: int


@dataclass(slots=True)
class _Measured:
    """The results of all rounds."""

    attacked: list[Rate] = field(default_factory=list)
    floors: list[Rate] = field(default_factory=list)
    alone: list[Rate] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)


async def measure_attack(attack: Attack, folder: Path, settings: AttackSettings) -> Report:
    """Run ``attack`` against a new server with its data below ``folder``."""
    log = folder / "server.log"
    limit = _disk_limit(attack, folder)
    flags = {"limits.min_free_disk_bytes": str(limit), **attack.settings, **attack.configure(folder)}
    async with _server(attack, folder, flags, log) as server:
        order = await _order(attack, server)
        async with server.client(retry=_RETRY) as client:
            good = GoodClient(client, settings.size)
            await good.open()
            async with _children(attack, order) as (attacker, burners):
                await good.rate(_WARM_UP_S)
                measured = await _measure(server, good, attacker, burners, settings)
            checked = await attack.check(server)
            await good.close()
            found = await good.look(client)
        free_bytes = psutil.disk_usage(str(folder)).free
        await asyncio.to_thread(server.process.stop)
        restart_s = await asyncio.to_thread(server.process.start)
        async with server.client() as client:
            again = await good.look(client)
        details = {
            "restart_s": restart_s, "failed_appends": good.failed,
            "lost": found.lost, "doubled": found.doubled,
            "restarted_lost": again.lost, "restarted_doubled": again.doubled,
            "log_bytes": log.stat().st_size, **_disk(attack, limit, free_bytes), **checked,
        }  # fmt: skip
        return _report(attack, settings, measured, details, server.process.peak_rss_bytes())


def _server(
    attack: Attack, folder: Path, flags: Mapping[str, str], log: Path
) -> AbstractAsyncContextManager[BenchServer]:
    make = open_server if attack.is_open else secured_server
    return make(folder, flags, max_files=attack.files, log=log)


async def _order(attack: Attack, server: BenchServer) -> Order:
    token = None if attack.grants is None else await server.new_token("hostile", attack.grants)
    facts = await attack.prepare(server)
    return Order(server.process.grpc, server.process.http, server.ca, token, attack.files, facts)


@asynccontextmanager
async def _children(
    attack: Attack, order: Order
) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[asyncio.subprocess.Process]]]:
    hostile = child_process(_ATTACKER, {"attack": attack.name, **asdict(order)})
    async with hostile as attacker, _burners() as burners:
        yield attacker, burners


@asynccontextmanager
async def _burners(count: int = _BURNERS) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    if count == 0:
        yield []
        return
    async with child_process(_BURNER, {}) as burner, _burners(count - 1) as others:
        yield [burner, *others]


async def _measure(
    server: BenchServer,
    good: GoodClient,
    attacker: asyncio.subprocess.Process,
    burners: list[asyncio.subprocess.Process],
    settings: AttackSettings,
) -> _Measured:
    """Measure during the attack, alone, and beside the floor, in each round, because the machine's speed drifts."""
    measured = _Measured()
    for _ in range(settings.rounds):
        await _tell(attacker, "attack")
        async with asyncio.timeout(_UNDER_WAY_WITHIN_S):
            await line_of(attacker)
        measured.attacked.append(await good.rate(settings.seconds))
        if (code := server.process.process.poll()) is not None:
            raise CommandError(f"the server ended with exit code {code} during the attack: {good.last_failure}")
        await _tell(attacker, "rest")
        answer = json.loads(await line_of(attacker))
        measured.counts, share = answer["counts"], answer["cpu_share"]
        measured.shares.append(share)
        # Between the two, so that the server's clean-up after the attack does not slow down the floor.
        measured.alone.append(await good.rate(settings.seconds / 2))
        await _burn(burners, share)
        measured.floors.append(await good.rate(settings.seconds))
        await _burn(burners, 0)
    return measured


async def _burn(burners: list[asyncio.subprocess.Process], share: float) -> None:
    """Set the total CPU usage of the burners to ``share`` cores."""
    for burner in burners:
        await _tell(burner, str(min(1.0, share)))
        await line_of(burner)
        share = max(0.0, share - 1.0)


async def _tell(child: asyncio.subprocess.Process, line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{line}\n".encode())
    await child.stdin.drain()


def _disk_limit(attack: Attack, folder: Path) -> int:
    if attack.disk_bytes is None:
        return 0
    return max(0, psutil.disk_usage(str(folder)).free - attack.disk_bytes)


def _disk(attack: Attack, limit: int, free_bytes: int) -> dict[str, float]:
    return {} if attack.disk_bytes is None else {"disk_over_limit_bytes": max(0, limit - free_bytes)}


def _report(
    attack: Attack, settings: AttackSettings, measured: _Measured, details: Mapping[str, float], rss_bytes: int
) -> Report:
    def middle(rates: list[Rate]) -> float:
        return statistics.median(rate.messages_per_second for rate in rates)

    pairs = zip(measured.attacked, measured.floors, strict=True)
    shown: dict[str, Any] = {"seconds": settings.seconds, "rounds": settings.rounds, "size": settings.size}
    if attack.files is not None:
        shown["files"] = attack.files
    return Report(
        f"security attack {attack.name}",
        {**shown, "server": "open" if attack.is_open else "secured", **attack.settings},
        messages_per_second=middle(measured.attacked),
        latency_us={
            name: statistics.median(rate.latency_us[name] for rate in measured.attacked)
            for name in measured.attacked[0].latency_us
        },
        server_rss_bytes=rss_bytes,
        floor=Floor("the same client beside a process that burns the same CPU", "messages_per_second",
                    middle(measured.floors)),
        ratio=statistics.median(a.messages_per_second / f.messages_per_second for a, f in pairs),
        details={
            **details,
            "attacker_cpu_share": statistics.median(measured.shares),
            "alone_messages_per_second": middle(measured.alone),
            **{f"hostile_{name}": count for name, count in measured.counts.items()},
        },
    )  # fmt: skip
