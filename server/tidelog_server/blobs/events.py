"""The events of the blobs of a node as messages of its log: encoding, decoding, replay and snapshots. Pure.

The type of a message is its BlobEvent; all numbers are little-endian. See docs/reference/format.md.
"""

import struct
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog_server.blobs.state import Blob, BlobState
from tidelog_server.core.callers import NO_TENANT, TENANT_BYTES, Tenant
from tidelog_server.core.errors import DataLossError
from tidelog_server.fold.loading import Fold
from tidelog_server.fold.pages import frozen


class BlobEvent(IntEnum):
    """Kind of an event. On disk; a number is never reused."""

    PUT = 1
    COUNTED = 2
    COLLECTED = 3
    RELOCATED = 4
    STORED_BY = 5
    COUNTED_BY = 6
    SNAPSHOT = 19


class Chunk(NamedTuple):
    """A chunk of a blob.

    Attributes:
        key: Key of the blob.
        number: Number of the chunk, from 0.
        size_bytes: Size of the whole blob.
        data: The bytes of the chunk.
    """

    key: bytes
    number: int
    size_bytes: int
    data: bytes


_KEY: Final = struct.Struct("<B")
# Number of the chunk, size of the blob.
_CHUNK: Final = struct.Struct("<IQ")
_DELTA: Final = struct.Struct("<q")
# The second version has the tenants of each blob.
_VERSIONS: Final = (1, 2)
# Version, number of blobs.
_HEADER: Final = struct.Struct("<BI")
# Size, references, tick of the last event, number of chunks.
_BLOB: Final = struct.Struct("<QqQI")
_PLACE_BYTES: Final = 8
# The tenant that pays, zeros for none, and the number of tenants; for each, the tenant and its references.
_TENANTS: Final = struct.Struct(f"<{TENANT_BYTES}sH")
_COUNT: Final = struct.Struct(f"<{TENANT_BYTES}sq")
_NOBODY: Final = bytes(TENANT_BYTES)


def encode_chunk(chunk: Chunk) -> bytes:
    """Return a chunk, for PUT and RELOCATED."""
    return b"".join((_encode_key(chunk.key), _CHUNK.pack(chunk.number, chunk.size_bytes), chunk.data))


def decode_chunk(payload: bytes) -> Chunk:
    """Parse what ``encode_chunk`` returned. Raises struct.error, ValueError."""
    key, at = _decode_key(payload, 0)
    number, size_bytes = _CHUNK.unpack_from(payload, at)
    return Chunk(key, number, size_bytes, payload[at + _CHUNK.size :])


def encode_counted(key: bytes, delta: int) -> bytes:
    """Return a change of references."""
    return _encode_key(key) + _DELTA.pack(delta)


def encode_stored_by(key: bytes, tenant: Tenant) -> bytes:
    """Return that a tenant has stored a blob."""
    assert len(tenant) == TENANT_BYTES
    return _encode_key(key) + tenant


def encode_counted_by(key: bytes, tenant: Tenant, delta: int) -> bytes:
    """Return a change of the references of a tenant."""
    return encode_stored_by(key, tenant) + _DELTA.pack(delta)


def encode_collected(keys: Iterable[bytes]) -> bytes:
    """Return the keys of collected blobs."""
    return b"".join(map(_encode_key, keys))


def replay_blobs(state: BlobState, events: Iterable[tuple[int, int, bytes]]) -> None:
    """Apply events, each given by its tick, kind and payload.

    Raises:
        DataLossError: An event is unreadable, or contradicts those before it.
    """
    for tick, kind, payload in events:
        try:
            _APPLY[BlobEvent(kind)](state, tick, payload)
        except (struct.error, ValueError, KeyError, IndexError) as error:
            raise DataLossError(
                f"the event of the blobs at tick {tick}, of kind {kind}, cannot be replayed ({error!r}): restore the "
                "server from a backup",
                tick=tick,
            ) from error


def _replay_put(state: BlobState, tick: int, payload: bytes) -> None:
    chunk = decode_chunk(payload)
    state.put(chunk.key, chunk.size_bytes, chunk.number, tick)


def _replay_counted(state: BlobState, tick: int, payload: bytes) -> None:
    key, at = _decode_key(payload, 0)
    state.counted(key, _DELTA.unpack_from(payload, at)[0], tick)


def _replay_stored_by(state: BlobState, tick: int, payload: bytes) -> None:
    key, tenant, rest = _decode_tenant(payload)
    if rest:
        raise ValueError(f"{len(rest)} bytes too many")
    state.stored_by(key, tenant, tick)


def _replay_counted_by(state: BlobState, tick: int, payload: bytes) -> None:
    key, tenant, rest = _decode_tenant(payload)
    state.counted_by(key, tenant, _DELTA.unpack(rest)[0], tick)


