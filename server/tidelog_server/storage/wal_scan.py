"""How far RocksDB's write-ahead log is sound, by reading its files without RocksDB.

Recovery stops at the first damaged record and then throws the files away. What lies beyond may be all that is left
of something, so the start-up gate copies it to ``quarantine/`` first.

Source: RocksDB's log format: blocks of 32 KiB hold records of ``masked crc32c u32, length u16, type u8, payload``,
little-endian; types 1 to 4 are whole, first, middle and last fragments; a zeroed header is padding.
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from crc32c import crc32c

_BLOCK_BYTES: Final = 32 * 1024
_RECORD: Final = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_MASK_DELTA: Final = 0xA282EAD8
_ALL_BITS: Final = 0xFFFFFFFF


class TornWal(NamedTuple):
    """Bytes of a WAL file from ``offset`` to its end that recovery will not keep."""

    name: str
    offset: int


def torn_wals(folder: Path) -> list[TornWal]:
    """Return what recovery will not keep of the WAL files in ``folder``, oldest first; empty if all is sound.

    Everything in the files after the first damaged one counts as torn: recovery does not go past a damage.
    """
    torn: list[TornWal] = []
    for path in wal_files(folder):
        if torn:
            torn.append(TornWal(path.name, 0))
        elif (offset := sound_bytes(path.read_bytes())) is not None:
            torn.append(TornWal(path.name, offset))
    return torn


def wal_files(folder: Path) -> list[Path]:
    """Return RocksDB's WAL files, oldest first."""
    return sorted(folder.glob("*.log"), key=lambda path: int(path.stem))


def sound_bytes(content: bytes) -> int | None:
    """Return where the last whole record ends if other bytes than padding follow, else None."""
    position = whole_end = 0
    is_inside = False
    while (fragment := _fragment_at(content, position)) is not None:
        kind, end = fragment
        # A fragment that does not continue what came before ends the sound part.
        if is_inside != (kind in (_MIDDLE, _LAST)):
            break
        is_inside = kind in (_FIRST, _MIDDLE)
        if not is_inside:
            whole_end = end
        position = end
    return whole_end if content[whole_end:].strip(b"\0") else None


def _fragment_at(content: bytes, position: int) -> tuple[int, int] | None:
    """Return the type and the end of the fragment at ``position``, or None if there is no sound one."""
    left_in_block = _BLOCK_BYTES - position % _BLOCK_BYTES
    if left_in_block < _RECORD.size:
        position += left_in_block
    if len(content) < position + _RECORD.size:
        return None
    masked_crc, length, kind = _RECORD.unpack_from(content, position)
    end = position + _RECORD.size + length
    payload = memoryview(content)[position + _RECORD.size - 1 : end]
    if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or len(content) < end or _masked(crc32c(payload)) != masked_crc:
        return None
    return kind, end


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ALL_BITS
