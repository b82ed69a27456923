"""The events of a mailbox as messages of its log: encoding, decoding and replay. Pure.

The type of a message is its EventType; all numbers are little-endian. See docs/reference/format.md.
"""

import struct
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import compress
from typing import Final, NamedTuple

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import LOCK_BYTES
from tidelog_server.core.mailboxes import MessageState
from tidelog_server.fold.loading import Fold, Places
from tidelog_server.mailboxes.messages.locks import LockEnd
from tidelog_server.mailboxes.messages.rows import NewRow
from tidelog_server.mailboxes.snapshot import decode_snapshot, freeze
from tidelog_server.mailboxes.state import MailboxState


class EventType(IntEnum):
    """Kind of an event. On disk; a number is never reused."""

    SENT = 1
    LEASED = 2
    EXTENDED = 3
    CONFIRMED = 4
    REJECTED = 5
    LEASE_EXPIRED = 6
    MESSAGE_EXPIRED = 7
    EXHAUSTED_BY_REJECTION = 8
    EXHAUSTED_BY_TIMEOUT = 9
    BURIED = 10
    DEAD_LETTERED = 11
    REDRIVEN = 12
    MOVED = 13
    PURGED = 14
    PAUSED = 15
    RESUMED = 16
    CONFIGURED = 17
    RELOCATED = 18
    SNAPSHOT = 19


class MessageIds(NamedTuple):
    """An event of several messages.

    Attributes:
        tick: Of EXTENDED, the end of the leases; of REJECTED, LEASE_EXPIRED and REDRIVEN, the tick from which the
            messages are available; 0 for others.
        ids: The messages.
    """

    tick: int
    ids: Sequence[int]


class Leased(NamedTuple):
    """Leases that end at the same tick; message ``i`` has lock ``i``."""

    until: int
    ids: Sequence[int]
    lock_ids: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message was before it was dead-lettered.

    Attributes:
        mailbox_id: Id of the mailbox that it was sent to.
        message_id: Its id there.
        deliveries: Number of its deliveries there.
    """

    mailbox_id: int
    message_id: int
    deliveries: int


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as it was sent.

    Attributes:
        body: The body; empty if ``blob_key`` is set.
        headers: Headers of the application.
        due_tick: Tick from which it is available; 0 for its id.
        expires_tick: Tick at which it expires; 0 for never.
        priority: Its priority.
        group: Name of its group; empty for no group.
        key: Deduplication key; empty for none.
        key_until: Tick until which the key is remembered.
        origin: Where it was dead-lettered; None for other messages.
        blob_key: Key of the body in the blob store; empty if the body is here.
        blob_bytes: Size of that body.
        is_missing: True if the body was sought in the blob store and is not there; not stored.
    """

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    due_tick: int = 0
    expires_tick: int = 0
    priority: int = 0
    group: str = ""
    key: str = ""
    key_until: int = 0
    origin: Origin | None = None
    blob_key: bytes = b""
    blob_bytes: int = 0
    is_missing: bool = False

    @property
    def size_bytes(self) -> int:
        """Size of the body."""
        return self.blob_bytes if self.blob_key else len(self.body)


_IDS: Final = struct.Struct("<QI")
# Flags, priority, bytes of the group, of the key, and of the headers.
_SENT: Final = struct.Struct("<BBHHI")
_TIMES: Final = struct.Struct("<QQQ")
_ORIGIN: Final = struct.Struct("<QQI")
_BLOB: Final = struct.Struct("<BQ")
_RELOCATED: Final = struct.Struct("<Q")
_HAS_TIMES: Final = 1
_HAS_ORIGIN: Final = 2
_HAS_BLOB: Final = 4
_FLAGS: Final = _HAS_TIMES | _HAS_ORIGIN | _HAS_BLOB
_LENGTH: Final = struct.Struct("<H")
_ID_BYTES: Final = 8
PLAIN: Final = _SENT.pack(0, 0, 0, 0, 0)
"""What precedes the body of a message that has only a body."""


def encode_ids(event: MessageIds) -> bytes:
    """Return an event of several messages."""
    count = len(event.ids)
    return _IDS.pack(event.tick, count) + struct.pack(f"<{count}Q", *event.ids)