def _decode_tenant(payload: bytes) -> tuple[bytes, Tenant, bytes]:
    """Return the key and the tenant at the beginning of an event, and the rest."""
    key, at = _decode_key(payload, 0)
    tenant = payload[at : at + TENANT_BYTES]
    if len(tenant) != TENANT_BYTES:
        raise ValueError(f"a tenant has {len(tenant)} bytes, expected {TENANT_BYTES}")
    return key, tenant, payload[at + TENANT_BYTES :]


def _replay_collected(state: BlobState, payload: bytes) -> None:
    keys, at = list[bytes](), 0
    while at < len(payload):
        key, at = _decode_key(payload, at)
        keys.append(key)
    state.collected(keys)


def _replay_relocated(state: BlobState, tick: int, payload: bytes) -> None:
    chunk = decode_chunk(payload)
    state.relocated(chunk.key, chunk.number, tick)


_APPLY: Final[Mapping[BlobEvent, Callable[[BlobState, int, bytes], None]]] = {
    BlobEvent.PUT: _replay_put,
    BlobEvent.COUNTED: _replay_counted,
    BlobEvent.COLLECTED: lambda state, _, payload: _replay_collected(state, payload),
    BlobEvent.RELOCATED: _replay_relocated,
    BlobEvent.STORED_BY: _replay_stored_by,
    BlobEvent.COUNTED_BY: _replay_counted_by,
    BlobEvent.SNAPSHOT: lambda _, __, ___: None,
}
assert _APPLY.keys() == set(BlobEvent)


def encode_blobs(state: BlobState) -> bytes:
    """Return the state as bytes, for a snapshot."""
    # Without tenants as the first version, which older servers read.
    has_tenants = any(blob.counts for blob in state.blobs.values())
    parts = [_HEADER.pack(_VERSIONS[has_tenants], len(state.blobs))]
    for key, blob in state.blobs.items():
        parts.append(_encode_key(key))
        parts.append(_BLOB.pack(blob.size_bytes, blob.references, blob.touched, len(blob.places)))
        parts.append(struct.pack(f"<{len(blob.places)}Q", *blob.places))
        if has_tenants:
            parts.append(_TENANTS.pack(blob.payer or _NOBODY, len(blob.counts)))
            parts += [_COUNT.pack(tenant, count) for tenant, count in blob.counts.items()]
    return b"".join(parts)


def decode_blobs(encoded: bytes) -> BlobState:
    """Return the state that ``encode_blobs`` encoded. Raises DataLossError if the bytes are invalid."""
    state = BlobState()
    try:
        at = _decode(state, encoded)
        if encoded[0] == _VERSIONS[True] and not any(blob.counts for blob in state.blobs.values()):
            raise ValueError("it has the version with tenants, and none")
        if at != len(encoded):
            raise ValueError(f"{len(encoded) - at} bytes too many")
    except (struct.error, ValueError) as error:
        raise DataLossError(
            f"a snapshot of the blobs cannot be read ({error!r}): restore the server from a backup"
        ) from error
    state.rebuild()
    return state


def _decode(state: BlobState, encoded: bytes) -> int:
    version, count = _HEADER.unpack_from(encoded)
    if version not in _VERSIONS:
        raise ValueError(f"its version is {version}, expected one of {_VERSIONS}")
    at = _HEADER.size
    for _ in range(count):
        key, at = _decode_key(encoded, at)
        size_bytes, references, touched, chunks = _BLOB.unpack_from(encoded, at)
        at += _BLOB.size
        places = list(struct.unpack_from(f"<{chunks}Q", encoded, at))
        at += _PLACE_BYTES * chunks
        blob = state.blobs[key] = Blob(size_bytes, places, references, touched)
        if version == _VERSIONS[True]:
            at = _decode_tenants(blob, encoded, at)
    return at


def _decode_tenants(blob: Blob, encoded: bytes, at: int) -> int:
    payer, tenants = _TENANTS.unpack_from(encoded, at)
    at += _TENANTS.size
    blob.payer = NO_TENANT if payer == _NOBODY else payer
    for _ in range(tenants):
        tenant, count = _COUNT.unpack_from(encoded, at)
        blob.counts[tenant] = count
        at += _COUNT.size
    return at


def _encode_key(key: bytes) -> bytes:
    return _KEY.pack(len(key)) + key


def _decode_key(payload: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _KEY.unpack_from(payload, at)
    begin = at + _KEY.size
    key = payload[begin : begin + length]
    if len(key) != length:
        raise ValueError(f"a key has {len(key)} bytes, expected {length}")
    return key, begin + length


def _places(state: BlobState, wanted: Collection[Hashable] | None) -> Iterator[tuple[Hashable, int]]:
    for key, blob in state.blobs.items():
        for number, place in enumerate(blob.places if blob.is_complete else ()):
            if wanted is None or (key, number) in wanted:
                yield (key, number), place


BLOBS: Final = Fold(
    "the blobs", BlobState, lambda state: frozen(encode_blobs(state)), decode_blobs, replay_blobs, BlobEvent.SNAPSHOT,
    _places,
)  # fmt: skip
