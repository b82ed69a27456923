"""Values of the log store's own rows: their bytes, see ``seals``. Those of features are in their tables, see ``rows``.

All integers are big-endian. The layouts are on disk since format 1 (see docs/reference/format.md).

Every ``unpack_...`` raises DataLossError if the row is damaged, misplaced, or of an unknown version.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import reduce
from hashlib import blake2b
from typing import Final, NamedTuple

from crc32c import crc32c

from tidelog_server.core.entries import HASH_BYTES, EntryHeader, EntryKind, NewEntry, TxnSpan
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.ticks import NO_TICK, Tick
from tidelog_server.core.transactions import TxnPlace
from tidelog_server.storage.format.keys import (
    LOG_KEY_BYTES,
    STORE_KEY,
    chunk_key,
    fence_key,
    log_key,
    parse_log_key,
    tail_key,
    txn_key,
)
from tidelog_server.storage.format.seals import CRC_BYTES, ROW_VERSION, check_version, sealed, unsealed

NO_HASH: Final = bytes(HASH_BYTES)

MAX_INLINE_BYTES: Final = 512
"""Columns of up to this many bytes are in the row of their header.

Why: one more row takes RocksDB longer than so few bytes, to write and to read. Readers of headers only read them too.
"""

# version, kind, flags, count, message_type, columns_crc32c, columns_bytes, stored_crc32c, previous_tick, sequence
_HEADER: Final = struct.Struct(">BBHIqIIIQQ")
# Flag: the columns follow after the CRC.
_INLINE: Final = 1
_KEY_TICK: Final = struct.Struct(">4xQ")
# The fields of TxnSpan in order; after the others in an entry of a transaction.
_SPAN: Final = struct.Struct(">QQQ")
# For an entry with staged columns: also the number of the staged batch.
_STAGED_SPAN: Final = struct.Struct(">QQQI")
# The broadcast id; after the others in an entry of a broadcast.
_BROADCAST: Final = struct.Struct(">Q")
# After the fields: chain hash and CRC.
_SEAL_BYTES: Final = HASH_BYTES + CRC_BYTES
_BYTES_BY_KIND: Final[dict[int, int]] = {
    EntryKind.MESSAGES: _HEADER.size + _SEAL_BYTES,
    EntryKind.TXN_MESSAGES: _HEADER.size + _SPAN.size + _SEAL_BYTES,
    EntryKind.BROADCAST_MESSAGE: _HEADER.size + _BROADCAST.size + _SEAL_BYTES,
    EntryKind.STAGED_MESSAGES: _HEADER.size + _STAGED_SPAN.size + _SEAL_BYTES,
}
assert list(_BYTES_BY_KIND.values()) == [64, 88, 72, 92]
assert _KEY_TICK.size == LOG_KEY_BYTES
# What ``Links`` needs of a header, by version and kind: flags, count, columns_bytes, previous_tick, sequence, chain
# hash, CRC.
_FORM_BYTES: Final = 2
_LINKS_BY_FORM: Final = {
    bytes((ROW_VERSION, kind)): struct.Struct(f">2xHI12xI4xQQ{size - _HEADER.size - _SEAL_BYTES}x{HASH_BYTES}sI")
    for kind, size in _BYTES_BY_KIND.items()
}
assert [row.size for row in _LINKS_BY_FORM.values()] == list(_BYTES_BY_KIND.values())

# version, then the fields of TailRow in order.
_TAIL: Final = struct.Struct(">B10Q16s5Q16sQ")
# version, then the fields of ChunkRow in order.
_CHUNK: Final = struct.Struct(">B11Q16s")
# version, fencing token.
_FENCE: Final = struct.Struct(">BQ")
# version, last tick of the transaction on the vchannel.
_TXN: Final = struct.Struct(">BQ")
# version, then the fields of StoreRow in order.
_STORE: Final = struct.Struct(">B16sQQ16sQ")


class TailRow(NamedTuple):
    """What the store knows about a vchannel beyond VchannelTail.

    A tuple, not a dataclass: one is made for each entry written.

    Attributes:
        trim_tick, last_tick, batches, messages, columns_bytes, trimmed_messages, trimmed_bytes: See VchannelTail.
        trimmed_batches: Number of entries that are entirely below ``trim_tick``.
        removed_batches: Number of entries in chunk rows that trims have removed; at most ``trimmed_batches``.
        last_base_tick, last_sequence, last_chain_hash: Of the last entry ever written; 0 before the first.
        open_first_tick, open_first_sequence, open_batches, open_messages, open_bytes, open_hash: The chunk that is
            not closed yet; all 0 if it is empty.
    """

    trim_tick: int = NO_TICK
    last_tick: int = NO_TICK
    batches: int = 0
    messages: int = 0
    columns_bytes: int = 0
    trimmed_batches: int = 0
    trimmed_messages: int = 0
    trimmed_bytes: int = 0
    last_base_tick: int = NO_TICK
    last_sequence: int = 0
    last_chain_hash: bytes = NO_HASH
    open_first_tick: int = NO_TICK
    open_first_sequence: int = 0
    open_batches: int = 0
    open_messages: int = 0
    open_bytes: int = 0
    open_hash: bytes = NO_HASH
    removed_batches: int = 0


class ChunkRow(NamedTuple):
    """A closed chunk; ``first_tick`` is in the key as well.

    Attributes:
        first_tick, last_tick: Ticks of its first and last message, both inclusive.
        last_base_tick: Base tick of its last entry.
        first_sequence, last_sequence: Sequences of its first and last entry.
        batches, messages, columns_bytes: Counts of the chunk.
        batches_before, messages_before, bytes_before: Cumulative counts of the vchannel before it.
        chunk_hash: Hash rolled over the chain hashes of its entries, see ``roll_hash``.
    """

    first_tick: int
    last_tick: int
    last_base_tick: int
    first_sequence: int
    last_sequence: int
    batches: int
    messages: int
    columns_bytes: int
    batches_before: int
    messages_before: int
    bytes_before: int
    chunk_hash: bytes


class Links(NamedTuple):
    """What links entries to those before them, and what they add to their vchannel's tail: one item for each entry.

    Attributes:
        base_ticks, last_ticks, sequences, chain_hashes, columns_bytes: See EntryHeader.
        previous_ticks: Last ticks of the entries before them.
    """

    base_ticks: Sequence[int]
    last_ticks: Sequence[int]
    previous_ticks: Sequence[int]
    sequences: Sequence[int]
    chain_hashes: Sequence[bytes]
    columns_bytes: Sequence[int]


class StoreRow(NamedTuple):
    """The store as a whole, as of its creation or the last drop of vchannels.

    Attributes:
        incarnation: 16 random bytes made with the data folder; equal to the one in HEAD.
        destroyed_batches: Number of entries of all vchannels ever dropped.
        sequence, chain_hash, last_tick: The store's head at that time.
    """

    incarnation: bytes
    destroyed_batches: int
    sequence: int
    chain_hash: bytes
    last_tick: int


def first_hash(incarnation: bytes) -> bytes:
    """Return the chain hash that precedes the first entry of a store."""
    return blake2b(incarnation, digest_size=HASH_BYTES).digest()


def roll_hash(before: bytes, chain_hash: bytes) -> bytes:
    """Return the chunk hash after one more entry; ``before`` is NO_HASH for the first of a chunk."""
    return blake2b(before + chain_hash, digest_size=HASH_BYTES).digest()


def rolled_hash(before: bytes, chain_hashes: Iterable[bytes]) -> bytes:
    """Return the chunk hash after several more entries."""
    return reduce(roll_hash, chain_hashes, before)


def pack_header(
    entry: NewEntry, previous_tick: int, sequence: int, previous_hash: bytes
) -> tuple[bytes, bytes, bytes, bytes | None]:
    """Return the entry's key, the value of its header row, its chain hash, and columns that need a row of their own."""
    key = log_key(entry.vchannel_id, entry.base_tick)
    kind, more, stored_crc32c = _kind_of(entry)
    columns = None if entry.staged is not None else entry.columns
    is_inline = columns is not None and len(columns) <= MAX_INLINE_BYTES
    body = _HEADER.pack(
        ROW_VERSION, kind, _INLINE if is_inline else 0, entry.count, entry.message_type, entry.columns_crc32c,
        entry.columns_bytes, stored_crc32c, previous_tick, sequence,
    ) + more  # fmt: skip
    row = key + body
    chain_hash = blake2b(previous_hash + row, digest_size=HASH_BYTES).digest()
    value = body + chain_hash + crc32c(row + chain_hash).to_bytes(CRC_BYTES, "big")
    return (key, value + entry.columns, chain_hash, None) if is_inline else (key, value, chain_hash, columns)