def decode_ids(payload: bytes) -> MessageIds:
    """Parse what ``encode_ids`` returned. Raises struct.error, ValueError."""
    tick, count = _IDS.unpack_from(payload)
    _check_size(payload, _IDS.size + _ID_BYTES * count)
    return MessageIds(tick, struct.unpack_from(f"<{count}Q", payload, _IDS.size))


def encode_leased(event: Leased) -> bytes:
    """Return leases."""
    return encode_ids(MessageIds(event.until, event.ids)) + b"".join(event.lock_ids)


def decode_leased(payload: bytes) -> Leased:
    """Parse what ``encode_leased`` returned. Raises struct.error, ValueError."""
    until, count = _IDS.unpack_from(payload)
    begin = _IDS.size + _ID_BYTES * count
    _check_size(payload, begin + LOCK_BYTES * count)
    locks = [payload[at : at + LOCK_BYTES] for at in range(begin, len(payload), LOCK_BYTES)]
    return Leased(until, struct.unpack_from(f"<{count}Q", payload, _IDS.size), locks)


def _check_size(payload: bytes, size_bytes: int) -> None:
    if len(payload) != size_bytes:
        raise ValueError(f"it has {len(payload)} bytes, expected {size_bytes}")


def encode_sent(message: Sent) -> bytes:
    """Return a message as it is stored."""
    flags, parts = 0, list[bytes]()
    if message.due_tick or message.expires_tick or message.key_until:
        flags |= _HAS_TIMES
        parts.append(_TIMES.pack(message.due_tick, message.expires_tick, message.key_until))
    if (origin := message.origin) is not None:
        flags |= _HAS_ORIGIN
        parts.append(_ORIGIN.pack(origin.mailbox_id, origin.message_id, origin.deliveries))
    if message.blob_key:
        flags |= _HAS_BLOB
        parts.append(_BLOB.pack(len(message.blob_key), message.blob_bytes) + message.blob_key)
    group, key, headers = message.group.encode(), message.key.encode(), _encode_headers(message.headers)
    fixed = _SENT.pack(flags, message.priority, len(group), len(key), len(headers))
    return b"".join((fixed, *parts, group, key, headers, message.body))


def decode_sent(payload: bytes) -> Sent:
    """Parse what ``encode_sent`` returned. Raises struct.error, ValueError."""
    flags, priority, group_bytes, key_bytes, headers_bytes = _SENT.unpack_from(payload)
    if flags & ~_FLAGS:
        raise ValueError(f"its flags are {flags}, expected at most {_FLAGS}")
    at = _SENT.size
    if not (flags or priority or group_bytes or key_bytes or headers_bytes):
        return Sent(payload[at:])
    due_tick = expires_tick = key_until = blob_bytes = 0
    origin, blob_key = None, b""
    if flags & _HAS_TIMES:
        due_tick, expires_tick, key_until = _TIMES.unpack_from(payload, at)
        at += _TIMES.size
    if flags & _HAS_ORIGIN:
        origin = Origin(*_ORIGIN.unpack_from(payload, at))
        at += _ORIGIN.size
    if flags & _HAS_BLOB:
        length, blob_bytes = _BLOB.unpack_from(payload, at)
        at += _BLOB.size
        blob_key, at = payload[at : at + length], at + length
    group, at = payload[at : at + group_bytes].decode(), at + group_bytes
    key, at = payload[at : at + key_bytes].decode(), at + key_bytes
    headers, at = _decode_headers(payload[at : at + headers_bytes]), at + headers_bytes
    if at > len(payload):
        raise ValueError(f"it has {len(payload)} bytes, expected at least {at}")
    return Sent(
        payload[at:], headers, due_tick, expires_tick, priority, group, key, key_until, origin, blob_key, blob_bytes
    )


def decode_message(stored: bytes, tick: int) -> Sent:
    """As ``decode_sent``, of the event at ``tick``. Raises DataLossError."""
    try:
        return decode_sent(stored)
    except (struct.error, ValueError) as error:
        raise DataLossError(
            f"the message of a mailbox in the event at tick {tick} cannot be read ({error!r}): restore the server from "
            "a backup",
            tick=tick,
        ) from error


