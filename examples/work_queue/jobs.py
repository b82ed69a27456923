"""The jobs of the example: late flights whose passengers claim a compensation."""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from examples.flights.flights import Flight

JOBS: Final = "examples/claims"
LETTERS: Final = "examples/letters"
RESULTS: Final = "example-claims"
DELIVERY: Final = "delivery"
"""Property of a result: the number of deliveries that its job needed."""
LATE_FROM_MINUTES: Final = 60
PAID_FROM_MINUTES: Final = 180


class Claim(NamedTuple):
    """A job, and its result.

    Attributes:
        line: Line of the flight in the source; identifies the job.
        carrier: Two-character code.
        delay: Delay of the arrival in minutes.
    """

    line: int
    carrier: str
    delay: int

    @property
    def is_paid(self) -> bool:
        """True if the passengers get a compensation, and so a letter."""
        return self.delay >= PAID_FROM_MINUTES

    def encode(self) -> bytes:
        """Return the claim as JSON."""
        return json.dumps(self).encode()

    @classmethod
    def decode(cls, body: bytes) -> "Claim":
        """Parse what ``encode`` returned."""
        return cls(*json.loads(body))


def claims_of(flights: Sequence[Flight]) -> list[Claim]:
    """Return a claim for each late flight."""
    return [
        Claim(flight.line, flight.carrier, flight.arrival_delay)
        for flight in flights
        if flight.arrival_delay is not None and flight.arrival_delay >= LATE_FROM_MINUTES
    ]
