"""Keys of the log store's own rows. Those of features are in their tables, see ``rows``.

Keys sort bytewise, so integers are big-endian. The schema is on disk since format 1 (see docs/reference/format.md):

========== ====================================== =================================================
family     key                                    value
========== ====================================== =================================================
log        vchannel_id u32, base_tick u64         header of an entry, and small columns
columns    vchannel_id u32, base_tick u64         columns of the same entry, unless they are small
staged     vchannel_id u32, txn id u64, number    columns of a batch of a staged transaction
           u32
index      vchannel_id u32, ``c``, first_tick u64 a closed chunk
index      vchannel_id u32, ``t``                 the tail of a vchannel
index      vchannel_id u32, ``f``                 the fencing token of a vchannel
index      vchannel_id u32, ``x``, txn id u64     marks staged batches of a transaction there
index      ``s``                                  the store as a whole
index      ``i``                                  an import that has not ended; only in views
index      ``o``                                  origin of the log; only in views
index      ``p``                                  place of a view in its log; only in views
========== ====================================== =================================================
"""

import struct
from typing import Final

from tidelog_server.core.ticks import MAX_TICK, Tick
from tidelog_server.core.transactions import TxnPlace

MAX_VCHANNEL_ID: Final = (1 << 32) - 1

_LOG: Final = struct.Struct(">IQ")
_CHUNK: Final = struct.Struct(">IcQ")
_TAGGED: Final = struct.Struct(">Ic")
_STAGED: Final = struct.Struct(">IQI")
_CHUNK_TAG: Final = b"c"
_TAIL_TAG: Final = b"t"
_FENCE_TAG: Final = b"f"
_TXN_TAG: Final = b"x"

LOG_KEY_BYTES: Final = _LOG.size
STORE_KEY: Final = b"s"
IMPORT_KEY: Final = b"i"
ORIGIN_KEY: Final = b"o"
VIEW_KEY: Final = b"p"
VIEW_KEYS: Final = frozenset({IMPORT_KEY, ORIGIN_KEY, VIEW_KEY})
"""Keys of the index family that only views have."""
OWN_INDEX_KEY_BYTES: Final = frozenset({_CHUNK.size, _TAGGED.size, len(STORE_KEY), *map(len, VIEW_KEYS)})
"""Lengths of the keys here that are in the index family; those of features have other lengths."""
assert len(OWN_INDEX_KEY_BYTES) == 3

log_key = _LOG.pack
"""Return the key of the entry of vchannel ``vchannel_id`` at ``base_tick``, in ``log`` and in ``columns``.

Bound to the packer itself, because it is called for each entry written and read.
"""


def parse_log_key(key: bytes) -> tuple[int, Tick]:
    """Return the vchannel id and the base tick of a key of ``log`` or ``columns``."""
    vchannel_id, base_tick = _LOG.unpack(key)
    return vchannel_id, Tick(base_tick)


def log_end_key(vchannel_id: int) -> bytes:
    """Return a key above every entry of the vchannel, and not above any entry of a later one."""
    return _end_of(vchannel_id, LOG_KEY_BYTES)


staged_key = _STAGED.pack
"""Return the key of batch ``sequence`` that transaction ``txn_id`` has staged on vchannel ``vchannel_id``.

Bound to the packer itself, like ``log_key``.
"""


def staged_range(vchannel_id: int, txn_id: int) -> tuple[bytes, bytes]:
    """Return the half-open range of all staged batches of a transaction on a vchannel."""
    return staged_key(vchannel_id, txn_id, 0), staged_key(vchannel_id, txn_id + 1, 0)


def staged_vchannel_range(vchannel_id: int) -> tuple[bytes, bytes]:
    """Return the half-open range of all staged batches on a vchannel."""
    return vchannel_id.to_bytes(4, "big"), _end_of(vchannel_id, _STAGED.size)


def chunk_key(vchannel_id: int, first_tick: int) -> bytes:
    """Return the key of the closed chunk that begins at ``first_tick``."""
    return _CHUNK.pack(vchannel_id, _CHUNK_TAG, first_tick)


def parse_chunk_key(key: bytes) -> tuple[int, Tick] | None:
    """Return the vchannel id and the first tick of a chunk's key, or None if ``key`` is of another kind."""
    place = _parse_numbered(key, _CHUNK_TAG)
    return place and (place[0], Tick(place[1]))


def txn_key(vchannel_id: int, txn_id: int) -> bytes:
    """Return the key of the row that records that a transaction has staged batches on a vchannel."""
    return _CHUNK.pack(vchannel_id, _TXN_TAG, txn_id)


def parse_txn_key(key: bytes) -> TxnPlace | None:
    """Return vchannel id and txn id of such a row's key; None if ``key`` is of another kind."""
    return _parse_numbered(key, _TXN_TAG)


def txn_range(vchannel_id: int) -> tuple[bytes, bytes]:
    """Return the half-open range of such rows of a vchannel."""
    return txn_key(vchannel_id, 0), txn_key(vchannel_id, MAX_TICK)


def tail_key(vchannel_id: int) -> bytes:
    """Return the key of the vchannel's tail."""
    return _TAGGED.pack(vchannel_id, _TAIL_TAG)


def parse_tail_key(key: bytes) -> int | None:
    """Return the vchannel id of a tail's key, or None if ``key`` is of another kind."""
    return _parse_tagged(key, _TAIL_TAG)


def fence_key(vchannel_id: int) -> bytes:
    """Return the key of the vchannel's fencing token."""
    return _TAGGED.pack(vchannel_id, _FENCE_TAG)


def parse_fence_key(key: bytes) -> int | None:
    """Return the vchannel id of a fencing token's key, or None if ``key`` is of another kind."""
    return _parse_tagged(key, _FENCE_TAG)


def index_range(vchannel_id: int) -> tuple[bytes, bytes]:
    """Return the half-open range of all index keys of the vchannel."""
    return vchannel_id.to_bytes(4, "big"), _end_of(vchannel_id, _CHUNK.size)


def _parse_tagged(key: bytes, expected_tag: bytes) -> int | None:
    if len(key) != _TAGGED.size:
        return None
    vchannel_id, tag = _TAGGED.unpack(key)
    return int(vchannel_id) if tag == expected_tag else None


def _parse_numbered(key: bytes, expected_tag: bytes) -> tuple[int, int] | None:
    if len(key) != _CHUNK.size:
        return None
    vchannel_id, tag, number = _CHUNK.unpack(key)
    return (vchannel_id, number) if tag == expected_tag else None


def _end_of(vchannel_id: int, key_bytes: int) -> bytes:
    if vchannel_id == MAX_VCHANNEL_ID:
        return b"\xff" * (key_bytes + 1)
    return (vchannel_id + 1).to_bytes(4, "big")
