"""Messages of mailboxes, their states, and the results of calls."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any, NamedTuple

from tidelog.tick import LOGICAL_BITS, milliseconds, time_of
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.wire.durations import Duration, seconds_of
from tidelog.wire.fields import with_fields


class DeliveryStatus(IntEnum):
    """How the previous delivery of a message ended. The numbers are those of pandora."""

    CONFIRMED = 1
    REJECTED = 2
    TIMEOUT = 4
    NOT_DELIVERED = 8


class MessageState(IntEnum):
    """The state of a message in its mailbox."""

    AVAILABLE = 1
    DELAYED = 2
    LEASED = 3
    DEAD = 4


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to send.

    Attributes:
        body: The body; at most ``max_body_bytes`` of the mailbox. Empty with ``blob_key``.
        headers: Headers for the application: at most 64, 8 KiB in total.
        delay: Delay from now, at most 366 days. None for that of the mailbox.
        due: Time from which the message is available, with a time zone. One in the past means at once, before messages
            that became due later. Excludes ``delay``.
        priority: Messages with a greater priority are delivered first: 0 to 255.
        group: Messages of a group are delivered one at a time, in the order in which they were sent. Empty for no
            group. At most 256 bytes.
        dedup_key: A message with the key of an earlier one within the window of the mailbox is not added. Empty for no
            key. At most 256 bytes.
        ttl: Time after which the message expires unless it was delivered; 0 for never. None for that of the mailbox.
        blob_key: Key of a stored blob that is the body; see ``AsyncBlobCalls``. Empty if the body is given.
        overdue: Time for which the message is due already: it is available at once, before messages that became due
            later. Excludes ``delay`` and ``due``.
    """

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: Duration | None = None
    due: datetime | None = None
    priority: int = 0
    group: str = ""
    dedup_key: str = ""
    ttl: Duration | None = None
    blob_key: bytes = b""
    overdue: Duration | None = None

    def to_wire(self) -> pb.OutgoingMessage:
        """Return the message in protobuf, for the client.

        Raises:
            ValueError: Two of ``delay``, ``due`` and ``overdue`` are set, ``due`` has no time zone, or a number cannot
                be encoded.
            TypeError: A field has another type.
        """
        if not isinstance(self.body, bytes):
            # Protobuf takes None for an empty body.
            raise TypeError(f"the body is of type {type(self.body).__name__}, expected bytes")
        given: dict[str, Any] = {}
        times = [name for name in ("delay", "due", "overdue") if getattr(self, name) is not None]
        if len(times) > 1:
            raise ValueError(f"{' and '.join(times)} are both set: use one of them")
        if self.delay is not None:
            given["delay_ms"] = duration_ms("delay", self.delay)
        if self.due is not None:
            given["due_ms"] = _due_ms(self.due)
        if self.overdue is not None:
            given["overdue_ms"] = duration_ms("overdue", self.overdue)
        if self.ttl is not None:
            given["ttl_ms"] = duration_ms("ttl", self.ttl)
        return with_fields(
            pb.OutgoingMessage, body=self.body, headers=self.headers, priority=self.priority, group=self.group,
            dedup_key=self.dedup_key, blob_key=self.blob_key, **given,
        )  # fmt: skip


def _due_ms(due: datetime) -> int:
    try:
        return milliseconds(due)
    except (TypeError, ValueError) as error:
        raise type(error)(f"due is invalid: {error}") from error


class SendResult(NamedTuple):
    """The result of a send of one message.

    Attributes:
        id: Id of the message, the tick at which the mailbox received it; of a duplicate, the id of the first message.
        duplicate: Whether a message with its deduplication key was sent before, so that it was not added.
    """

    id: int
    duplicate: bool = False


class DeadLetter(NamedTuple):
    """A message before it became a dead letter.

    Attributes:
        mailbox: Mailbox that it was sent to; empty if that was deleted.
        id: Its id there.
        delivery_count: Number of its deliveries there.
    """

    mailbox: str
    id: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class MessageHeader:
    """A message without its body.

    Attributes:
        id: Its id.
        due: Time at which it was or becomes due.
        delivery_count: Number of its deliveries.
        status: How its last delivery ended.
        priority: Its priority, as sent.
        group: Its group, as sent.
        body_bytes: Size of its body.
        state: Its state.
        leased_until: End of its lease; None if it is not leased.
        expires: Time at which it expires; None for never.
    """

    id: int
    due: datetime
    delivery_count: int
    status: DeliveryStatus
    priority: int
    group: str
    body_bytes: int
    state: MessageState
    leased_until: datetime | None
    expires: datetime | None

    @property
    def received_at(self) -> datetime:
        """Time at which the mailbox received it, in UTC."""
        return received_at(self.id)


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message that was looked at, without a lease.

    Attributes:
        header: What is known of it.
        body: Its body; empty if ``is_body_missing``.
        headers: Headers, as sent.
        dead_letter: Where it was dead-lettered; None if it was not.
        is_body_missing: Whether its body was stored as a blob that could not be read, because it is not there any more.
    """

    header: MessageHeader
    body: bytes
    headers: Mapping[str, str]
    dead_letter: DeadLetter | None
    is_body_missing: bool = False


class RedriveProgress(NamedTuple):
    """Progress of a redrive.

    Attributes:
        moved: Messages moved so far.
        total: Messages moved and messages not examined yet; equal to ``moved`` at the end.
    """

    moved: int
    total: int


def received_at(message_id: int) -> datetime:
    """Return the time at which a message was received, in UTC."""
    return time_of(message_id >> LOGICAL_BITS)


def duration_ms(name: str, duration: Duration) -> int:
    """Return a duration in milliseconds, rounded; ``name`` is that of the argument.

    Raises:
        TypeError: It is neither a number of seconds nor a timedelta.
        ValueError: It is not finite, or too long.
    """
    return round(seconds_of(name, duration) * 1_000)


def send_results(answer: pb.SendResponse) -> list[SendResult]:
    """Return the results of a send, in the order of its messages."""
    results = list(map(SendResult, answer.ids))
    for index in answer.duplicates:
        results[index] = SendResult(results[index].id, duplicate=True)
    return results


def dead_letter_of(wire: pb.DeadLetter) -> DeadLetter:
    """Return where a message was dead-lettered."""
    return DeadLetter(wire.mailbox, wire.id, wire.delivery_count)


def header_of(wire: pb.MessageHeader) -> MessageHeader:
    """Return the header in a protobuf message."""
    return MessageHeader(
        wire.id, time_of(wire.due_ms), wire.delivery_count, DeliveryStatus(wire.status), wire.priority, wire.group,
        wire.body_bytes, MessageState(wire.state), time_of(wire.leased_until_ms) if wire.leased_until_ms else None,
        time_of(wire.expires_ms) if wire.expires_ms else None,
    )  # fmt: skip


def peeked_of(wire: pb.PeekedMessage) -> PeekedMessage:
    """Return the message in a protobuf message."""
    dead_letter = dead_letter_of(wire.dead_letter) if wire.HasField("dead_letter") else None
    return PeekedMessage(header_of(wire.header), wire.body, dict(wire.headers), dead_letter, wire.blob_is_missing)
