"""Snapshots of a mailbox: its state as bytes. Pure.

A snapshot bounds what a start replays: the events before it are not needed, except the bodies of messages. See
docs/reference/format.md.
"""

import struct
import sys
from collections.abc import Iterator
from typing import Final

from tidelog_server.core.dedup_keys import hash_of, keys_of
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import DEDUP_HASH_BYTES, LOCK_BYTES
from tidelog_server.core.mailboxes import MessageState
from tidelog_server.fold.pages import PAGE_BYTES, Frozen
from tidelog_server.mailboxes.messages.locks import LockEnd
from tidelog_server.mailboxes.messages.rows import COLUMNS
from tidelog_server.mailboxes.state import MailboxState

_VERSION: Final = 2
# Snapshots of this version have the deduplication keys, later ones their hashes.
_WITH_KEYS: Final = 1
# Version, is_paused, now, rows, groups, locks, ended locks, keys, blobs.
_HEADER: Final = struct.Struct("<BBQQIIIII")
_GROUP: Final = struct.Struct("<IH")
_LOCK: Final = struct.Struct(f"<Q{LOCK_BYTES}s")
_ENDED: Final = struct.Struct(f"<QB{LOCK_BYTES}s")
_KEY: Final = struct.Struct("<QQH")
_HASH: Final = struct.Struct(f"<QQ{DEDUP_HASH_BYTES}s")
_BLOB: Final = struct.Struct("<QB")
_STATES: Final = bytes(MessageState)
# Columns are copied as they are in memory.
assert sys.byteorder == "little"


def freeze(state: MailboxState) -> Frozen:
    """Copy what may change. Rows of deleted messages are included: removing them takes longer."""
    rows = state.rows
    # In columns, as they are in memory: 55 MB for a million messages.
    columns = [bytes(getattr(rows, name)) for name in COLUMNS]
    groups = [(group.number, group.name.encode()) for group in state.groups.by_number.values()]
    locks, ended = list(state.locks.by_message.items()), list(state.locks.all_ended())
    keys, blobs = state.keys.frozen(), list(state.blobs.keys.items())
    header = _HEADER.pack(
        _VERSION, state.is_paused, state.now, len(rows), len(groups), len(locks), len(ended), len(state.keys),
        len(blobs),
    )  # fmt: skip
    size_bytes = (
        len(header) + sum(map(len, columns))
        + _GROUP.size * len(groups) + sum(len(name) for _, name in groups)
        + _LOCK.size * len(locks) + _ENDED.size * len(ended) + _HASH.size * len(state.keys)
        + _BLOB.size * len(blobs) + sum(len(key) for _, key in blobs)
    )  # fmt: skip

    def parts() -> Iterator[bytes | memoryview]:
        yield header
        for column in columns:
            view = memoryview(column)
            yield from (view[begin : begin + PAGE_BYTES] for begin in range(0, len(view), PAGE_BYTES))
        for number, name in groups:
            yield _GROUP.pack(number, len(name)) + name
        for message_id, lock_id in locks:
            yield _LOCK.pack(message_id, lock_id)
        for lock_id, message_id, how in ended:
            yield _ENDED.pack(message_id, how, lock_id)
        for hashed, message_id, until in keys_of(*keys):
            yield _HASH.pack(message_id, until, hashed.to_bytes(DEDUP_HASH_BYTES, "little"))
        for message_id, blob_key in blobs:
            yield _BLOB.pack(message_id, len(blob_key)) + blob_key

    return Frozen(size_bytes, parts())


def decode_snapshot(encoded: bytes) -> MailboxState:
    """Return the state that ``freeze`` encoded. Raises DataLossError if the bytes are invalid."""
    state = MailboxState()
    try:
        at = _decode(state, memoryview(encoded))
        if at != len(encoded):
            raise ValueError(f"{len(encoded) - at} bytes too many")
    except (struct.error, ValueError, LookupError, AssertionError) as error:
        raise DataLossError(
            f"a snapshot of a mailbox cannot be read ({error!r}): restore the server from a backup"
        ) from error
    return state


def _decode(state: MailboxState, encoded: memoryview) -> int:
    """Fill an empty state; return the end of the snapshot."""
    header: tuple[int, ...] = _HEADER.unpack_from(encoded)
    version, is_paused, state.now, count, groups, locks, ended, keys, blobs = header
    if not _WITH_KEYS <= version <= _VERSION:
        raise ValueError(f"version {version}")
    state.is_paused = bool(is_paused)
    at = _decode_rows(state, encoded, _HEADER.size, count)
    for _ in range(groups):
        number, length = _GROUP.unpack_from(encoded, at)
        at += _GROUP.size
        state.groups.restore(number, str(encoded[at : at + length], "utf-8"))
        at += length
    for message_id, lock_id in _LOCK.iter_unpack(encoded[at : at + _LOCK.size * locks]):
        state.locks.add(lock_id, message_id)
    at += _LOCK.size * locks
    for message_id, how, lock_id in _ENDED.iter_unpack(encoded[at : at + _ENDED.size * ended]):
        state.locks.restore_ended(lock_id, message_id, LockEnd(how))
    at += _ENDED.size * ended
    at = (_decode_keys if version == _WITH_KEYS else _decode_hashes)(state, encoded, at, keys)
    for _ in range(blobs):
        message_id, length = _BLOB.unpack_from(encoded, at)
        at += _BLOB.size
        state.blobs.add(message_id, bytes(encoded[at : at + length]))
        at += length
    _restore_groups(state)
    state.restore()
    return at


def _decode_keys(state: MailboxState, encoded: memoryview, at: int, count: int) -> int:
    for _ in range(count):
        message_id, until, length = _KEY.unpack_from(encoded, at)
        at += _KEY.size
        state.keys.add(hash_of(str(encoded[at : at + length], "utf-8")), message_id, until)
        at += length
    return at


def _decode_hashes(state: MailboxState, encoded: memoryview, at: int, count: int) -> int:
    end = at + _HASH.size * count
    for message_id, until, hashed in _HASH.iter_unpack(encoded[at:end]):
        state.keys.add(int.from_bytes(hashed, "little"), message_id, until)
    if len(state.keys) != count:
        raise ValueError(f"{len(state.keys)} different keys, expected {count}")
    return end


def _decode_rows(state: MailboxState, encoded: memoryview, at: int, count: int) -> int:
    rows = state.rows
    for name in COLUMNS:
        column = getattr(rows, name)
        size = count * (1 if isinstance(column, bytearray) else column.itemsize)
        part = encoded[at : at + size]
        if len(part) != size:
            raise ValueError(f"column {name} has {len(part)} bytes, expected {size}")
        if isinstance(column, bytearray):
            column += part
        else:
            column.frombytes(part)
        at += size
    if unknown := rows.states.translate(None, _STATES):
        raise ValueError(f"state {unknown[0]} of a message")
    rows.gone = rows.states.count(MessageState.GONE)
    rows.remove_gone()
    return at


def _restore_groups(state: MailboxState) -> None:
    """Restore which messages each group has; a snapshot has the group of each message only."""
    rows = state.rows
    if not len(state.groups):
        return
    for row in rows.live_rows():
        number = rows.groups[row]
        if not number:
            continue
        group = state.groups.of(number)
        state.groups.enter(group)
        if rows.states[row] in (MessageState.AVAILABLE, MessageState.DELAYED, MessageState.LEASED):
            group.join(rows.ids[row])
        if rows.states[row] == MessageState.LEASED:
            group.in_flight = rows.ids[row]
