"""From the end of a node's owner until the next acknowledgement, with a standby that follows its log.

Method: two processes serve a node by turns on a real etcd, with its log in Kafka. Clients with default settings append
to many vchannels at a constant rate. The owner ends; the other process takes over; the first one starts again and is
the standby. The pause is from the signal to the acknowledgement after the longest time without one, so what the former
owner still acknowledges does not end it.
"""

import asyncio
import itertools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Literal

import psutil

from tidelog import AsyncClient, AsyncCluster, TidelogError
from tidelog_cli.exit_codes import CommandError
from tidelog_server.commands.bench.report import Floor, Report, percentiles
from tidelog_testing.servers.engine_cluster import EngineCluster, EngineProcess
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.ports import free_ports

End = Literal["SIGKILL", "SIGTERM"]
"""How an owner ends."""
_CHANNEL: Final = "load"
_NODE: Final = "n1"
_PAYLOAD: Final = bytes(100)
_CALLERS: Final = 16
# Acknowledgements for so long belong to a round, before the end of the owner and after the pause.
_AROUND_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.02
_WITHIN_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class TakeoverSettings:
    """Settings of a measurement of takeovers.

    Attributes:
        end: How an owner ends.
        rounds: Number of takeovers.
        vchannels: Number of vchannels, all of which are appended to.
        lease_ttl_s: Lease of a registration.
        rate: Appends in a second.
    """

    end: End
    rounds: int
    vchannels: int
    lease_ttl_s: int
    rate: int


@dataclass(frozen=True, slots=True)
class Round:
    """One takeover. Times are seconds from the signal.

    Attributes:
        pause_s: Until the next acknowledgement.
        registered_s: Until the successor had registered.
        ready_s: Until it was ready.
        was_followed: Whether the successor had applied the log before.
        cpu_s: CPU seconds of the successor in the pause.
        lost_leases: How often the former owner has lost its lease before: then its calls fail with an unknown outcome.
    """

    pause_s: float
    registered_s: float
    ready_s: float
    was_followed: bool
    cpu_s: float
    lost_leases: int


def pause_s(acknowledged_s: Sequence[float], signal_s: float) -> float:
    """Return the seconds from ``signal_s`` to the acknowledgement after the longest time without one.

    ``acknowledged_s`` has the times of acknowledgements, in order, the last ones after the pause.
    """
    later_s = [at_s for at_s in acknowledged_s if at_s > signal_s]
    gaps = [(at_s - before_s, at_s) for before_s, at_s in zip([signal_s, *later_s], later_s, strict=False)]
    return max(gaps)[1] - signal_s


async def measure_takeovers(folder: Path, servers: str, settings: TakeoverSettings) -> Report:
    """Take the node over again and again, under load."""
    with (
        EtcdProcess(folder / "etcd") as etcd,
        EngineCluster(
            folder / "c", etcd, lease_ttl_s=settings.lease_ttl_s, engine={"engine.servers": servers}
        ) as cluster,
    ):
        pair = _Pair(cluster)
        await pair.create()
        await pair.settle()
        async with AsyncExitStack() as running:
            clients = await running.enter_async_context(AsyncCluster(pair.endpoints))
            await clients.create_channel(_CHANNEL, vchannels=settings.vchannels)
            load = _Load(await clients.client_of(_CHANNEL), settings)
            running.push_async_callback(load.close)
            load.start()
            rounds = [await _round(pair, load, settings.end) for _ in range(settings.rounds)]
        return _report(settings, rounds, load)


def _report(settings: TakeoverSettings, rounds: Sequence[Round], load: "_Load") -> Report:
    pauses = percentiles([each.pause_s for each in rounds])
    registered_us = percentiles([each.registered_s for each in rounds])["p50"]
    errors = {f"errors_{name}": float(count) for name, count in load.errors.items()}
    return Report(
        name=f"engine takeover after {settings.end}",
        settings={
            "rounds": settings.rounds, "vchannels": settings.vchannels, "lease_ttl_s": settings.lease_ttl_s,
            "rate": settings.rate,
        },
        latency_us=pauses,
        floor=Floor("registration of the successor in etcd, p50", "latency_us", registered_us),
        ratio=pauses["p50"] / registered_us,
        details={
            "pause_max_s": max(each.pause_s for each in rounds),
            **(_beyond_lease(pauses, settings) if settings.end == "SIGKILL" else {}),
            "registration_to_ready_p50_s": _p50_s(each.ready_s - each.registered_s for each in rounds),
            "ready_to_acknowledgement_p50_s": _p50_s(each.pause_s - each.ready_s for each in rounds),
            "successor_cpu_p50_s": _p50_s(each.cpu_s for each in rounds),
            "followed_share": sum(each.was_followed for each in rounds) / len(rounds),
            "lost_leases": float(sum(each.lost_leases for each in rounds)),
            "acknowledged": float(len(load.acknowledged_s)),
            "errors": float(sum(load.errors.values())),
            **errors,
        },
    )  # fmt: skip


def _p50_s(seconds: Iterable[float]) -> float:
    return percentiles(list(seconds))["p50"] / 1e6


