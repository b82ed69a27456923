"""Settings of mailboxes, and the words for the states of their messages. Pure."""

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final, NamedTuple

from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import MAX_DEDUP_WINDOW_MS, MAX_MAILBOX_DELAY_MS, MAX_MAILBOX_LEASE_MS, MIB

MAX_MAILBOX_MESSAGES: Final = 10_000_000
DEFAULT_MAILBOX_MESSAGES: Final = 1_000_000
MAX_IN_FLIGHT_MESSAGES: Final = 1_000_000
DEFAULT_IN_FLIGHT_MESSAGES: Final = 100_000
DEFAULT_MAILBOX_LEASE_MS: Final = 30_000
DEFAULT_MAX_MAILBOX_LEASE_MS: Final = 12 * 60 * 60 * 1_000
MAX_DELIVERIES: Final = 1_000
MAX_BACKOFF_DELAYS: Final = 32
MIN_DEDUP_WINDOW_MS: Final = 1_000
DEFAULT_DEDUP_WINDOW_MS: Final = 5 * 60 * 1_000
DEFAULT_BODY_BYTES: Final = 1 * MIB
MAX_BODY_BYTES: Final = 64 * MIB


class DeliveryStatus(IntEnum):
    """How the last delivery of a message ended. On disk; the numbers are those of pandora."""

    CONFIRMED = 1
    REJECTED = 2
    TIMEOUT = 4
    NOT_DELIVERED = 8


class MessageState(IntEnum):
    """State of a message in its mailbox. On disk in snapshots; a number is never reused.

    ::

        DELAYED ──due──▶ AVAILABLE ──fetch──▶ LEASED ──confirmed──▶ GONE
           ▲                 ▲                  │
           └──rejected, expired, with a delay───┤
                             └──without delay───┤
                                                └──delivered too often──▶ EXHAUSTED ──▶ DEAD, or GONE to another mailbox
    """

    AVAILABLE = 1
    DELAYED = 2
    LEASED = 3
    DEAD = 4
    EXHAUSTED = 5
    """Delivered too often; it becomes DEAD, or moves to the mailbox for dead letters, in the next write."""
    GONE = 6
    """Confirmed, expired, purged or moved; its row is removed by the next compaction."""


@dataclass(frozen=True, slots=True)
class MailboxSettings:
    """Settings of a mailbox; see MailboxSettings in ``mailbox_service.proto``.

    Attributes:
        lease_ms, max_lease_ms: Default and longest lease.
        max_deliveries: Deliveries after which a message is dead; 0 for no limit.
        dead_letter: Mailbox that receives dead messages; empty to keep them.
        backoff_ms: Delays after the first, second, … rejection that names none; the last one repeats.
        delay_ms: Delay of messages that name none.
        ttl_ms: Age at which an undelivered message expires; 0 for never.
        dedup_window_ms: Time for which deduplication keys are remembered.
        max_in_flight: Messages that may be leased at a time.
        max_messages: Messages that the mailbox may hold.
        max_body_bytes: Size of the largest body.
    """

    lease_ms: int = DEFAULT_MAILBOX_LEASE_MS
    max_lease_ms: int = DEFAULT_MAX_MAILBOX_LEASE_MS
    max_deliveries: int = 0
    dead_letter: str = ""
    backoff_ms: tuple[int, ...] = ()
    delay_ms: int = 0
    ttl_ms: int = 0
    dedup_window_ms: int = DEFAULT_DEDUP_WINDOW_MS
    max_in_flight: int = DEFAULT_IN_FLIGHT_MESSAGES
    max_messages: int = DEFAULT_MAILBOX_MESSAGES
    max_body_bytes: int = DEFAULT_BODY_BYTES

    def changed(self, **changes: Any) -> "MailboxSettings":
        """Return the settings with some replaced, checked.

        Raises:
            InvalidRequestError: A setting is out of its range, or contradicts another one.
        """
        settings = replace(self, **changes)
        settings.check()
        return settings

    def check(self) -> None:
        """Raise InvalidRequestError if a setting is out of its range, or contradicts another one."""
        for field, (least, greatest) in _RANGES.items():
            _check_range(field, getattr(self, field), least, greatest)
        if self.lease_ms > self.max_lease_ms:
            raise InvalidRequestError(
                f"lease_ms is {self.lease_ms}, expected at most max_lease_ms, {self.max_lease_ms}", field="lease_ms"
            )
        if len(self.backoff_ms) > MAX_BACKOFF_DELAYS:
            raise InvalidRequestError(
                f"backoff has {len(self.backoff_ms)} delays, at most {MAX_BACKOFF_DELAYS} are allowed: the last one "
                "repeats",
                field="backoff",
            )
        for delay_ms in self.backoff_ms:
            _check_range("backoff", delay_ms, 0, MAX_MAILBOX_DELAY_MS)

    def backoff_after(self, delivery_count: int) -> int:
        """Return the delay after the ``delivery_count``-th delivery, in milliseconds."""
        assert 0 < delivery_count
        if not self.backoff_ms:
            return 0
        return self.backoff_ms[min(delivery_count, len(self.backoff_ms)) - 1]


_RANGES: Final[dict[str, tuple[int, int]]] = {
    "lease_ms": (1, MAX_MAILBOX_LEASE_MS),
    "max_lease_ms": (1, MAX_MAILBOX_LEASE_MS),
    "max_deliveries": (0, MAX_DELIVERIES),
    "delay_ms": (0, MAX_MAILBOX_DELAY_MS),
    "ttl_ms": (0, MAX_MAILBOX_DELAY_MS),
    "dedup_window_ms": (MIN_DEDUP_WINDOW_MS, MAX_DEDUP_WINDOW_MS),
    "max_in_flight": (1, MAX_IN_FLIGHT_MESSAGES),
    "max_messages": (1, MAX_MAILBOX_MESSAGES),
    "max_body_bytes": (1, MAX_BODY_BYTES),
}


def _check_range(field: str, value: int, least: int, greatest: int) -> None:
    if not least <= value <= greatest:
        raise InvalidRequestError(f"{field} is {value}, expected {least} to {greatest}", field=field)


DEFAULT_SETTINGS: Final = MailboxSettings()


class MailboxAtTick(NamedTuple):
    """A mailbox of a backup as of a tick, or the blobs.

    Attributes:
        name: Its name.
        vchannel: Name of the vchannel with its events.
        vchannel_id: Id of this vchannel.
        snapshot_tick: Tick of the snapshot from which its log is loaded; 0 if all of its log is there.
        restorable_from: 0 if it can be restored; otherwise the first tick as of which it can.
        is_new: True if it was created later.
    """

    name: str
    vchannel: str
    vchannel_id: int
    snapshot_tick: int = 0
    restorable_from: int = 0
    is_new: bool = False
