"""A record of the log: its fields and its bytes.

All integers are big-endian. The layout is in the engine since record version 1 (see docs/reference/format.md)::

    magic 4 | version 1 | kind 1 | incarnation 16 | term 8 | number 8 | part 4 | parts 4
    | sequence and chain hash before 8 + 16 | sequence and chain hash after 8 + 16 | snapshot 16 | payload | CRC-32C 4
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from tidelog_server.core.entries import HASH_BYTES
from tidelog_server.core.errors import DataLossError

Position: TypeAlias = int
"""Place of a record in its log; only the order has a meaning, except to the engine that gave it. Below 2 ** 128 - 1."""

MAGIC: Final = b"TLog"
RECORD_VERSION: Final = 1
MAX_RECORD_BYTES: Final = 900_000
"""Maximum bytes of a record: brokers refuse more than 1,000,000 by default, and add some of their own."""
INCARNATION_BYTES: Final = 16
CLAIM_BYTES: Final = 16
ORIGIN_BYTES: Final = 16
"""Bytes of the id that an engine gives a log, if it gives one: its origin. A log keeps that of its first record."""

_HEADER: Final = struct.Struct(f">4sBB{INCARNATION_BYTES}sQQII Q{HASH_BYTES}s Q{HASH_BYTES}s 16s".replace(" ", ""))
_CRC_BYTES: Final = 4
_VERSION_AT: Final = len(MAGIC)
POSITION_BYTES: Final = 16
_NO_POSITION: Final = b"\xff" * POSITION_BYTES
MAX_PAYLOAD_BYTES: Final = MAX_RECORD_BYTES - _HEADER.size - _CRC_BYTES
"""Maximum bytes of a record's payload; longer ones are divided into parts."""


class Kind(IntEnum):
    """What a record is."""

    FENCE = 1
    """The first record of a term. The payload identifies the claim, in ``CLAIM_BYTES``.

    That of term 0 creates the log; what follows in its payload is the origin of the log.
    """
    GROUP = 2
    """A part of an atomic change of rows."""
    SNAPSHOT = 3
    """A part of a copy of all rows."""


class Mark(NamedTuple):
    """The state of the store at a point of the log.

    Attributes:
        sequence: Sequence of the last entry; 0 before the first.
        chain_hash: Its chain hash, ``HASH_BYTES``.
    """

    sequence: int
    chain_hash: bytes


EMPTY: Final = Mark(0, bytes(HASH_BYTES))
"""The mark of a log without entries."""


class Record(NamedTuple):
    """One record.

    Attributes:
        kind: What it is.
        incarnation: Identity of the log, ``INCARNATION_BYTES``.
        term: Term of the owner that wrote it.
        number: Number within the term, from 0, which is the FENCE.
        part, parts: Which part of how many it is, from 0. A part of a snapshot that is not the last has 0 ``parts``.
        before, after: The store before and after the group; equal if it has no entries.
        snapshot: Position of the newest complete snapshot; None without one.
        payload: The rest.
    """

    kind: Kind
    incarnation: bytes
    term: int
    number: int
    part: int
    parts: int
    before: Mark
    after: Mark
    snapshot: Position | None
    payload: bytes


def pack_position(position: Position | None) -> bytes:
    """Return the ``POSITION_BYTES`` of a position, or of no position."""
    return _NO_POSITION if position is None else position.to_bytes(POSITION_BYTES, "big")


def unpack_position(packed: bytes) -> Position | None:
    """Return what ``pack_position`` packed."""
    return None if packed == _NO_POSITION else int.from_bytes(packed, "big")


def pack_record(record: Record) -> bytes:
    """Return the bytes of ``record``."""
    kind, incarnation, term, number, part, parts, before, after, snapshot, payload = record
    place = pack_position(snapshot)
    head = _HEADER.pack(MAGIC, RECORD_VERSION, kind, incarnation, term, number, part, parts, *before, *after, place)
    # Without a copy of the payload for the CRC.
    return b"".join((head, payload, crc32c(payload, crc32c(head)).to_bytes(_CRC_BYTES, "big")))


def unpack_record(position: Position, value: bytes) -> Record | None:
    """Return the record at ``position``; None if it is foreign: its first bytes are not the magic number.

    Raises:
        DataLossError: It is damaged, or a later version wrote it.
    """
    if value[: len(MAGIC)] != MAGIC:
        return None
    if len(value) > _VERSION_AT and value[_VERSION_AT] > RECORD_VERSION:
        # Before the CRC, which a later version may compute in another way.
        raise damaged(
            position,
            f"it has version {value[_VERSION_AT]}, and this server knows versions up to {RECORD_VERSION}: use the "
            "version of Tidelog that wrote it, or a later one",
        )
    crc_at = len(value) - _CRC_BYTES
    if crc_at < _HEADER.size or crc32c(memoryview(value)[:crc_at]) != int.from_bytes(value[crc_at:], "big"):
        raise damaged(position, "it is damaged: its CRC-32C is not that of its bytes")
    _, version, kind, incarnation, term, number, part, parts, *marks, place = _HEADER.unpack_from(value)
    if version != RECORD_VERSION or kind not in _KINDS:
        raise damaged(position, f"it has version {version} and kind {kind}, and such records do not exist")
    snapshot = unpack_position(place)
    before, after = Mark(*marks[:2]), Mark(*marks[2:])
    return Record(
        Kind(kind), incarnation, term, number, part, parts, before, after, snapshot,
        value[_HEADER.size : crc_at],
    )  # fmt: skip


_KINDS: Final = frozenset(Kind)


def damaged(position: Position, why: str) -> DataLossError:
    """Return the error of a log whose record at ``position`` contradicts it."""
    return DataLossError(f"the record at position {position} of the log cannot be used: {why}", position=position)
