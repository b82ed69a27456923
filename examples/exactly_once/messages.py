"""The messages of the example: lines of JSON with a place for the UUID."""

from typing import Any, Final, Self
from uuid import UUID

from tidelog.gazette import JournalSpec

NIL_UUID: Final = UUID(int=0)
CONTENT_TYPE: Final = "application/x-ndjson"
FLIGHTS: Final = ("example/flights/part-0", "example/flights/part-1")
ALERTS: Final = "example/alerts/part-0"
ALERT_FROM_MINUTES: Final = 180


class FlightMessage:
    """A flight, or an alert about one.

    Attributes:
        line: Line of the source; -1 in an acknowledgement.
        carrier: Two-character code.
        delay: Delay of the arrival in minutes; None if the flight was cancelled or diverted.
    """

    __slots__ = ("carrier", "delay", "line", "uuid")

    def __init__(self, line: int = -1, carrier: str = "", delay: int | None = None) -> None:
        self.line, self.carrier, self.delay = line, carrier, delay
        self.uuid = NIL_UUID

    def get_uuid(self) -> UUID:
        """Return the UUID."""
        return self.uuid

    def set_uuid(self, uuid: UUID) -> None:
        """Set the UUID."""
        self.uuid = uuid

    def new_acknowledgement(self, _journal: str) -> Self:
        """Return an empty message."""
        return type(self)()

    def to_json(self) -> object:
        """Return the value to encode."""
        return {"uuid": str(self.uuid), "line": self.line, "carrier": self.carrier, "delay": self.delay}

    def from_json(self, value: Any) -> None:
        """Replace the content by a decoded value."""
        self.uuid = UUID(value["uuid"])
        self.line, self.carrier, self.delay = value["line"], value["carrier"], value["delay"]


def new_flight(_spec: JournalSpec) -> FlightMessage:
    """Return an empty message, to decode into."""
    return FlightMessage()


def flights_mapping(message: Any) -> tuple[str, str]:
    """Map a flight to a journal by its carrier."""
    return FLIGHTS[sum(message.carrier.encode()) % len(FLIGHTS)], CONTENT_TYPE


def alerts_mapping(_message: object) -> tuple[str, str]:
    """Map every alert to the journal of alerts."""
    return ALERTS, CONTENT_TYPE
