"""Up to where a view has its log, a row of the view and part of each snapshot; and where the log was made, a row."""

import struct
from typing import Final, NamedTuple

from tidelog_server.core.entries import HASH_BYTES
from tidelog_server.core.errors import DataLossError
from tidelog_server.recordlog.records import (
    INCARNATION_BYTES,
    ORIGIN_BYTES,
    POSITION_BYTES,
    Mark,
    Position,
    pack_position,
    unpack_position,
)
from tidelog_server.recordlog.rules import START, ReaderState
from tidelog_server.storage.format.keys import ORIGIN_KEY, VIEW_KEY
from tidelog_server.storage.format.seals import ROW_VERSION, check_version, sealed, unsealed

# version, incarnation of the log, position behind what was applied, and then the state of a reader there: term, number,
# sequence and chain hash, snapshot. Then the bytes of the log.
_PLACE: Final = struct.Struct(f">B{INCARNATION_BYTES}s{POSITION_BYTES}sQQQ{HASH_BYTES}s{POSITION_BYTES}sQ")
# version, origin
_ORIGIN: Final = struct.Struct(f">B{ORIGIN_BYTES}s")


class Place(NamedTuple):
    """A place in a log, between groups.

    Attributes:
        next: Position of the first record behind it.
        state: State of a reader there.
        log_bytes: Bytes of the records before it that exist, trimmed or not.
    """

    next: Position
    state: ReaderState = START
    log_bytes: int = 0


def pack_place(place: Place) -> bytes:
    """Return the value of the row of a place."""
    behind, (incarnation, term, number, mark, snapshot), log_bytes = place
    body = _PLACE.pack(
        ROW_VERSION, incarnation, pack_position(behind), term, number, *mark, pack_position(snapshot), log_bytes
    )
    return sealed(VIEW_KEY, body)


def unpack_place(value: bytes) -> Place:
    """Return what ``pack_place`` packed. Raises DataLossError."""
    body = unsealed(VIEW_KEY, value)
    if body is None or len(body) != _PLACE.size:
        raise DataLossError("the row that says up to where the view has the log is damaged")
    version, incarnation, behind, term, number, sequence, chain_hash, named, log_bytes = _PLACE.unpack(body)
    check_version("view", version, ROW_VERSION)
    state = ReaderState(incarnation, term, number, Mark(sequence, chain_hash), unpack_position(named))
    return Place(int.from_bytes(behind, "big"), state, log_bytes)


def pack_origin(origin: bytes) -> bytes:
    """Return the value of the row of the origin of a log."""
    return sealed(ORIGIN_KEY, _ORIGIN.pack(ROW_VERSION, origin))


def unpack_origin(value: bytes) -> bytes:
    """Return what ``pack_origin`` packed. Raises DataLossError."""
    body = unsealed(ORIGIN_KEY, value)
    if body is None or len(body) != _ORIGIN.size:
        raise DataLossError("the row that says where the log was made is damaged")
    version, origin = _ORIGIN.unpack(body)
    check_version("origin", version, ROW_VERSION)
    return bytes(origin)