def _kind_of(entry: NewEntry) -> tuple[EntryKind, bytes, int]:
    """Return the kind of an entry, the fields specific to the kind, and the CRC of its columns as stored."""
    if entry.staged is not None:
        assert entry.txn is not None
        more = _STAGED_SPAN.pack(*entry.txn, entry.staged.sequence)
        return EntryKind.STAGED_MESSAGES, more, entry.staged.stored_crc32c
    stored_crc32c = crc32c(entry.columns)
    if entry.txn is not None:
        return EntryKind.TXN_MESSAGES, _SPAN.pack(*entry.txn), stored_crc32c
    if entry.broadcast_id:
        return EntryKind.BROADCAST_MESSAGE, _BROADCAST.pack(entry.broadcast_id), stored_crc32c
    return EntryKind.MESSAGES, b"", stored_crc32c


def unpack_header(key: bytes, value: bytes) -> EntryHeader:
    """Return the header in a row of the log family, with the columns in the same row, unchecked."""
    header_bytes = _BYTES_BY_KIND.get(value[1]) if len(value) > 1 else None
    if len(key) != LOG_KEY_BYTES or header_bytes is None or len(value) < header_bytes:
        raise _damaged_row("header", key)
    crc_at = header_bytes - CRC_BYTES
    if crc32c(key + value[:crc_at]) != int.from_bytes(value[crc_at:header_bytes], "big"):
        raise _damaged_row("header", key)
    vchannel_id, base_tick = parse_log_key(key)
    (
        version, kind, flags, count, message_type, columns_crc32c, columns_bytes, stored_crc32c,
        previous_tick, sequence,
    ) = _HEADER.unpack_from(value)  # fmt: skip
    check_version("header", version, ROW_VERSION)
    if flags & ~_INLINE:
        raise DataLossError(f"a header row has unknown flags {flags:#x}: use the server that wrote it", flags=flags)
    if len(value) != header_bytes + (columns_bytes if flags else 0):
        raise _damaged_row("header", key)
    txn, broadcast_id, staged_sequence = None, 0, 0
    if kind == EntryKind.TXN_MESSAGES:
        txn = TxnSpan._make(_SPAN.unpack_from(value, _HEADER.size))
    elif kind == EntryKind.BROADCAST_MESSAGE:
        (broadcast_id,) = _BROADCAST.unpack_from(value, _HEADER.size)
    elif kind == EntryKind.STAGED_MESSAGES:
        *span, staged_sequence = _STAGED_SPAN.unpack_from(value, _HEADER.size)
        txn = TxnSpan._make(span)
    return EntryHeader(
        vchannel_id, base_tick, count, message_type, columns_crc32c, Tick(previous_tick), sequence,
        value[crc_at - HASH_BYTES : crc_at], columns_bytes, stored_crc32c, txn, staged_sequence, broadcast_id,
        value[header_bytes:] if flags else None,
    )  # fmt: skip


