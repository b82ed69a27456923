"""Descriptions of mailboxes and their settings."""

from dataclasses import dataclass, fields
from typing import Any, Final

from tidelog.errors import InvalidRequestError
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog.wire.fields import FieldRangeError, with_fields


@dataclass(frozen=True, slots=True)
class MailboxSettings:
    """Settings of a mailbox. Durations are in milliseconds.

    In a request, None keeps the value of a setting, or its default for a new mailbox. In a description every setting is
    set.

    Attributes:
        lease_ms: Lease of a fetch that names none: 1 to ``max_lease_ms``. Default 30,000.
        max_lease_ms: Longest lease: 1 to 604,800,000 (7 days). Default 43,200,000 (12 hours).
        max_deliveries: Deliveries after which an unconfirmed message is dead, at most 1,000; 0 for no limit. Default 0.
        dead_letter: Mailbox of the same node that receives dead messages; empty to keep them. Default empty.
        backoff_ms: Delays before the second delivery, before the third, and so on; the last one repeats. At most 32,
            each at most 366 days; empty for immediate deliveries. Default empty.
        delay_ms: Delay of messages that name none, at most 366 days. Default 0.
        ttl_ms: Age at which an undelivered message expires, at most 366 days; 0 for never. Default 0.
        dedup_window_ms: Time for which deduplication keys are remembered: 1,000 to 604,800,000. Default 300,000.
        max_in_flight: Messages that may be leased at a time: 1 to 1,000,000. Default 100,000.
        max_messages: Messages that the mailbox may hold: 1 to 10,000,000. Default 1,000,000.
        max_body_bytes: Size of the largest body: 1 to 67,108,864 bytes. Default 1,048,576.
    """

    lease_ms: int | None = None
    max_lease_ms: int | None = None
    max_deliveries: int | None = None
    dead_letter: str | None = None
    backoff_ms: tuple[int, ...] | None = None
    delay_ms: int | None = None
    ttl_ms: int | None = None
    dedup_window_ms: int | None = None
    max_in_flight: int | None = None
    max_messages: int | None = None
    max_body_bytes: int | None = None


DEFAULT_SETTINGS: Final = MailboxSettings()
"""Settings with the default values for a new mailbox."""


@dataclass(frozen=True, slots=True)
class MailboxCounts:
    """The exact numbers of messages of a mailbox. Each message is counted once.

    Attributes:
        available: Messages that are due and not leased.
        delayed: Messages that are not due yet.
        leased: Messages under a lease.
        dead: Messages that were delivered too often, and that no mailbox for dead letters has received.
        oldest_age_ms: Age of the message that has been available for the longest time, in milliseconds since it was
            sent; 0 without one.
        body_bytes: Bytes of all bodies.
        is_paused: True while deliveries are paused.
    """

    available: int
    delayed: int
    leased: int
    dead: int
    oldest_age_ms: int
    body_bytes: int
    is_paused: bool


@dataclass(frozen=True, slots=True)
class MailboxDescription:
    """A mailbox: a work queue, with its events in one vchannel of a system channel.

    Attributes:
        name: Its name.
        settings: Its settings; each is set.
        channel: The system channel with its events, ``_mailbox.<id>``. It never changes and is never reused.
        revision: Number of the last change of its settings.
        created_time_ms: Time of its creation, in milliseconds since the epoch.
        counts: Its messages; None unless ``describe`` returned it.
    """

    name: str
    settings: MailboxSettings
    channel: str
    revision: int
    created_time_ms: int
    counts: MailboxCounts | None = None


def settings_to_wire(settings: MailboxSettings) -> pb.MailboxSettings:
    """Return the settings that are not None as a protobuf message.

    Raises:
        InvalidRequestError: A number cannot be encoded.
        TypeError: A setting has another type, or ``settings`` is no MailboxSettings.
    """
    if not isinstance(settings, MailboxSettings):
        raise TypeError(f"settings is of type {type(settings).__name__}, expected MailboxSettings")
    given: dict[str, Any] = {field.name: getattr(settings, field.name) for field in fields(settings)}
    backoff_ms = given.pop("backoff_ms")
    try:
        if backoff_ms is not None:
            given["backoff"] = with_fields(pb.Backoff, {"delays_ms": "backoff_ms"}, delays_ms=backoff_ms)
        return with_fields(pb.MailboxSettings, **given)
    except FieldRangeError as error:
        raise InvalidRequestError(str(error), values={"field": error.name}) from error


def description(wire: Any, counts: MailboxCounts | None = None) -> MailboxDescription:
    """Return the mailbox in a protobuf message."""
    found = wire.settings
    given = {field.name: getattr(found, field.name) for field in fields(MailboxSettings) if field.name != "backoff_ms"}
    settings = MailboxSettings(**given, backoff_ms=tuple(found.backoff.delays_ms))
    return MailboxDescription(wire.name, settings, wire.channel, wire.revision, wire.created_ms, counts)


def described(wire: pb.DescribeMailboxResponse) -> MailboxDescription:
    """Return the mailbox in a response, with its counts if it has them."""
    counts = None
    if wire.HasField("counts"):
        counts = MailboxCounts(**{field.name: getattr(wire.counts, field.name) for field in fields(MailboxCounts)})
    return description(wire.mailbox, counts)
