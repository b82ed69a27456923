"""Options of appends, from the wire."""

from typing import Final

from tidelog.v1 import wal_service_pb2
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import MAX_PRODUCER_ID_BYTES
from tidelog_server.core.names import RESERVED_PREFIX, shown
from tidelog_server.core.producers import ProducerSequence
from tidelog_server.log.conditions import UNCONDITIONAL, Conditions

# One more still fits into a signed number of 64 bits.
_MAX_SEQUENCE: Final = (1 << 63) - 2


def conditions_of(wire: wal_service_pb2.AppendOptions | wal_service_pb2.TransactionPart) -> Conditions:
    """Return the conditions in ``wire``; UNCONDITIONAL itself when there are none."""
    expected_last_tick = wire.expected_last_tick if wire.HasField("expected_last_tick") else None
    if expected_last_tick is None and not wire.fencing_token:
        return UNCONDITIONAL
    return Conditions(expected_last_tick, wire.fencing_token)


def check_producer_id(producer_id: str) -> str:
    """Return ``producer_id`` if it is one. Raises InvalidRequestError."""
    size_bytes = len(producer_id.encode())
    if not 1 <= size_bytes <= MAX_PRODUCER_ID_BYTES:
        raise InvalidRequestError(
            f"the producer id has {size_bytes} bytes, expected 1 to {MAX_PRODUCER_ID_BYTES}", field="producer_id"
        )
    if producer_id.startswith(RESERVED_PREFIX):
        raise InvalidRequestError(
            f"the producer id '{shown(producer_id)}' is reserved: choose one that does not begin with "
            f"'{RESERVED_PREFIX}'",
            field="producer_id",
        )
    return producer_id


def producer_of(options: wal_service_pb2.AppendOptions) -> ProducerSequence | None:
    """Return who appends; None if nobody says so. Raises InvalidRequestError."""
    if not options.HasField("producer"):
        return None
    producer = options.producer
    check_producer_id(producer.producer_id)
    if not 1 <= producer.sequence <= _MAX_SEQUENCE:
        raise InvalidRequestError(
            f"the producer's sequence is {producer.sequence}, expected 1 to {_MAX_SEQUENCE}: the first batch has 1",
            field="sequence",
        )
    return ProducerSequence(producer.producer_id, producer.epoch, producer.sequence)
