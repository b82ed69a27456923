"""What a set of flights amounts to, computed once from the source and once from what Spark read."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog_server.demo.flights import MESSAGE_TYPE, SOURCE, Flight, lane_of

# A digest is a sum, so that it does not depend on order. 60 bits of each hash: Spark's conv() gives signed 64.
HASH_HEX_DIGITS: Final = 15


@dataclass(slots=True)
class CarrierFigures:
    """One carrier's year.

    Attributes:
        flights: All of them.
        departed, arrived: Those with a delay on record.
        departure_delay, arrival_delay: Sum over those, in minutes; early ones count negative.
    """

    flights: int = 0
    departed: int = 0
    departure_delay: int = 0
    arrived: int = 0
    arrival_delay: int = 0

    @property
    def mean_departure_delay(self) -> float:
        """Minutes a flight left late on average."""
        return self.departure_delay / max(self.departed, 1)

    @property
    def mean_arrival_delay(self) -> float:
        """Minutes a flight arrived late on average."""
        return self.arrival_delay / max(self.arrived, 1)


@dataclass(slots=True)
class Summary:
    """All that is compared.

    Attributes:
        lanes: By index of the vchannel: number of messages, and the sum of the hashes of their contents.
        carriers: By carrier.
    """

    lanes: dict[int, tuple[int, int]] = field(default_factory=dict)
    carriers: dict[str, CarrierFigures] = field(default_factory=dict)

    def differences(self, other: "Summary") -> list[str]:
        """Return what differs, a line each; none if both describe the same messages."""
        return [
            *_differences("vchannel", self.lanes, other.lanes),
            *_differences("carrier", self.carriers, other.carriers),
        ]


def summarise(flights: Iterable[Flight], lanes: int) -> Summary:
    """Return the summary of the source, which Spark must arrive at as well."""
    counts: dict[int, int] = defaultdict(int)
    digests: dict[int, int] = defaultdict(int)
    carriers: dict[str, CarrierFigures] = defaultdict(CarrierFigures)
    for flight in flights:
        lane = lane_of(flight.carrier, lanes)
        counts[lane] += 1
        digests[lane] += content_hash(flight)
        _count(carriers[flight.carrier], flight)
    return Summary({lane: (counts[lane], digests[lane]) for lane in counts}, dict(carriers))


def content_hash(flight: Flight) -> int:
    """Return 60 bits of the SHA-256 over key, type, properties and payload, with a zero byte between them."""
    parts = (flight.carrier, str(MESSAGE_TYPE), SOURCE, str(flight.line))
    content = b"\0".join([*(part.encode() for part in parts), flight.payload])
    return int(hashlib.sha256(content).hexdigest()[:HASH_HEX_DIGITS], 16)


def _count(figures: CarrierFigures, flight: Flight) -> None:
    figures.flights += 1
    if flight.departure_delay is not None:
        figures.departed += 1
        figures.departure_delay += flight.departure_delay
    if flight.arrival_delay is not None:
        figures.arrived += 1
        figures.arrival_delay += flight.arrival_delay


def _differences(kind: str, source: Mapping[Any, object], read: Mapping[Any, object]) -> Iterator[str]:
    for name in sorted(source.keys() | read.keys()):
        if source.get(name) != read.get(name):
            yield f"{kind} {name}: {source.get(name)} in the source, {read.get(name)} read back"
