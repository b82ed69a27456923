"""A message of a mailbox: the header that a store keeps, and the body, whose hash is the message's id.

Source: pandora's API, version of January 2020.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, IntEnum
from typing import Final, Self

from tidelog.pandora.errors import InvalidHeaderEncodingError, InvalidMailBoxError
from tidelog.pandora.keys import Key, print_key_string, sha1_key
from tidelog.pandora.values import Values, encode_values, values_of
from tidelog.pandora_formats.go_times import ZERO_TIME, exact_time, format_time, parse_time
from tidelog.pandora_formats.url_values import STATUS_TEXTS, MailHeader

KEY_SENDER: Final = "sender"
"""Field of a body with the sender's mailbox."""
KEY_RECEIVER: Final = "receiver"
"""Field of a body with the receiver's mailbox."""
KEY_CLIENT_TIME: Final = "clientTime"
"""Field of a body with the time at which its client sent it."""
KEY_LEASE_TIME: Final = "leaseTime"
"""Parameter of a fetch with the duration of the lease."""
DEFAULT_LEASE_TIME: Final = timedelta(minutes=5)
MAX_MAILBOX_BYTES: Final = 256
"""Maximum size of a mailbox's name in UTF-8."""

_NO_TIME: Final = timedelta()


class AckStatus(IntEnum):
    """What happened to a message; ``str`` returns pandora's text, such as ``notDelivered``."""

    CONFIRMED = 1
    """It was processed, and is never delivered again."""
    REJECTED = 2
    """A client rejected it; it is delivered again."""
    TIMEOUT = 4
    """A lease ended without an acknowledgement; it is delivered again."""
    NOT_DELIVERED = 8
    """It waits for its first delivery."""

    def __str__(self) -> str:
        return STATUS_TEXTS[self.value]

    __format__ = Enum.__format__


@dataclass
class Message:
    """A message. All times are aware; ``None`` stands for a key or time that is not set.

    Attributes:
        mid: The message's id, the SHA-1 of its encoded body.
        lid: Id of the lock while the message is leased.
        status: What happened to it last.
        leased_until: The lease is valid up to and including this time of the store.
        fetch_time: When the store leased it.
        received_at: When the store received it.
        send_when: When it becomes due. A message that is enqueued without it is due after its delay.
        delay: Time from ``received_at`` to ``send_when``; due at once if it is negative.
        delivery_count: Earlier deliveries: 0 in the first one.
        body: The fields, each with its values.
        body_error: Why the body could not be read; ``None`` if it is valid.
    """

    mid: Key | None = None
    lid: Key | None = None
    status: AckStatus = AckStatus.NOT_DELIVERED
    leased_until: datetime | None = None
    fetch_time: datetime | None = None
    received_at: datetime | None = None
    send_when: datetime | None = None
    delay: timedelta = _NO_TIME
    delivery_count: int = 0
    body: Values = field(default_factory=dict)
    body_error: Exception | None = field(default=None, compare=False)

    def calculate_lease_for(self, now: datetime | str, lease: timedelta) -> None:
        """Lease the message until ``now + lease``, with the SHA-1 of that time as lock id.

        Such a lock id can be guessed and is not unique: stores draw theirs at random instead.

        Args:
            now: The time, or RFC 3339 text, whose nanoseconds count for the lock id.
            lease: Duration of the lease.

        Raises:
            ValueError: ``now`` has no time zone or is not RFC 3339.
        """
        begin = exact_time(now)
        end = begin._replace(time=begin.time + lease)
        self.leased_until = end.time
        self.lid = sha1_key(str(end).encode())

    def calculate_mid(self) -> None:
        """Set ``mid`` to the SHA-1 of the encoded body.

        Raises:
            InvalidHeaderEncodingError: UTF-8 cannot encode the body.
        """
        self.mid = sha1_key(encode_values(self.body))

    def client_time(self) -> datetime | None:
        """Return when the client sent it, to the microsecond; ``None`` if the field is missing or invalid."""
        try:
            return parse_time(self.get(KEY_CLIENT_TIME))
        except ValueError:
            return None

    def set_client_time(self, client_time: datetime | str) -> None:
        """Set the field with the client's time; RFC 3339 text keeps its nanoseconds.

        Raises:
            ValueError: The time has no time zone or is not RFC 3339.
        """
        self.set(KEY_CLIENT_TIME, format_time(client_time))

    def empty(self, body: Mapping[str, str | Sequence[str]] | None = None, *, now: datetime | None = None) -> Self:
        """Clear all fields, as if the message was sent at ``now``; return the message.

        Args:
            body: The fields of its body, which is copied; sender and receiver are not added.
            now: The client's time, and when it was received and is due; the machine's clock by default.
        """
        vars(self).update(vars(Message(body=values_of(body or {}))))
        sent_at = now or utc_now()
        self.set_client_time(sent_at)
        self.received_at = self.send_when = sent_at
        return self

    def get(self, key: str) -> str:
        """Return the first value of a field; empty text if it has no value."""
        return next(iter(self.body.get(key, ())), "")

    def set(self, key: str, value: str) -> None:
        """Replace the values of a field by one."""
        self.body[key] = [value]

    def receiver(self) -> str:
        """Return the receiver's mailbox; empty text if it is not set."""
        return self.get(KEY_RECEIVER)

    def set_receiver(self, receiver: str) -> None:
        """Set the receiver's mailbox."""
        self.set(KEY_RECEIVER, receiver)

    def sender(self) -> str:
        """Return the sender's mailbox; empty text if it is not set."""
        return self.get(KEY_SENDER)

    def set_sender(self, sender: str) -> None:
        """Set the sender's mailbox."""
        self.set(KEY_SENDER, sender)

    def valid_body(self) -> bool:
        """Return whether the body is that of the message; if not, ``body_error`` is the cause."""
        return self.body_error is None

    def write_to(self, out: Values) -> None:
        """Set the fields of the header in ``out``, as pandora's HTTP interface returns them; other fields are kept."""
        header = MailHeader(
            print_key_string(self.mid), print_key_string(self.lid), int(self.status), _time_text(self.leased_until),
            _time_text(self.received_at), self.delivery_count, _time_text(self.send_when), self.valid_body(),
        )  # fmt: skip
        out.update(header.values())


def utc_now() -> datetime:
    """Return the time of the machine's clock."""
    return datetime.now(UTC)


def check_mailbox(name: str) -> None:
    """Refuse the name of a mailbox that no store accepts.

    Raises:
        InvalidMailBoxError: The name is empty, has more than 256 bytes, or control characters.
        InvalidHeaderEncodingError: UTF-8 cannot encode it.
    """
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise InvalidHeaderEncodingError from error
    if not 1 <= size <= MAX_MAILBOX_BYTES or any(_is_control(character) for character in name):
        raise InvalidMailBoxError


def _is_control(character: str) -> bool:
    """Return whether a character is one of U+0000 to U+001F or U+007F to U+009F."""
    return character < " " or "\x7f" <= character <= "\x9f"


def _time_text(time: datetime | None) -> str:
    return ZERO_TIME if time is None else format_time(time)
