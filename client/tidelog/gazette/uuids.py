"""UUIDs of messages: a clock, flags and a producer in the layout of RFC 4122 version 1.

A clock value is an integer of 64 bits: 60 bits count intervals of 100 ns since 1582-10-15 00:00 UTC, and 4 bits extend
them. It orders the messages of one producer; clocks of different producers are not comparable in meaning.
Source: Gazette's message package, file uuid.go.
"""

import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from threading import Lock
from time import time_ns
from typing import Final, Self
from uuid import UUID, SafeUUID

from tidelog.gazette.errors import InvalidUUIDError
from tidelog.tick import without_zone

TICK_STEP: Final = 160
"""Units that ``Clock.tick`` adds by default: 1 microsecond."""
CLOCK_UNITS_PER_SECOND: Final = 160_000_000
MAX_CLOCK: Final = (1 << 64) - 1
MAX_FLAGS: Final = (1 << 10) - 1
PRODUCER_ID_BYTES: Final = 6
NIL_UUID: Final = UUID(int=0)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_INTERVALS: Final = 122_192_928_000_000_000
_MICROSECOND: Final = timedelta(microseconds=1)
_PRODUCER_MASK: Final = (1 << 48) - 1
# A UUID begins with 32 bits of the clock, above the 4 lowest ones; the rest seldom differs from message to message.
_LOW_OF_CLOCK: Final = 0xFFFFFFFF0
_REST_MASK: Final = (1 << 96) - 1
_MAX_TEXTS: Final = 4_096
_texts: Final[dict[int, str]] = {}

# `UUID.__init__` validates a 128-bit number that is valid by construction here; the slots are set directly.
_new: Final = object.__new__
_set_int: Final[Callable[[UUID, int], None]] = UUID.__dict__["int"].__set__
_set_is_safe: Final[Callable[[UUID, SafeUUID], None]] = UUID.__dict__["is_safe"].__set__
_unknown: Final = SafeUUID.unknown
_pack: Final[Callable[..., bytes]] = Struct(">IHHH6s").pack
_int_of: Final = int.from_bytes


class Flags(IntEnum):
    """What a read-committed reader does with a message; the whole 10-bit value counts, not single bits."""

    OUTSIDE_TXN = 0x0
    """Deliver at once."""
    CONTINUE_TXN = 0x1
    """Hold until an acknowledgement with a larger clock."""
    ACK_TXN = 0x2
    """Commit held messages with a smaller clock, and discard held messages with a larger one."""


class ProducerID(bytes):
    """The node of a UUID: 6 bytes that identify one publisher."""

    __slots__ = ()

    def __new__(cls, value: bytes) -> Self:
        """Return the id of 6 bytes.

        Raises:
            ValueError: ``value`` does not have 6 bytes.
        """
        if len(value) != PRODUCER_ID_BYTES:
            raise ValueError(f"a producer id has {PRODUCER_ID_BYTES} bytes, got {len(value)}")
        return super().__new__(cls, value)

    def __repr__(self) -> str:
        return f"ProducerID({self.hex()})"


def new_producer_id() -> ProducerID:
    """Return a random producer id; its lifetime is that of a process, because readers keep a state for each.

    The multicast bit of the first byte is set, so the id is not the address of a network card.
    """
    value = bytearray(secrets.token_bytes(PRODUCER_ID_BYTES))
    value[0] |= 1
    return ProducerID(bytes(value))


