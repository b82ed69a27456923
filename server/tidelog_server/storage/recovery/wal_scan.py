"""Finds the sound part of RocksDB's write-ahead log by reading its files without RocksDB.

Recovery must stop at the first damaged record. The bytes after it may be all that is left of some data, so the start-up
gate copies them to ``quarantine/`` and cuts them off.

Source: RocksDB's log format: blocks of 32 KiB contain records of ``masked crc32c u32, length u16, type u8, payload``,
little-endian; types 1 to 4 are whole, first, middle and last fragments; a zeroed header is padding. The other types
belong to options that are off here: recycled files, compression, user-defined timestamps.
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.format.data_folder import wal_files

_BLOCK_BYTES: Final = 32 * 1024
_RECORD: Final = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_MASK_DELTA: Final = 0xA282EAD8
_ALL_BITS: Final = 0xFFFFFFFF


class TornWal(NamedTuple):
    """Bytes of a WAL file from ``offset`` to its end that recovery must not see."""

    name: str
    offset: int


def torn_wals(folder: Path) -> list[TornWal]:
    """Return the parts of the WAL files in ``folder`` that recovery must not see, oldest first; empty if all is sound.

    Everything in the files after the first damaged one counts as torn: recovery does not continue after damage.

    Raises:
        DataLossError: A sound record has a type that this server does not write. (The types of recycled files, whose
            CRC covers other bytes, are not recognized and count as torn.)
        OSError: A file could not be read.
    """
    torn: list[TornWal] = []
    for path in wal_files(folder):
        if torn:
            # An empty file has nothing to leave out: RocksDB makes such files, and so does an interrupted cut.
            torn += [TornWal(path.name, 0)] if path.stat().st_size else []
            continue
        try:
            offset = sound_bytes(path.read_bytes())
        except _UnknownTypeError as error:
            raise DataLossError(
                f"{path.name} has a record of the unknown type {error.kind} at byte {error.position}: start "
                "the server that wrote it, and stop it cleanly before another server opens the folder",
                file=path.name, type=error.kind, position=error.position,
            ) from None  # fmt: skip
        if offset is not None:
            torn.append(TornWal(path.name, offset))
    return torn


class _UnknownTypeError(Exception):
    """A record is sound, so nothing is torn, but its type is unknown."""

    def __init__(self, kind: int, position: int) -> None:
        super().__init__(kind, position)
        self.kind = kind
        self.position = position


def sound_bytes(content: bytes) -> int | None:
    """Return the end of the last whole record if bytes other than padding follow, else None."""
    end = end_of_records(content)
    return None if content.endswith(bytes(len(content) - end)) else end


def end_of_records(content: bytes) -> int:
    """Return the end of the last whole record."""
    position = whole_end = 0
    is_inside = False
    while (fragment := _fragment_at(content, position)) is not None:
        kind, end = fragment
        # A fragment that does not continue the previous one ends the sound part.
        if is_inside != (kind in (_MIDDLE, _LAST)):
            break
        is_inside = kind in (_FIRST, _MIDDLE)
        if not is_inside:
            whole_end = end
        position = end
    return whole_end


def _fragment_at(content: bytes, position: int) -> tuple[int, int] | None:
    """Return the type and the end of the fragment at ``position``; None if there is no sound one."""
    left_in_block = _BLOCK_BYTES - position % _BLOCK_BYTES
    if left_in_block < _RECORD.size:
        position += left_in_block
    if len(content) < position + _RECORD.size:
        return None
    masked_crc, length, kind = _RECORD.unpack_from(content, position)
    end = position + _RECORD.size + length
    payload = memoryview(content)[position + _RECORD.size - 1 : end]
    if len(content) < end or _masked(crc32c(payload)) != masked_crc:
        return None
    if kind not in (_FULL, _FIRST, _MIDDLE, _LAST):
        raise _UnknownTypeError(kind, position)
    return kind, end


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ALL_BITS