def _encode_headers(headers: Mapping[str, str]) -> bytes:
    if not headers:
        return b""
    texts = [text.encode() for pair in sorted(headers.items()) for text in pair]
    return b"".join(_LENGTH.pack(len(text)) + text for text in texts)


def _decode_headers(encoded: bytes) -> dict[str, str]:
    texts, at = list[str](), 0
    while at < len(encoded):
        (length,) = _LENGTH.unpack_from(encoded, at)
        at += _LENGTH.size
        texts.append(encoded[at : at + length].decode())
        at += length
    if at > len(encoded):
        raise ValueError(f"its headers have {len(encoded)} bytes, expected {at}")
    return dict(zip(texts[::2], texts[1::2], strict=True))


def encode_relocated(message_id: int, sent: bytes) -> bytes:
    """Return the copy of a stored message, which replaces the one that is to be trimmed."""
    return _RELOCATED.pack(message_id) + sent


def relocated_id(payload: bytes) -> int:
    """Return the id of a copied message. Raises struct.error."""
    message_id: int = _RELOCATED.unpack_from(payload)[0]
    return message_id


def stored_message(message_id: int, place: int, payload: bytes) -> bytes:
    """Return a message as ``encode_sent`` encoded it, from the event at ``place`` that has it.

    Raises:
        DataLossError: The event is that of another message.
    """
    if place == message_id:
        return payload
    if len(payload) < _RELOCATED.size or relocated_id(payload) != message_id:
        raise DataLossError(
            f"the event of a mailbox at tick {place} is not the copy of message {message_id}: restore the server from "
            "a backup",
            tick=place, message_id=message_id,
        )  # fmt: skip
    return payload[_RELOCATED.size :]


def row_of(message_id: int, message: Sent, group: int, place: int) -> NewRow:
    """Return the row of a message; ``group`` is the number of its group."""
    return NewRow(
        message_id, message.due_tick or message_id, message.expires_tick, message.priority, group, message.size_bytes,
        place,
    )  # fmt: skip


def replay(state: MailboxState, tick: int, kind: int, payload: bytes) -> None:
    """Apply the event in the message of the log at ``tick``.

    Raises:
        DataLossError: The event is unreadable, or contradicts those before it.
    """
    try:
        state.advance(tick)
        _APPLY[EventType(kind)](state, tick, payload)
    except (struct.error, ValueError, KeyError, OverflowError, AssertionError) as error:
        raise _not_replayable(tick, kind, error) from error


def replay_all(state: MailboxState, events: Iterable[tuple[int, int, bytes]]) -> None:
    """Apply events, each given by its tick, kind and payload, as ``replay`` does.

    Messages that have only a body, with consecutive ticks, are added together: one by one, they would take several
    times as long.

    Raises:
        DataLossError: An event is unreadable, or contradicts those before it.
    """
    first_tick, sizes = 0, list[int]()
    for tick, kind, payload in events:
        if kind == EventType.SENT and payload.startswith(PLAIN):
            if tick != first_tick + len(sizes):
                _replay_plain(state, first_tick, sizes)
                first_tick, sizes = tick, []
            sizes.append(len(payload) - len(PLAIN))
        else:
            _replay_plain(state, first_tick, sizes)
            first_tick, sizes = 0, []
            replay(state, tick, kind, payload)
    _replay_plain(state, first_tick, sizes)


def _replay_plain(state: MailboxState, first_tick: int, sizes: Sequence[int]) -> None:
    if not sizes:
        return
    try:
        state.advance(first_tick)
        state.sent_plain(first_tick, sizes)
    except (ValueError, OverflowError, AssertionError) as error:
        raise _not_replayable(first_tick, EventType.SENT, error) from error


def _not_replayable(tick: int, kind: int, error: Exception) -> DataLossError:
    return DataLossError(
        f"the event of a mailbox at tick {tick}, of kind {kind}, cannot be replayed ({error!r}): restore the server "
        "from a backup",
        tick=tick,
    )


def _replay_sent(state: MailboxState, tick: int, payload: bytes) -> None:
    if payload.startswith(PLAIN):
        state.sent_plain(tick, (len(payload) - len(PLAIN),))
        return
    message = decode_sent(payload)
    row = row_of(tick, message, state.groups.number_of(message.group), tick)
    state.sent(row, key=message.key, key_until=message.key_until, blob_key=message.blob_key)


