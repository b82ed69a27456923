"""Answers of Operate as bytes of OperateResponse.

Those that are frequent are written in protobuf's wire format directly: building a message for each delivery takes as
long as leasing it. Tests compare them with protobuf itself.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.wire.protowire import FIXED64, LENGTH, VARINT, key_of, varint
from tidelog_server.core.errors import TidelogServerError
from tidelog_server.core.limits import LOCK_BYTES
from tidelog_server.core.ticks import LOGICAL_BITS, physical_ms
from tidelog_server.mailboxes.events import PLAIN, Sent, decode_message, stored_message
from tidelog_server.mailboxes.operations import Fetched, Grant, LockFailures, SentIds
from tidelog_server.rpc import status
from tidelog_server.rpc.services.mailboxes.conversions import add_deliveries, failures_of

NameOf = Callable[[int], str]
"""Returns the name of a mailbox by its id; empty if it was deleted."""

_RESULT: Final = key_of(pb.OperateResponse.RESULTS_FIELD_NUMBER, LENGTH)
_NUMBER: Final = key_of(pb.OperationResult.NUMBER_FIELD_NUMBER, VARINT)
_ERROR: Final = key_of(pb.OperationResult.ERROR_FIELD_NUMBER, LENGTH)
_SENT: Final = key_of(pb.OperationResult.SENT_FIELD_NUMBER, LENGTH)
_FETCHED: Final = key_of(pb.OperationResult.FETCHED_FIELD_NUMBER, LENGTH)
_ACKED: Final = key_of(pb.OperationResult.ACKED_FIELD_NUMBER, LENGTH)
_EXTENDED: Final = key_of(pb.OperationResult.EXTENDED_FIELD_NUMBER, LENGTH)
_IDS: Final = key_of(pb.SendResponse.IDS_FIELD_NUMBER, LENGTH)
_DELIVERY: Final = key_of(pb.FetchResponse.DELIVERIES_FIELD_NUMBER, LENGTH)
_LEASED_UNTIL: Final = key_of(pb.FetchResponse.LEASED_UNTIL_MS_FIELD_NUMBER, VARINT)
_ID: Final = key_of(pb.Delivery.ID_FIELD_NUMBER, FIXED64)
_LOCK: Final = key_of(pb.Delivery.LOCK_ID_FIELD_NUMBER, LENGTH) + varint(LOCK_BYTES)
_BODY: Final = key_of(pb.Delivery.BODY_FIELD_NUMBER, LENGTH)
_COUNT: Final = key_of(pb.Delivery.DELIVERY_COUNT_FIELD_NUMBER, VARINT)
_DUE: Final = key_of(pb.Delivery.DUE_MS_FIELD_NUMBER, VARINT)
_STATUS: Final = key_of(pb.Delivery.STATUS_FIELD_NUMBER, VARINT)
_ID_BYTES: Final = 8
_PLAIN_BYTES: Final = len(PLAIN)


def sent_answer(number: int, sent: SentIds) -> bytes:
    """Return the answer to a send."""
    count = len(sent.ids)
    encoded = _IDS + varint(_ID_BYTES * count) + struct.pack(f"<{count}Q", *sent.ids)
    if sent.duplicates:
        encoded += pb.SendResponse(duplicates=sent.duplicates).SerializeToString()
    return _result(number, _SENT, encoded)


def acked_answer(number: int, result: LockFailures) -> bytes:
    """Return the answer to an acknowledgement."""
    if not result.failures:
        return _result(number, _ACKED, b"")
    return _result(number, _ACKED, pb.AckDeliveriesResponse(failures=failures_of(result)).SerializeToString())


def extended_answer(number: int, until: int, result: LockFailures) -> bytes:
    """Return the answer to an extension of leases to the tick ``until``."""
    response = pb.ExtendResponse(leased_until_ms=physical_ms(until), failures=failures_of(result))
    return _result(number, _EXTENDED, response.SerializeToString())


def error_answer(number: int, error: TidelogServerError) -> bytes:
    """Return the answer to a refused operation."""
    return _result(number, _ERROR, status.call_error_of(error).SerializeToString())


def fetched_answer(number: int, fetched: Fetched, messages: Mapping[int, Sent], name_of: NameOf) -> bytes:
    """Return the answer to a fetch. Messages that are missing were deleted meanwhile."""
    response = pb.FetchResponse(leased_until_ms=physical_ms(fetched.until))
    add_deliveries(response.deliveries, fetched, messages, name_of)
    return _result(number, _FETCHED, response.SerializeToString())


def fetched_answer_of_events(number: int, fetched: Fetched, events: Sequence[bytes], name_of: NameOf) -> bytes:
    """Return the answer to a fetch from the event that has each message.

    Raises:
        DataLossError: An event is unreadable, or is that of another message.
    """
    if not fetched.grants:
        return _result(number, _FETCHED, b"")
    parts: list[bytes] = []
    # Most deliveries of a fetch have the same fields around id, lock and body, mostly those of the one before.
    frames: dict[_Shape, tuple[bytes, bytes, bytes]] = {}
    last: _Shape | None = None
    begin = before_body = end = b""
    for grant, event in zip(fetched.grants, events, strict=True):
        message_id, lock_id, place, delivery_count, due_tick, delivery_status, _ = grant
        if place == message_id and event.startswith(PLAIN):
            shape = (len(event), delivery_count, due_tick >> LOGICAL_BITS, delivery_status)
            if shape != last:
                last = shape
                begin, before_body, end = frames.get(shape) or frames.setdefault(shape, _frame_of(*shape))
            parts += (
                begin, message_id.to_bytes(_ID_BYTES, "little"), _LOCK, lock_id, before_body, event[_PLAIN_BYTES:], end,
            )  # fmt: skip
        else:
            parts.append(_delivery_of_event(fetched.until, grant, event, name_of))
    parts.append(_LEASED_UNTIL + varint(physical_ms(fetched.until)))
    return _result(number, _FETCHED, b"".join(parts))


_Shape = tuple[int, int, int, int]
"""The arguments of ``_frame_of``."""


def _frame_of(event_bytes: int, delivery_count: int, due_ms: int, delivery_status: int) -> tuple[bytes, bytes, bytes]:
    """Return what precedes the id of a plain delivery, what is between its lock and its body, and what follows."""
    body_bytes = event_bytes - _PLAIN_BYTES
    before_body = _BODY + varint(body_bytes)
    end = _COUNT + varint(delivery_count) + _DUE + varint(due_ms) + _STATUS + varint(delivery_status)
    size_bytes = len(_ID) + _ID_BYTES + len(_LOCK) + LOCK_BYTES + len(before_body) + body_bytes + len(end)
    return _DELIVERY + varint(size_bytes) + _ID, before_body, end


def _delivery_of_event(until: int, grant: Grant, event: bytes, name_of: NameOf) -> bytes:
    """Return a delivery, as a field of FetchResponse, of a message with options. Raises DataLossError."""
    message = decode_message(stored_message(grant.message_id, grant.place, event), grant.place)
    response = pb.FetchResponse()
    add_deliveries(response.deliveries, Fetched((grant,), until), {grant.message_id: message}, name_of)
    return response.SerializeToString()


def _result(number: int, key: bytes, answer: bytes) -> bytes:
    """Return an answer as an element of OperateResponse; ``key`` is that of its field."""
    head = _NUMBER + varint(number) + key + varint(len(answer))
    return b"".join((_RESULT, varint(len(head) + len(answer)), head, answer))
