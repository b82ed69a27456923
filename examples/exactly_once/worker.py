"""The consumer as a program: ``python -m examples.exactly_once.worker ENDPOINT DATABASE``. SIGTERM ends it."""

import signal
import sys
from contextlib import closing
from typing import Any

from examples.exactly_once.messages import (
    ALERT_FROM_MINUTES,
    ALERTS,
    FLIGHTS,
    FlightMessage,
    alerts_mapping,
    new_flight,
)
from examples.exactly_once.totals import database_of
from tidelog import Client
from tidelog.gazette import Consumer, Envelope, Publisher


def main(endpoint: str, place: str) -> None:
    """Add up flights and publish alerts, until SIGTERM."""
    database = database_of(place)

    def handle(envelope: Envelope, transaction: Any, publisher: Publisher) -> None:
        flight = envelope.message
        assert isinstance(flight, FlightMessage)
        database.add(transaction, flight.carrier, flight.delay or 0)
        if (flight.delay or 0) >= ALERT_FROM_MINUTES:
            publisher.publish_uncommitted(alerts_mapping, FlightMessage(flight.line, flight.carrier, flight.delay))

    with Client(endpoint) as client, closing(database.open_store()) as store:
        outputs = {ALERTS: FlightMessage()}
        consumer = Consumer(client, store, FLIGHTS, new_flight, handle, outputs=outputs, max_messages=500)
        signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
        consumer.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
