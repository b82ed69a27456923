"""``benchmarks append-peers``: single durable appends on Tidelog, Redis streams, NATS and Kafka, by turns.

One caller that waits for each answer, then many. Each peer syncs before it answers, and has a client process of its own
with the fastest client that Python has for it: hiredis for Redis, nats-py for NATS, aiokafka for Kafka.
"""

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.peer_processes import PeerClient, peer_client, start_peers
from tidelog_server.commands.bench.report import Report

_PARTS: Final = ("one", "many")
_WARM_UP_SHARE: Final = 2

Turns = Mapping[tuple[str, str], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class AppendPeersSettings:
    """Settings of ``benchmarks append-peers``.

    Attributes:
        seconds: Seconds of a turn.
        rounds: Number of turns of each peer.
        size: Bytes per message.
        callers: Number of callers of the second part, each of which waits for the answer to its append.
    """

    seconds: float
    rounds: int
    size: int
    callers: int


def measure_append_peers(folder: Path, settings: AppendPeersSettings, *, kafka: Path | None) -> Sequence[Report]:
    """Run the peers by turns; return a report for each part and peer. Kafka runs if its distribution is given.

    Raises:
        CommandError: Something that the peers need is missing; the message says what.
    """
    peers = ("tidelog", "redis", "nats", *(() if kafka is None else ("kafka",)))
    with ExitStack() as stack:
        servers = start_peers(stack, folder, peers, kafka=kafka)
        clients = {
            peer: stack.enter_context(peer_client("append_peer", peer, server, asdict(settings)))
            for peer, server in servers.items()
        }
        turns = _by_turns(clients, settings)
    return [_report(part, peer, turns, settings) for part in _PARTS for peer in peers]


def _by_turns(clients: Mapping[str, PeerClient], settings: AppendPeersSettings) -> Turns:
    turns: Turns = {(part, peer): [] for part in _PARTS for peer in clients}
    for part in _PARTS:
        for client in clients.values():
            client.run(part, settings.seconds / _WARM_UP_SHARE)
    for number in range(settings.rounds):
        for part in _PARTS:
            # In alternating order.
            for peer in list(clients)[:: 1 if number % 2 else -1]:
                turns[part, peer].append(clients[peer].run(part, settings.seconds))
    return turns


def _report(part: str, peer: str, turns: Turns, settings: AppendPeersSettings) -> Report:
    """Return the medians over the turns of a peer. Ratios are of turns in one round: the speed of the disk drifts."""
    shown = asdict(settings)
    if part == "one":
        del shown["callers"]
    ours, theirs = turns[part, "tidelog"], turns[part, peer]
    details = {}
    if peer != "tidelog":
        pairs = list(zip(ours, theirs, strict=True))
        details = {
            "tidelog_to_this": statistics.median(our["rate"] / their["rate"] for our, their in pairs),
            "p50_of_tidelog_to_this": statistics.median(our["p50_us"] / their["p50_us"] for our, their in pairs),
        }
    latency_us = {name: statistics.median(turn[f"{name}_us"] for turn in theirs) for name in ("p50", "p99")}
    return Report(
        f"{peer}, {part}", shown, statistics.median(turn["rate"] for turn in theirs), latency_us=latency_us,
        details=details,
    )  # fmt: skip
