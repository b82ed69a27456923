"""``benchmarks mailbox-peers``: cycles of send, fetch and acknowledge on Tidelog, Redis streams and NATS, by turns.

All three sync before they answer. Each has a client process of its own, with the fastest client that Python has for it:
hiredis for Redis, nats-py for NATS, and the stream of ``bench mailbox`` for Tidelog.
"""

import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.peer_processes import PeerClient, peer_client, start_peers
from tidelog_server.commands.bench.report import Report

PEERS: Final = ("tidelog", "redis", "nats")
_PARTS: Final = ("batches", "workers")
_WARM_UP_SHARE: Final = 4


@dataclass(frozen=True, slots=True)
class PeersSettings:
    """Settings of ``benchmarks mailbox-peers``.

    Attributes:
        seconds: Seconds of a turn.
        rounds: Number of turns of each peer.
        size: Bytes per message.
        per_batch: Messages per send, fetch and acknowledgement.
        in_flight: Number of batches in flight.
        workers: Number of workers that process one message at a time.
    """

    seconds: float
    rounds: int
    size: int
    per_batch: int
    in_flight: int
    workers: int


def measure_peers(folder: Path, settings: PeersSettings) -> Sequence[Report]:
    """Run the peers by turns; return a report for each peer and part.

    Raises:
        CommandError: Something that the peers need is missing; the message says what.
    """
    with ExitStack() as stack:
        servers = start_peers(stack, folder, PEERS)
        clients = {
            peer: stack.enter_context(peer_client("mailbox_peer", peer, server, asdict(settings)))
            for peer, server in servers.items()
        }
        rates = _by_turns(clients, settings)
    return [_report(part, peer, rates, settings) for part in _PARTS for peer in PEERS]


def _by_turns(clients: Mapping[str, PeerClient], settings: PeersSettings) -> dict[tuple[str, str], list[float]]:
    """Return the cycles per second of each turn, by part and peer."""
    rates: dict[tuple[str, str], list[float]] = {(part, peer): [] for part in _PARTS for peer in PEERS}
    for part in _PARTS:
        for client in clients.values():
            _cycles_per_second(client, part, settings.seconds / _WARM_UP_SHARE)
    for number in range(settings.rounds):
        for part in _PARTS:
            # In alternating order.
            for peer in PEERS if number % 2 else reversed(PEERS):
                rates[part, peer].append(_cycles_per_second(clients[peer], part, settings.seconds))
    return rates


def _cycles_per_second(client: PeerClient, part: str, seconds: float) -> float:
    found = client.run(part, seconds)
    return float(found["cycles"] / found["seconds"])


def _report(part: str, peer: str, rates: Mapping[tuple[str, str], Sequence[float]], settings: PeersSettings) -> Report:
    ours, theirs = rates[part, "tidelog"], rates[part, peer]
    shown = asdict(settings)
    for name in ("workers",) if part == "batches" else ("per_batch", "in_flight"):
        del shown[name]
    # The median over the rounds: the speed of the disk drifts.
    ratio = statistics.median(our / their for our, their in zip(ours, theirs, strict=True))
    details = {} if peer == "tidelog" else {"tidelog_to_this": ratio}
    return Report(f"{peer}, {part}", shown, statistics.median(theirs), details=details)
