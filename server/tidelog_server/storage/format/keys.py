"""Keys of the log store: the only place where they are built or parsed.

Keys sort bytewise, so integers are big-endian. The schema is on disk since format 1 (see docs/reference/format.md):

========== ====================================== =================================================
family     key                                    value
========== ====================================== =================================================
log        vchannel_id u32, base_tick u64         header of an entry, and small columns
columns    vchannel_id u32, base_tick u64         columns of the same entry, unless they are small
staged     vchannel_id u32, txn id u64, number    columns of a batch of a staged transaction
           u32
producers  vchannel_id u32, producer id in UTF-8  the window of a producer
groups     ``<group>/<vchannel>/current_id``      the position of a consumer group
index      vchannel_id u32, ``c``, first_tick u64 a closed chunk
index      vchannel_id u32, ``t``                 the tail of a vchannel
index      vchannel_id u32, ``f``                 the fencing token of a vchannel
index      vchannel_id u32, ``x``, txn id u64     marks staged batches of a transaction there
index      ``o``, txn id u64                      the outcome of a staged transaction
index      ``a``, hash of an application's name   the last commit of an application
index      ``g``, a letter, a tenant, 16 bytes    the floor of a tenant in a table
index      ``s``                                  the store as a whole
========== ====================================== =================================================
"""

import struct
from hashlib import blake2b
from typing import Final

from tidelog_server.core.callers import NO_TENANT, TENANT_BYTES
from tidelog_server.core.entries import HASH_BYTES
from tidelog_server.core.groups import GroupKey
from tidelog_server.core.limits import MAX_PRODUCER_ID_BYTES
from tidelog_server.core.producers import ProducerKey
from tidelog_server.core.shares import FloorKey, FloorTable
from tidelog_server.core.ticks import MAX_TICK, Tick
from tidelog_server.core.transactions import AppKey, TxnPlace

MAX_VCHANNEL_ID: Final = (1 << 32) - 1

_LOG: Final = struct.Struct(">IQ")
_CHUNK: Final = struct.Struct(">IcQ")
_TAGGED: Final = struct.Struct(">Ic")
_STAGED: Final = struct.Struct(">IQI")
_OUTCOME: Final = struct.Struct(">cQ")
_APP: Final = struct.Struct(f">c{HASH_BYTES}s")
_FLOOR: Final = struct.Struct(f">cc{TENANT_BYTES}s")
_CHUNK_TAG: Final = b"c"
_TAIL_TAG: Final = b"t"
_FENCE_TAG: Final = b"f"
_TXN_TAG: Final = b"x"
_OUTCOME_TAG: Final = b"o"
_APP_TAG: Final = b"a"
_FLOOR_TAG: Final = b"g"
_FLOOR_TABLES: Final = {table.value.encode(): table for table in FloorTable}
_NO_TENANT: Final = bytes(TENANT_BYTES)
# Suffix of the key of a position in RocksMQ, of Milvus.
_POSITION_SUFFIX: Final = "/current_id"

LOG_KEY_BYTES: Final = _LOG.size
STORE_KEY: Final = b"s"
# Invariant: length and tag distinguish the kinds of keys of the index family.
assert len({_CHUNK.size, _TAGGED.size, _OUTCOME.size, _APP.size, _FLOOR.size, len(STORE_KEY)}) == 6

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


def producer_key(vchannel_id: int, producer_id: str) -> bytes:
    """Return the key of a producer's window."""
    return vchannel_id.to_bytes(4, "big") + producer_id.encode()


def parse_producer_key(key: bytes) -> ProducerKey:
    """Return the vchannel id and the producer id of a window's key. Raises ValueError if it is invalid."""
    return int.from_bytes(key[:4], "big"), key[4:].decode()


def producer_range(vchannel_id: int) -> tuple[bytes, bytes]:
    """Return the half-open range of all windows of the vchannel."""
    return vchannel_id.to_bytes(4, "big"), _end_of(vchannel_id, 4 + MAX_PRODUCER_ID_BYTES)


def group_key(key: GroupKey) -> bytes:
    """Return the key of a group's position, such as ``billing/orders/0/current_id``."""
    return f"{key.group}/{key.vchannel}{_POSITION_SUFFIX}".encode()


def parse_group_key(key: bytes) -> GroupKey:
    """Return the group and vchannel of a position's key. Raises ValueError if it is invalid."""
    group, slash, rest = key.decode().partition("/")
    if not (slash and rest.endswith(_POSITION_SUFFIX)):
        raise ValueError(f"{key[:64]!r} is not the key of a position")
    return GroupKey(group, rest.removesuffix(_POSITION_SUFFIX))


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


def outcome_key(txn_id: int) -> bytes:
    """Return the key of a transaction's outcome."""
    return _OUTCOME.pack(_OUTCOME_TAG, txn_id)


def parse_outcome_key(key: bytes) -> int | None:
    """Return the txn id of an outcome's key, or None if ``key`` is of another kind."""
    if len(key) != _OUTCOME.size:
        return None
    tag, txn_id = _OUTCOME.unpack(key)
    return int(txn_id) if tag == _OUTCOME_TAG else None


def app_name(app: AppKey) -> bytes:
    """Return an application's name in a row: its id, prefixed with its owner and a line feed if it has an owner.

    Ids have no control characters, so the id follows the last line feed, and different applications have different
    names.
    """
    assert "\n" not in app.app_id
    return (f"{app.owner}\n{app.app_id}" if app.owner else app.app_id).encode()


def parse_app_name(name: bytes) -> AppKey:
    """Return the application with a name that ``app_name`` made."""
    owner, _, app_id = name.decode().rpartition("\n")
    return AppKey(owner, app_id)


def app_key(app: AppKey) -> bytes:
    """Return the key of the last commit of an application."""
    return _APP.pack(_APP_TAG, blake2b(app_name(app), digest_size=HASH_BYTES).digest())


def app_range() -> tuple[bytes, bytes]:
    """Return a half-open range that includes the keys of all applications."""
    return _APP_TAG, bytes((_APP_TAG[0] + 1,))


def is_app_key(key: bytes) -> bool:
    """Return whether ``key`` is the key of an application's last commit."""
    return len(key) == _APP.size and key[:1] == _APP_TAG


def floor_key(key: FloorKey) -> bytes:
    """Return the key of the floor of a tenant in a table."""
    table, tenant = key
    return _FLOOR.pack(_FLOOR_TAG, table.value.encode(), tenant or _NO_TENANT)


def floor_range() -> tuple[bytes, bytes]:
    """Return a half-open range that includes the keys of all floors."""
    return _FLOOR_TAG, bytes((_FLOOR_TAG[0] + 1,))


def parse_floor_key(key: bytes) -> FloorKey | None:
    """Return the table and the tenant of a floor's key, or None if ``key`` is of another kind."""
    if len(key) != _FLOOR.size:
        return None
    tag, letter, tenant = _FLOOR.unpack(key)
    table = _FLOOR_TABLES.get(letter)
    if tag != _FLOOR_TAG or table is None:
        return None
    return FloorKey(table, NO_TENANT if tenant == _NO_TENANT else tenant)


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