class Clock:
    """A clock that never goes back, for the UUIDs of one producer. Safe for concurrent use.

    Attributes:
        value: The clock value, 0 to 2**64 - 1.
        step: Units that ``tick`` adds: 160 (1 microsecond), or 1 as in releases of Gazette before September 2025.
    """

    __slots__ = ("_lock", "step", "value")

    def __init__(self, value: int = 0, *, step: int = TICK_STEP) -> None:
        if not 0 <= value <= MAX_CLOCK:
            raise ValueError(f"the clock value is {value}, expected 0 to {MAX_CLOCK}")
        if step < 1:
            raise ValueError(f"the step of a clock is {step}, expected 1 or more")
        self.value = value
        self.step = step
        self._lock = Lock()

    def tick(self) -> int:
        """Advance by one step, and return the new clock value."""
        with self._lock:
            value = self.value = self.value + self.step
        return value

    def update(self, time: datetime | int) -> None:
        """Advance to ``time`` if it is later; the 4 low bits become 0 then.

        Args:
            time: A time with a time zone, or nanoseconds since the Unix epoch.

        Raises:
            ValueError: ``time`` has no time zone, or lies outside the range of a clock.
        """
        value = clock_at(time)
        # Without the lock first: while a publisher is ahead of the time, there is nothing to store.
        if value > self.value:
            with self._lock:
                if value > self.value:  # noqa: PLR1730 -- `max` takes 100 ns more, for each message
                    self.value = value

    def update_to_now(self) -> None:
        """Do as ``update(time.time_ns())``, in half of the time."""
        value = time_ns() // 100 + _EPOCH_INTERVALS << 4
        with self._lock:
            if value > self.value:  # noqa: PLR1730 -- `max` takes 100 ns more, for each message
                self.value = value

    def __repr__(self) -> str:
        return f"Clock({self.value}, step={self.step})"


def new_clock(time: datetime | int, *, step: int = TICK_STEP) -> Clock:
    """Return a clock that begins at ``time``; see ``Clock.update``.

    Raises:
        ValueError: ``time`` has no time zone, or lies outside the range of a clock.
    """
    return Clock(clock_at(time), step=step)


def clock_at(time: datetime | int) -> int:
    """Return the clock value of ``time``, rounded down to 100 ns.

    Args:
        time: A time with a time zone, or nanoseconds since the Unix epoch.

    Raises:
        ValueError: ``time`` has no time zone, or lies outside 1582-10-15 to the year 5236.
    """
    if isinstance(time, int):
        # The common case, once for each message of a publisher.
        intervals = time // 100 + _EPOCH_INTERVALS
        if not intervals >> 60:
            return intervals << 4
    elif time.utcoffset() is None:
        raise ValueError(without_zone(time))
    else:
        intervals = (time - _EPOCH) // _MICROSECOND * 10 + _EPOCH_INTERVALS
    if intervals >> 60:
        raise ValueError(f"the time {time} is out of range: expected a time between 1582-10-15 and the year 5236")
    return intervals << 4