def unpack_links(keys: Sequence[bytes], values: Sequence[bytes]) -> Links:
    """Return the links of entries, from their rows in the log family; at least one.

    Checks each row like ``unpack_header``, in a fifth of the time: a start checks a million rows. Therefore each step
    is one built-in call or comprehension for all rows of a form.
    """
    by_form: dict[bytes, tuple[list[bytes], list[bytes]]] = {}
    forms = [value[:_FORM_BYTES] for value in values]
    if len(set(forms)) == 1:
        by_form[forms[0]] = list(keys), list(values)
    else:
        for form, key, value in zip(forms, keys, values, strict=True):
            of_form = by_form.setdefault(form, ([], []))
            of_form[0].append(key)
            of_form[1].append(value)
    links = {form: _links_of_form(form, *rows) for form, rows in by_form.items()}
    if len(links) == 1:
        return links[forms[0]]
    entries = {form: zip(*of_form, strict=True) for form, of_form in links.items()}
    return Links(*zip(*(next(entries[form]) for form in forms), strict=True))


def _links_of_form(form: bytes, keys: Sequence[bytes], values: Sequence[bytes]) -> Links:
    """Return the links of rows that begin with the same version and kind."""
    row = _LINKS_BY_FORM.get(form)
    if row is not None and min(map(len, values)) >= row.size and set(map(len, keys)) == {LOG_KEY_BYTES}:
        flags, counts, sizes, previous, sequences, hashes, crcs = zip(*map(row.unpack_from, values), strict=True)
        row_bytes = [row.size + flag * size for flag, size in zip(flags, sizes, strict=True)]
        crc_at = row.size - CRC_BYTES
        if (
            max(flags) <= _INLINE
            and row_bytes == list(map(len, values))
            and [crc32c(key + value[:crc_at]) for key, value in zip(keys, values, strict=True)] == list(crcs)
        ):
            base_ticks = [tick for (tick,) in map(_KEY_TICK.unpack, keys)]
            last_ticks = [tick + count - 1 for tick, count in zip(base_ticks, counts, strict=True)]
            return Links(base_ticks, last_ticks, previous, sequences, hashes, sizes)
    # A row that unpack_header refuses with the reason.
    headers = [unpack_header(key, value) for key, value in zip(keys, values, strict=True)]
    raise AssertionError(f"rows of the form {form.hex()} are refused together but not alone: {headers[0]}")