def _beyond_lease(pauses_us: Mapping[str, float], settings: TakeoverSettings) -> dict[str, float]:
    return {f"{name}_beyond_lease_s": pauses_us[name] / 1e6 - settings.lease_ttl_s for name in ("p50", "p99")}


class _Pair:
    """Two processes that serve a node by turns, each always at the same addresses."""

    def __init__(self, cluster: EngineCluster) -> None:
        self._cluster = cluster
        self._ports = {name: _ports() for name in ("p1", "p2")}

    @property
    def endpoints(self) -> list[str]:
        """The addresses of both."""
        return [f"127.0.0.1:{ports['server.grpc_port']}" for ports in self._ports.values()]

    async def create(self) -> None:
        """Create the node."""
        created = await asyncio.to_thread(self._cluster.create_in_engine, _NODE, f"bench-{token_hex(4)}")
        if created.returncode:
            raise CommandError(f"the node was not created: {created.stderr.decode()}")

    async def settle(self) -> tuple[EngineProcess, EngineProcess]:
        """Start what does not run; return both once one serves the node and the other one has applied its log."""
        for name, ports in self._ports.items():
            process = self._cluster.processes.get(name)
            if process is None or process.code is not None:
                await asyncio.to_thread(self._cluster.start, name, ports)
        await self._cluster.settled(1, 1)
        [owner], [standby] = self._cluster.in_state("ready"), self._cluster.in_state("standby")
        await self._cluster.until(lambda: _events(standby, "log_caught_up"))
        return owner, standby

    async def until_ready(self, process: EngineProcess) -> None:
        """Wait until a process serves the node."""
        await self._cluster.until(lambda: process.state == "ready", _WITHIN_S)


class _Load:
    """Callers that append to vchannels in turn, each at its pace, until closed.

    Attributes:
        acknowledged_s: Times of acknowledgements, on the monotonic clock, in order.
        errors: Number of errors that callers saw, by type.
    """

    def __init__(self, client: AsyncClient, settings: TakeoverSettings) -> None:
        self._client = client
        self._pause_s = _CALLERS / settings.rate
        self._vchannels = itertools.cycle(f"{_CHANNEL}/{index}" for index in range(settings.vchannels))
        self._tasks: list[asyncio.Task[None]] = []
        self.acknowledged_s: list[float] = []
        self.errors: Counter[str] = Counter()

    def start(self) -> None:
        """Begin to append."""
        self._tasks = [asyncio.create_task(self._keep_appending(number)) for number in range(_CALLERS)]

    async def around(self) -> None:
        """Wait for a second of acknowledgements.

        Raises:
            CommandError: Nothing is acknowledged, or a caller has failed.
        """
        before = len(self.acknowledged_s)
        end_s = time.monotonic() + _AROUND_S
        while time.monotonic() < end_s or len(self.acknowledged_s) == before:
            if time.monotonic() > end_s + _WITHIN_S:
                raise CommandError(f"nothing was acknowledged for {_WITHIN_S:.0f} s")
            for task in self._tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(_LOOK_EVERY_S)

    async def close(self) -> None:
        """End."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep_appending(self, number: int) -> None:
        next_s = time.monotonic() + self._pause_s * number / _CALLERS
        while True:
            await asyncio.sleep(next_s - time.monotonic())
            try:
                await self._client.append(next(self._vchannels), _PAYLOAD)
            except TidelogError as error:
                self.errors[type(error).__name__] += 1
            else:
                self.acknowledged_s.append(time.monotonic())
            next_s = max(next_s + self._pause_s, time.monotonic())


async def _round(pair: _Pair, load: _Load, end: End) -> Round:
    owner, standby = await pair.settle()
    await load.around()
    successor = psutil.Process(standby.pid)
    begin_cpu_s = sum(successor.cpu_times()[:2])
    signal_s, signal_at = time.monotonic(), time.time()
    os.kill(owner.pid, signal.Signals[end])
    code = await asyncio.to_thread(owner.wait)
    if code != (0 if end == "SIGTERM" else -signal.SIGKILL):
        raise CommandError(f"the owner ended with {code} after {end}")
    await pair.until_ready(standby)
    await load.around()
    cpu_s = sum(successor.cpu_times()[:2]) - begin_cpu_s
    [claimed] = _events(standby, "node_claimed")
    [ready] = _events(standby, "ready")
    return Round(
        pause_s(load.acknowledged_s, signal_s), _at(claimed) - claimed["seconds"] - signal_at, _at(ready) - signal_at,
        claimed["was_followed"], cpu_s, len(_events(owner, "lease_lost")),
    )  # fmt: skip


def _ports() -> dict[str, int]:
    return dict(zip(("server.grpc_port", "server.http_port"), free_ports(2), strict=True))


def _at(event: Mapping[str, Any]) -> float:
    """Return the time of an event, in seconds since 1970."""
    return datetime.fromisoformat(event["ts"]).timestamp()


def _events(process: EngineProcess, name: str) -> list[dict[str, Any]]:
    """Return the events of this name in the log of a process."""
    lines = [line for line in process.errors.splitlines() if name in line and line.endswith("}")]
    return [event for event in map(json.loads, lines) if event["event"] == name]
