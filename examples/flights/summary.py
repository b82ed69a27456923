"""Summary of a set of flights, computed once from the source and once from what Spark read."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from examples.flights.flights import MESSAGE_TYPE, SOURCE, Flight, lane_of

# A digest is a sum, so that it does not depend on order. 60 bits of each hash: Spark's conv() returns signed 64 bits.
HASH_HEX_DIGITS: Final = 15


@dataclass(slots=True)
class CarrierFigures:
    """Figures of one carrier.

    Attributes:
        flights: Number of flights.
        departed, arrived: Number of flights with a recorded delay.
        departure_delay, arrival_delay: Sum of the recorded delays in minutes; negative for early flights.
    """

    flights: int = 0
    departed: int = 0
    departure_delay: int = 0
    arrived: int = 0
    arrival_delay: int = 0

    @property
    def mean_departure_delay(self) -> float:
        """Mean departure delay in minutes."""
        return self.departure_delay / max(self.departed, 1)

    @property
    def mean_arrival_delay(self) -> float:
        """Mean arrival delay in minutes."""
        return self.arrival_delay / max(self.arrived, 1)


@dataclass(slots=True)
class Summary:
    """All figures that are compared.

    Attributes:
        lanes: Number of messages and sum of the hashes of their contents, by index of the vchannel.
        carriers: Figures by carrier.
    """

    lanes: dict[int, tuple[int, int]] = field(default_factory=dict)
    carriers: dict[str, CarrierFigures] = field(default_factory=dict)

    def differences(self, other: "Summary") -> list[str]:
        """Return the differences, one line each; empty if both describe the same messages."""
        return [
            *_differences("vchannel", self.lanes, other.lanes),
            *_differences("carrier", self.carriers, other.carriers),
        ]


def summarise(flights: Iterable[Flight], lanes: int) -> Summary:
    """Return the summary of the source, which the summary of Spark must equal."""
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
    """Return 60 bits of the SHA-256 of key, type, properties and payload, separated by zero bytes."""
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