def pack_tail(vchannel_id: int, tail: TailRow) -> bytes:
    """Return the value of a tail row."""
    return sealed(tail_key(vchannel_id), _TAIL.pack(ROW_VERSION, *tail))


def unpack_tail(vchannel_id: int, value: bytes) -> TailRow:
    """Return the tail in a row of the index family."""
    return TailRow._make(_opened("tail", tail_key(vchannel_id), value, _TAIL))


def pack_fence(vchannel_id: int, fencing_token: int) -> bytes:
    """Return the value of a fencing token's row."""
    return sealed(fence_key(vchannel_id), _FENCE.pack(ROW_VERSION, fencing_token))


def unpack_fence(vchannel_id: int, value: bytes) -> int:
    """Return the fencing token in a row of the index family."""
    (fencing_token,) = _opened("fence", fence_key(vchannel_id), value, _FENCE)
    assert isinstance(fencing_token, int)
    return fencing_token


def pack_txn(vchannel_id: int, txn_id: int, last_tick: int) -> bytes:
    """Return the value of the row that records that a transaction has staged batches on a vchannel.

    ``last_tick`` is that of its last message there; 0 while it is not committed.
    """
    return sealed(txn_key(vchannel_id, txn_id), _TXN.pack(ROW_VERSION, last_tick))


def unpack_txn(place: TxnPlace, value: bytes) -> int:
    """Return the last tick in such a row of the index family."""
    (last_tick,) = _opened("transaction", txn_key(*place), value, _TXN)
    assert isinstance(last_tick, int)
    return last_tick


def pack_chunk(vchannel_id: int, chunk: ChunkRow) -> bytes:
    """Return the value of a chunk row."""
    return sealed(chunk_key(vchannel_id, chunk.first_tick), _CHUNK.pack(ROW_VERSION, *chunk))


def unpack_chunk(vchannel_id: int, first_tick: int, value: bytes) -> ChunkRow:
    """Return the chunk in a row of the index family."""
    return ChunkRow._make(_opened("chunk", chunk_key(vchannel_id, first_tick), value, _CHUNK))


def pack_store(store: StoreRow) -> bytes:
    """Return the value of the store's row."""
    return sealed(STORE_KEY, _STORE.pack(ROW_VERSION, *store))


def unpack_store(value: bytes) -> StoreRow:
    """Decode the store's row."""
    return StoreRow._make(_opened("store", STORE_KEY, value, _STORE))


def _opened(what: str, key: bytes, value: bytes, layout: struct.Struct) -> tuple[int | bytes, ...]:
    body = unsealed(key, value)
    if body is None or len(body) != layout.size:
        raise _damaged_row(what, key)
    version, *fields = layout.unpack(body)
    check_version(what, int(version), ROW_VERSION)
    return tuple(fields)


def _damaged_row(what: str, key: bytes) -> DataLossError:
    if key == STORE_KEY:
        return DataLossError("the store's own row is damaged: restore the data folder from a backup", row=what)
    vchannel_id, rest = int.from_bytes(key[:4], "big"), key[4:]
    tick = int.from_bytes(rest[-8:], "big") if len(rest) >= 8 else NO_TICK
    place = f" of vchannel id {vchannel_id}" + (f" at tick {tick}" if tick else "")
    return DataLossError(
        f"the {what} row{place} is damaged: restore the data folder from a backup",
        row=what, vchannel_id=vchannel_id, tick=tick,
    )  # fmt: skip
