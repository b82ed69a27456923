"""``benchmarks metadata``: appends with metadata in etcd, against embedded metadata, in turns in one run.

Appends do not call etcd: possible costs are the check of the lease, and its renewals.
"""

import statistics
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from shutil import which
from typing import Final

from tidelog import AsyncClient
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_server.commands.bench.appending import Load, append_lists, append_singles
from tidelog_server.commands.bench.channel import bench_vchannels
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Floor, Report, percentiles
from tidelog_server.commands.bench.server_process import ServerProcess
from tidelog_testing.servers.etcd import EtcdProcess

_TURNS: Final = 24
_WARM_UP_TURNS: Final = 2
_SINGLES_PER_TURN: Final = 200
_KINDS: Final = ("embedded", "etcd")


@contextmanager
def running_etcd(folder: Path) -> Iterator[str]:
    """Start an etcd with its data below ``folder``, and yield its address.

    Raises:
        CommandError: etcd is not installed, or does not start.
    """
    if which("etcd") is None:
        raise CommandError(
            "etcd is not installed: install it (Debian and Ubuntu: apt-get install etcd-server), or set --etcd "
            "host:port",
            ExitCode.NOT_FOUND,
        )
    with EtcdProcess(folder / "etcd-data") as etcd:
        yield etcd.endpoint


async def measure_metadata(folder: Path, etcd: str, *, messages: int, size: int, per_batch: int) -> Report:
    """Append to a server with embedded metadata and to one on ``etcd``, in short turns."""
    on_etcd = {
        "metadata.kind": "etcd", "metadata.etcd_endpoints": etcd, "cluster.node_id": "bench",
        "metadata.etcd_prefix": f"/{folder.name}/",
    }  # fmt: skip
    common = {"limits.min_free_disk_bytes": "0"}
    settings = {"embedded": common, "etcd": {**common, **on_etcd}}
    servers: dict[str, ServerProcess] = {}
    with ExitStack() as stack:
        for kind, flags in settings.items():
            servers[kind] = ServerProcess(folder / kind, flags)
            stack.callback(servers[kind].stop)
        seconds, durations = await _by_turns(servers, messages=messages, size=size, per_batch=per_batch)
    rates = {kind: messages / sum(seconds[kind]) for kind in _KINDS}
    ours, floor = (percentiles(durations[kind]) for kind in reversed(_KINDS))
    return Report(
        name="metadata",
        settings={"messages": messages, "size": size, "batch_messages": per_batch, "turns": _TURNS},
        messages_per_second=rates["etcd"],
        latency_us=ours,
        server_rss_bytes=servers["etcd"].peak_rss_bytes(),
        floor=Floor("the same with embedded metadata", "messages_per_second", rates["embedded"]),
        # The median over pairs of turns: a disk's speed drifts, and flushes slow down single turns.
        ratio=statistics.median(
            embedded / on for embedded, on in zip(seconds["embedded"], seconds["etcd"], strict=True)
        ),
        details={
            "ratio_in_all": rates["etcd"] / rates["embedded"],
            "latency_p50_to_embedded": ours["p50"] / floor["p50"],
        },
    )


async def _by_turns(
    servers: dict[str, ServerProcess], *, messages: int, size: int, per_batch: int
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return the seconds of each turn, and those of single appends, by kind of metadata."""
    payloads = distinct_payloads(size)
    seconds: dict[str, list[float]] = {kind: [] for kind in servers}
    durations: dict[str, list[float]] = {kind: [] for kind in servers}
    async with AsyncExitStack() as stack:
        clients = {kind: await stack.enter_async_context(AsyncClient(server.grpc)) for kind, server in servers.items()}
        vchannels = {kind: await stack.enter_async_context(bench_vchannels(clients[kind], 1)) for kind in servers}
        loads = {kind: Load(messages // _TURNS, per_batch, vchannels[kind]) for kind in servers}
        singles = {kind: Load(_SINGLES_PER_TURN, 1, vchannels[kind]) for kind in servers}
        for turn in range(_WARM_UP_TURNS + _TURNS):
            # In alternating order.
            for kind in _KINDS if turn % 2 else reversed(_KINDS):
                timed = await append_lists(clients[kind], payloads, loads[kind])
                _, each = await append_singles(clients[kind], payloads, singles[kind])
                if turn >= _WARM_UP_TURNS:
                    seconds[kind].append(timed.seconds)
                    durations[kind] += each
    return seconds, durations
