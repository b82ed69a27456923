"""Conversion between the messages of MailboxService and the operations of mailboxes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.mailboxes import MessageState
from tidelog_server.core.message_checks import check_header_count
from tidelog_server.core.ticks import physical_ms
from tidelog_server.mailboxes.events import Sent
from tidelog_server.mailboxes.operations import Fetched, LockFailures, Outgoing, Rejection, SentIds
from tidelog_server.mailboxes.state import Header
from tidelog_server.rpc import status

_STATES: Final = {
    MessageState.AVAILABLE: pb.MESSAGE_STATE_AVAILABLE,
    MessageState.DELAYED: pb.MESSAGE_STATE_DELAYED,
    MessageState.LEASED: pb.MESSAGE_STATE_LEASED,
    MessageState.DEAD: pb.MESSAGE_STATE_DEAD,
    MessageState.EXHAUSTED: pb.MESSAGE_STATE_DEAD,
}


def outgoings_of(messages: Iterable[pb.OutgoingMessage]) -> Iterator[Outgoing]:
    """Yield messages to send. Raises InvalidRequestError at one with too many headers, before they are converted."""
    for index, message in enumerate(messages):
        check_header_count(len(message.headers), index)
        yield _outgoing_of(message)


def _outgoing_of(message: pb.OutgoingMessage) -> Outgoing:
    due = message.WhichOneof("due")
    return Outgoing(
        message.body,
        dict(message.headers),
        message.delay_ms if due == "delay_ms" else None,
        message.due_ms if due == "due_ms" else None,
        message.priority,
        message.group,
        message.dedup_key,
        message.ttl_ms if message.HasField("ttl_ms") else None,
        message.blob_key,
        overdue_ms=message.overdue_ms if due == "overdue_ms" else None,
    )


def sent_response(sent: SentIds) -> pb.SendResponse:
    """Return the answer to a send."""
    return pb.SendResponse(ids=sent.ids, duplicates=sent.duplicates)


def limit_of(field: str, value: int, default: int, greatest: int) -> int:
    """Return ``value``, or ``default`` if it is 0. Raises InvalidRequestError if it is too large."""
    if value > greatest:
        raise InvalidRequestError(f"{field} is {value}, expected 1 to {greatest}, or 0 for {default}", field=field)
    return value or default


def lease_ms_of(request: pb.FetchRequest | pb.ExtendRequest | pb.StreamDeliveriesRequest) -> int | None:
    """Return the lease that a request asks for; None if it names none."""
    return request.lease_ms if request.HasField("lease_ms") else None


def rejections_of(rejected: Iterable[pb.Rejection]) -> list[Rejection]:
    """Return rejected deliveries."""
    return [
        Rejection(each.lock_id, each.delay_ms if each.HasField("delay_ms") else None, each.is_final)
        for each in rejected
    ]


def add_deliveries(target: Any, fetched: Fetched, messages: Mapping[int, Sent], name_of: Callable[[int], str]) -> None:
    """Add deliveries to a repeated field.

    ``name_of`` returns the name of a mailbox by its id. Messages that are missing were deleted meanwhile.
    """
    for grant in fetched.grants:
        message = messages.get(grant.message_id)
        if message is None:
            continue
        delivery = target.add(
            id=grant.message_id, lock_id=grant.lock_id, body=message.body, delivery_count=grant.delivery_count,
            due_ms=physical_ms(grant.due_tick), status=grant.status,
        )  # fmt: skip
        if message.priority:
            delivery.priority = message.priority
        if message.group:
            delivery.group = message.group
        if message.headers:
            delivery.headers.update(message.headers)
        if message.blob_key:
            delivery.blob_key, delivery.blob_bytes = message.blob_key, message.blob_bytes
            delivery.blob_is_missing = message.is_missing
        if message.origin is not None:
            delivery.dead_letter.CopyFrom(dead_letter_of(message, name_of))


def dead_letter_of(message: Sent, name_of: Callable[[int], str]) -> pb.DeadLetter:
    """Return where a message was dead-lettered; the name is empty if that mailbox was deleted."""
    origin = message.origin
    assert origin is not None
    return pb.DeadLetter(mailbox=name_of(origin.mailbox_id), id=origin.message_id, delivery_count=origin.deliveries)


def failures_of(result: LockFailures) -> list[pb.DeliveryFailure]:
    """Return refused locks."""
    return [
        pb.DeliveryFailure(lock_id=lock_id, error=status.call_error_of(error)) for lock_id, error in result.failures
    ]


def header_of(header: Header) -> pb.MessageHeader:
    """Return what is known of a message."""
    # Protobuf's enumeration has the same numbers, and is another type.
    status_number: Any = header.status
    return pb.MessageHeader(
        id=header.message_id,
        due_ms=physical_ms(header.due_tick),
        delivery_count=header.deliveries,
        status=status_number,
        priority=header.priority,
        group=header.group,
        body_bytes=header.size_bytes,
        state=_STATES[header.state],
        leased_until_ms=physical_ms(header.until),
        expires_ms=physical_ms(header.expires_tick),
    )


def states_of(wanted: int) -> Sequence[int]:
    """Return the states of rows that a request asks for; raises InvalidRequestError for an unknown state."""
    if wanted == pb.MESSAGE_STATE_UNSPECIFIED:
        return list(_STATES)
    found = [state for state, wire in _STATES.items() if wire == wanted]
    if not found:
        raise InvalidRequestError(f"state is {wanted}, expected a MessageState", field="state")
    return found
