"""Time ticks: the one number that orders everything.

A tick is a hybrid timestamp, ``milliseconds_since_epoch << 18 | logical``. It is at once a message's id, its
position, its time and its version.

Source: the timestamp oracle of Milvus and TiDB; Kulkarni et al., "Logical Physical Clocks", 2014.
"""

from typing import Final, NewType

Tick = NewType("Tick", int)
"""A 64-bit hybrid timestamp, at most MAX_TICK. Zero is below every tick and means "not set"."""

LOGICAL_BITS: Final = 18
LOGICAL_MASK: Final = (1 << LOGICAL_BITS) - 1
# Why not 2^64 - 1: Spark, Arrow and Java have signed 64-bit integers only. This bound is reached in the year 3084.
MAX_TICK: Final = Tick((1 << 63) - 1)
MAX_PHYSICAL_MS: Final = MAX_TICK >> LOGICAL_BITS
NO_TICK: Final = Tick(0)


def compose(physical_ms: int, logical: int = 0) -> Tick:
    """Return the tick of ``physical_ms`` (milliseconds since the epoch) and ``logical``."""
    assert 0 <= physical_ms <= MAX_PHYSICAL_MS
    assert 0 <= logical <= LOGICAL_MASK
    return Tick(physical_ms << LOGICAL_BITS | logical)


def physical_ms(tick: int) -> int:
    """Return the physical part of ``tick``, in milliseconds since the epoch."""
    return tick >> LOGICAL_BITS


def logical(tick: int) -> int:
    """Return the logical part of ``tick``: its counter within the millisecond."""
    return tick & LOGICAL_MASK


def encode_message_id(tick: int) -> bytes:
    """Return the message id of ``tick``: 8 bytes, big-endian, so that ids sort like ticks."""
    return tick.to_bytes(8, "big")


def decode_message_id(message_id: bytes) -> Tick | None:
    """Return the tick of ``message_id``; None if it is not a valid message id of this log."""
    if len(message_id) != 8:
        return None
    tick = int.from_bytes(message_id, "big")
    return Tick(tick) if tick <= MAX_TICK else None
