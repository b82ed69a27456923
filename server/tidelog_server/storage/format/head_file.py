"""The durable head: the last synced state of the store, in a file outside of RocksDB.

RocksDB treats a damaged WAL like an ordinary crash and opens without acknowledged entries. The head distinguishes the
two. Two slots of 4 KiB are written alternately, so that a torn write damages at most one; the slot with the higher
generation is valid. The layout is on disk since format 1 (see docs/reference/format.md).
"""

import os
import struct
from pathlib import Path
from typing import Final, NamedTuple, Self

from crc32c import crc32c

from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.format.durable_files import sync_folder

SLOT_BYTES: Final = 4_096
_MAGIC: Final = b"TIDEHEAD"
_SLOT_VERSION: Final = 1
# magic, version, then the fields of Head in order.
_SLOT: Final = struct.Struct(">8sIQ16sQQ16sQIQQ?")
_CRC_BYTES: Final = 4
assert _SLOT.size + _CRC_BYTES <= 512  # A slot's content fits into one sector, the unit that disks write atomically.


class Head(NamedTuple):
    """The synced state of a store. Everything at or below it must be there at the next start.

    Attributes:
        generation: Number of writes of this file; the greatest one is valid.
        incarnation: 16 random bytes made with the data folder.
        open_count: Number of times the folder was opened for writing, including this one.
        sequence, chain_hash: Sequence and chain hash of the last synced entry of the store.
        last_tick, vchannel_id, base_tick: Position of that entry; 0 before the first.
        engine_sequence: RocksDB's count of changes, which also covers changes without entries, such as metadata.
        is_clean: True if the store was closed cleanly.
    """

    generation: int
    incarnation: bytes
    open_count: int
    sequence: int
    chain_hash: bytes
    last_tick: int
    vchannel_id: int
    base_tick: int
    engine_sequence: int
    is_clean: bool


def pack_slot(head: Head) -> bytes:
    """Return the 4 KiB of a slot."""
    body = _SLOT.pack(_MAGIC, _SLOT_VERSION, *head)
    return (body + crc32c(body).to_bytes(_CRC_BYTES, "big")).ljust(SLOT_BYTES, b"\0")


def unpack_slot(slot: bytes) -> Head | None:
    """Return the content of a slot; None if it is damaged, truncated or was never written.

    Raises:
        DataLossError: The slot is sound but its version is unknown.
    """
    body, crc = slot[: _SLOT.size], slot[_SLOT.size : _SLOT.size + _CRC_BYTES]
    if len(slot) != SLOT_BYTES or crc32c(body) != int.from_bytes(crc, "big"):
        return None
    magic, version, *fields = _SLOT.unpack(body)
    if magic != _MAGIC or any(slot[_SLOT.size + _CRC_BYTES :]):
        return None
    if version != _SLOT_VERSION:
        raise DataLossError(
            f"HEAD has version {version}, this server reads version {_SLOT_VERSION}: use the server that wrote it",
            version=version,
        )
    return Head(*fields)


def read_head(path: Path) -> Head | None:
    """Return the newest sound slot; None if the file is absent or both slots are damaged.

    Raises:
        DataLossError: The version of a slot is unknown.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    slots = [unpack_slot(content[start : start + SLOT_BYTES]) for start in (0, SLOT_BYTES)]
    return max((slot for slot in slots if slot), key=lambda head: head.generation, default=None)


class HeadFile:
    """HEAD, open for writing. One thread at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the file, or create it with two empty slots.

        Raises:
            OSError: The system refused.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if os.fstat(descriptor).st_size != 2 * SLOT_BYTES:
            # Only while a folder is created, or after the operator accepted the loss of the head.
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, bytes(2 * SLOT_BYTES), 0)
            os.fsync(descriptor)
            sync_folder(path.parent)
        return cls(descriptor)

    def write(self, head: Head) -> None:
        """Write ``head`` durably into the next slot. Releases the GIL during disk I/O.

        Raises:
            OSError: The slot may be torn; the other one is still valid.
        """
        assert self._descriptor >= 0
        slot = pack_slot(head)
        written = os.pwrite(self._descriptor, slot, head.generation % 2 * SLOT_BYTES)
        if written != len(slot):
            raise OSError(f"only {written} of {len(slot)} bytes of HEAD were written")
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