def _replay_released(how: LockEnd, state: MailboxState, payload: bytes) -> None:
    due_tick, ids = decode_ids(payload)
    for message_id in ids:
        state.released(message_id, how, due_tick)


def _replay_exhausted(how: LockEnd, state: MailboxState, payload: bytes) -> None:
    for message_id in decode_ids(payload).ids:
        state.exhaust(message_id, how)


def _set_paused(state: MailboxState, *, is_paused: bool) -> None:
    state.is_paused = is_paused


_Apply = Callable[[MailboxState, int, bytes], None]
_APPLY: Final[Mapping[EventType, _Apply]] = {
    EventType.SENT: _replay_sent,
    EventType.LEASED: lambda state, _, payload: state.leased(*decode_leased(payload)),
    EventType.EXTENDED: lambda state, _, payload: state.extended(*decode_ids(payload)),
    EventType.CONFIRMED: lambda state, _, payload: state.confirmed(decode_ids(payload).ids),
    EventType.REJECTED: lambda state, _, payload: _replay_released(LockEnd.ACKNOWLEDGED, state, payload),
    EventType.LEASE_EXPIRED: lambda state, _, payload: _replay_released(LockEnd.EXPIRED, state, payload),
    EventType.MESSAGE_EXPIRED: lambda state, _, payload: state.expired(decode_ids(payload).ids),
    EventType.EXHAUSTED_BY_REJECTION: lambda state, _, payload: _replay_exhausted(LockEnd.ACKNOWLEDGED, state, payload),
    EventType.EXHAUSTED_BY_TIMEOUT: lambda state, _, payload: _replay_exhausted(LockEnd.EXPIRED, state, payload),
    EventType.BURIED: lambda state, _, payload: state.buried(decode_ids(payload).ids),
    EventType.DEAD_LETTERED: lambda state, _, payload: state.moved(decode_ids(payload).ids),
    EventType.REDRIVEN: lambda state, _, payload: state.redriven(*decode_ids(payload)),
    EventType.MOVED: lambda state, _, payload: state.moved(decode_ids(payload).ids),
    EventType.PURGED: lambda state, _, __: state.purged(),
    EventType.PAUSED: lambda state, _, __: _set_paused(state, is_paused=True),
    EventType.RESUMED: lambda state, _, __: _set_paused(state, is_paused=False),
    EventType.CONFIGURED: lambda _, __, ___: None,
    EventType.RELOCATED: lambda state, tick, payload: state.relocated(relocated_id(payload), tick),
    EventType.SNAPSHOT: lambda _, __, ___: None,
}
assert _APPLY.keys() == set(EventType)

# Events of several messages: a tick, and the number of messages.
_OF_SEVERAL: Final = frozenset(
    (
        EventType.LEASED, EventType.EXTENDED, EventType.CONFIRMED, EventType.REJECTED, EventType.LEASE_EXPIRED,
        EventType.MESSAGE_EXPIRED, EventType.EXHAUSTED_BY_REJECTION, EventType.EXHAUSTED_BY_TIMEOUT, EventType.BURIED,
        EventType.DEAD_LETTERED, EventType.REDRIVEN, EventType.MOVED,
    )
)  # fmt: skip


def _places(state: MailboxState, wanted: Collection[Hashable] | None) -> Places:
    rows = state.rows
    if wanted is None:
        return compress(zip(rows.ids, rows.places, strict=True), rows.live_flags())
    found = ((each, rows.find(each)) for each in wanted if isinstance(each, int))
    return ((message_id, rows.places[row]) for message_id, row in found if row >= 0)


def _check(state: MailboxState, vchannel_id: int) -> None:
    leased = state.rows.states.count(MessageState.LEASED)
    if leased != len(state.locks):
        raise DataLossError(
            f"the mailbox of vchannel id {vchannel_id} has {leased} leased messages and {len(state.locks)} locks: "
            "restore the server from a backup",
            vchannel_id=vchannel_id,
        )


MAILBOX: Final = Fold(
    "a mailbox", MailboxState, freeze, decode_snapshot, replay_all, EventType.SNAPSHOT, _places,
    lambda kind, payload: int.from_bytes(payload[8:12], "little") if kind in _OF_SEVERAL else 1, _check,
)  # fmt: skip