def time_of_clock(clock: int) -> datetime:
    """Return the time of a clock value in UTC, rounded down to the microsecond."""
    return _EPOCH + timedelta(microseconds=((clock >> 4) - _EPOCH_INTERVALS) // 10)


def build_uuid(producer: bytes, clock: int, flags: int) -> UUID:
    """Return the UUID of a message.

    Raises:
        RuntimeError: ``flags`` exceeds 10 bits, ``clock`` exceeds 64, or ``producer`` does not have 6 bytes.
    """
    if flags >> 10 or clock >> 64 or len(producer) != PRODUCER_ID_BYTES:
        raise RuntimeError(_misuse(producer, clock, flags))
    time = clock >> 4
    fields = _pack(
        time & 0xFFFFFFFF,
        time >> 32 & 0xFFFF,
        0x1000 | time >> 48,
        0x8000 | (clock & 0xF) << 10 | flags,
        producer,
    )
    uuid: UUID = _new(UUID)
    _set_int(uuid, _int_of(fields, "big"))
    _set_is_safe(uuid, _unknown)
    return uuid


def _misuse(producer: bytes, clock: int, flags: int) -> str:
    if flags >> 10:
        return f"only 10 bits may be used for flags, got {flags:#x}: expected 0 to {MAX_FLAGS:#x}"
    if clock >> 64:
        return f"the clock value is {clock}, expected 0 to {MAX_CLOCK}"
    return f"a producer id has {PRODUCER_ID_BYTES} bytes, got {len(producer)}"


class UUIDBuilder:
    """Builds the UUIDs of one producer with one value of flags, as ``build_uuid`` does, in half of the time.

    The high bits of the clock change every 429 seconds, so the part of the UUID with them is kept. Not thread-safe.
    """

    __slots__ = ("_flags", "_high", "_producer", "_rest")

    def __init__(self, producer: ProducerID, flags: int) -> None:
        self._producer = producer
        self._flags = flags
        self._high = -1
        self._rest = 0

    def build(self, clock: int) -> UUID:
        """Return the UUID of a message.

        Raises:
            RuntimeError: As ``build_uuid``.
        """
        high = clock & ~_LOW_OF_CLOCK
        if high != self._high:
            self._rest = build_uuid(self._producer, clock, self._flags).int & _REST_MASK
            self._high = high
        uuid: UUID = _new(UUID)
        _set_int(uuid, (clock & _LOW_OF_CLOCK) << 92 | self._rest)
        _set_is_safe(uuid, _unknown)
        return uuid


def uuid_text(uuid: UUID) -> str:
    """Return the canonical text of ``uuid``, as ``str`` does, in less time."""
    value: int = uuid.int
    rest = value & _REST_MASK
    return f"{value >> 96:08x}{_texts.get(rest) or _text_of_rest(rest)}"


def _text_of_rest(rest: int) -> str:
    """Return the text of all but the first 32 bits; those of recent UUIDs are kept, as they change seldom."""
    digits = f"{rest:024x}"
    text = f"-{digits[:4]}-{digits[4:8]}-{digits[8:12]}-{digits[12:]}"
    if len(_texts) >= _MAX_TEXTS:
        _texts.clear()
    _texts[rest] = text
    return text


def parse_uuid(text: str) -> UUID:
    """Return the UUID that ``text`` denotes, in its canonical form or in another one that ``uuid.UUID`` accepts.

    Raises:
        InvalidUUIDError: ``text`` has another form. Its text is ``invalid UUID length: <bytes>`` for a wrong length.
    """
    digits = text.replace("-", "")
    try:
        value = bytes.fromhex(digits)
    except ValueError:
        value = b""
    # `fromhex` skips white space, which 32 characters for 16 bytes cannot contain.
    if len(value) != 16 or len(digits) != 32 or len(text) != 36:
        return _parse_other(text)
    uuid: UUID = _new(UUID)
    _set_int(uuid, _int_of(value, "big"))
    _set_is_safe(uuid, _unknown)
    return uuid


def _parse_other(text: str) -> UUID:
    size = len(text.encode("utf-8", "surrogatepass"))
    # Bare digits, the canonical form, in braces, and with the prefix of a URN.
    if size not in {32, 36, 38, 45}:
        raise InvalidUUIDError(f"invalid UUID length: {size}")
    try:
        return UUID(text)
    except ValueError as error:
        raise InvalidUUIDError(f"invalid UUID format: {text!r}") from error


def get_clock(uuid: UUID) -> int:
    """Return the clock value of ``uuid``; its version and variant are ignored, so any UUID has one."""
    # The 70 bits from the counter upwards: 32 bits of time, 16, the version, 12, the variant, the counter.
    bits: int = uuid.int >> 58
    return (bits & 0x3FFC0) << 46 | (bits & 0x3FFFC00000) << 14 | bits >> 34 & 0xFFFFFFFF0 | bits & 0xF


def get_flags(uuid: UUID) -> int:
    """Return the 10 bits of flags of ``uuid``; compare them with the values of ``Flags``."""
    bits: int = uuid.int
    return bits >> 48 & MAX_FLAGS


def get_producer_id(uuid: UUID) -> ProducerID:
    """Return the producer of ``uuid``."""
    return _producer_of_node(uuid.int & _PRODUCER_MASK)


@lru_cache(maxsize=4096)
def _producer_of_node(node: int) -> ProducerID:
    # A journal has few producers and many messages: the ids are kept, which also makes equal ids identical.
    return ProducerID(node.to_bytes(PRODUCER_ID_BYTES, "big"))
