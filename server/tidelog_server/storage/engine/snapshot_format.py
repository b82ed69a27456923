"""Snapshots as records: the rows of a view, in parts, and the last part, which says of what they are a copy.

The payloads of all parts but the last one are operations, as those of a group; an operation may continue in the next
part. Values of columns are as in a view. The last part has (see docs/reference/format.md)::

    version 1 | position of the first part 16 | bytes of the other payloads 8 | number of marks 4
    | for each mark: position 16, bytes of the log before it 8 | place, as its row in a view
"""

import struct
from collections.abc import Generator, Iterable, Sequence
from typing import Final, NamedTuple

from tidelog_server.core.errors import DataLossError
from tidelog_server.recordlog.records import MAX_PAYLOAD_BYTES, Position, damaged
from tidelog_server.storage.engine.operations import OPERATION_HEAD_BYTES, put_operation
from tidelog_server.storage.engine.place import Place, pack_place, unpack_place
from tidelog_server.storage.engine.snapshot_plan import MAX_MARKS, LogMark
from tidelog_server.storage.format.seals import ROW_VERSION, check_version

_HEAD: Final = struct.Struct(">B16sQI")
_MARK: Final = struct.Struct(">16sQ")
assert _HEAD.size + MAX_MARKS * _MARK.size < MAX_PAYLOAD_BYTES - (1 << 10)


class SnapshotEnd(NamedTuple):
    """The last part of a snapshot.

    Attributes:
        first: Position of the first part.
        size_bytes: Bytes of the payloads of the parts before this one.
        marks: Marks of the log, at growing positions; at least one.
        place: As of which the rows are; replay continues there, before the first part.
    """

    first: Position
    size_bytes: int
    marks: Sequence[LogMark]
    place: Place


def pack_end(end: SnapshotEnd) -> bytes:
    """Return the payload of the last part."""
    marks = [_MARK.pack(mark.position.to_bytes(16, "big"), mark.log_bytes) for mark in end.marks]
    head = _HEAD.pack(ROW_VERSION, end.first.to_bytes(16, "big"), end.size_bytes, len(marks))
    return b"".join((head, *marks, pack_place(end.place)))


def unpack_end(position: Position, payload: bytes) -> SnapshotEnd:
    """Return what ``pack_end`` packed into the record at ``position``. Raises DataLossError."""
    try:
        version, first, size_bytes, count = _HEAD.unpack_from(payload)
        check_version("the end of a snapshot", version, ROW_VERSION)
        behind = _HEAD.size + count * _MARK.size
        marks = [
            LogMark(int.from_bytes(place, "big"), log_bytes)
            for place, log_bytes in _MARK.iter_unpack(payload[_HEAD.size : behind])
        ]
        if len(marks) != count or not marks:
            raise damaged(position, f"it is the end of a snapshot with {len(marks)} marks of {count}")
        place = unpack_place(payload[behind:])
    except struct.error as error:
        raise damaged(position, "it is no end of a snapshot") from error
    return SnapshotEnd(int.from_bytes(first, "big"), size_bytes, marks, place)


def parts_of(rows: Iterable[tuple[int, bytes, bytes]]) -> Generator[bytes]:
    """Yield the payloads of the parts of a snapshot, without the last part; of a snapshot without rows, one.

    Args:
        rows: Number of the family, key and value of each row.
    """
    pieces: list[bytes] = []
    size_bytes = 0
    for family, key, value in rows:
        pieces += put_operation(family, key, value)
        size_bytes += OPERATION_HEAD_BYTES + len(key) + len(value)
        if MAX_PAYLOAD_BYTES <= size_bytes:
            whole = b"".join(pieces)
            begin = 0
            while MAX_PAYLOAD_BYTES <= size_bytes - begin:
                yield whole[begin : begin + MAX_PAYLOAD_BYTES]
                begin += MAX_PAYLOAD_BYTES
            pieces, size_bytes = [whole[begin:]], size_bytes - begin
    if size_bytes or not pieces:
        yield b"".join(pieces)


class PartsInOrder:
    """Puts the parts of one snapshot together, as they are read. Pure.

    Attributes:
        end: The last part, once it was taken.
    """

    def __init__(self, first: Position) -> None:
        """``first``: position of the first part."""
        self.end: SnapshotEnd | None = None
        self._first = first
        self._count = 0
        self._size_bytes = 0

    def take(self, position: Position, part: int, payload: bytes, *, is_last: bool) -> bytes | None:
        """Take the next part; return its operations, or None for the last one.

        Raises:
            DataLossError: It is another part than the next one, or the parts are not those of its end.
        """
        if self.end is not None or part != self._count:
            raise damaged(position, f"it is part {part} of a snapshot, expected part {self._count}")
        self._count += 1
        if not is_last:
            self._size_bytes += len(payload)
            return payload
        end = unpack_end(position, payload)
        if (end.first, end.size_bytes) != (self._first, self._size_bytes):
            raise damaged(
                position,
                f"it ends a snapshot of {end.size_bytes} bytes from position {end.first}, and {self._size_bytes} bytes "
                f"from position {self._first} are there",
            )
        self.end = end
        return None


def unfinished(first: Position) -> DataLossError:
    """Return the error of a snapshot that a record names and that has no end."""
    return DataLossError(f"the snapshot at position {first} of the log has no end", position=first)
