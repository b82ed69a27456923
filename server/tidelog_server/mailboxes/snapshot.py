"""Snapshots of a mailbox: its state as bytes, written to its log in pages. Pure.

A snapshot bounds what a start replays: the events before it are not needed, except the bodies of messages. See
docs/reference/format.md.
"""

import struct
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog_server.core.dedup_keys import hash_of, keys_of
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import DEDUP_HASH_BYTES, KIB, LOCK_BYTES
from tidelog_server.core.mailboxes import MessageState
from tidelog_server.mailboxes.messages.locks import LockEnd
from tidelog_server.mailboxes.messages.rows import COLUMNS
from tidelog_server.mailboxes.state import MailboxState

PAGE_BYTES: Final = 512 * KIB
"""Maximum size of the part of a snapshot in one message of the log."""
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
# Number of the page, number of pages.
_PAGE: Final = struct.Struct("<II")
_EXHAUSTED: Final = MessageState.EXHAUSTED
_STATES: Final = bytes(MessageState)
# Columns are copied as they are in memory.
assert sys.byteorder == "little"


class Page(NamedTuple):
    """A page of a snapshot.

    Attributes:
        number: Number of the page, from 0.
        pages: Number of pages of the snapshot.
        content: Its part of the snapshot.
    """

    number: int
    pages: int
    content: bytes


class FrozenState:
    """A state as it was, to be encoded in pages one after another: a large one would block the event loop for long.

    Attributes:
        size_bytes: Size of the snapshot.
        pages: Number of its pages, at least 1.
    """

    def __init__(self, state: MailboxState) -> None:
        """Copy what may change. Rows of deleted messages are included: removing them takes longer."""
        rows = state.rows
        # In columns, as they are in memory: 55 MB for a million messages.
        self._columns = [bytes(getattr(rows, name)) for name in COLUMNS]
        self._groups = [(group.number, group.name) for group in state.groups.all()]
        self._locks = list(state.locks.all())
        self._ended = list(state.locks.all_ended())
        self._keys = state.keys.frozen()
        self._blobs = list(state.blobs.keys.items())
        self._header = _HEADER.pack(
            _VERSION, state.is_paused, state.now, len(rows), len(self._groups), len(self._locks), len(self._ended),
            len(state.keys), len(self._blobs),
        )  # fmt: skip
        self.size_bytes = (
            len(self._header) + sum(map(len, self._columns))
            + _GROUP.size * len(self._groups) + len("".join(name for _, name in self._groups).encode())
            + _LOCK.size * len(self._locks) + _ENDED.size * len(self._ended)
            + _HASH.size * len(state.keys)
            + _BLOB.size * len(self._blobs) + sum(len(key) for _, key in self._blobs)
        )  # fmt: skip
        self.pages = max(1, -(-self.size_bytes // PAGE_BYTES))
        self._next_number = 0
        self._parts = self.parts()
        self._rest = bytearray()

    def parts(self) -> Iterator[bytes | memoryview]:
        """Yield the snapshot in parts of at most a page."""
        yield self._header
        for column in self._columns:
            view = memoryview(column)
            yield from (view[begin : begin + PAGE_BYTES] for begin in range(0, len(view), PAGE_BYTES))
        for number, name in self._groups:
            text = name.encode()
            yield _GROUP.pack(number, len(text)) + text
        for message_id, lock_id in self._locks:
            yield _LOCK.pack(message_id, lock_id)
        for lock_id, message_id, how in self._ended:
            yield _ENDED.pack(message_id, how, lock_id)
        for hashed, message_id, until in keys_of(*self._keys):
            yield _HASH.pack(message_id, until, hashed.to_bytes(DEDUP_HASH_BYTES, "little"))
        for message_id, blob_key in self._blobs:
            yield _BLOB.pack(message_id, len(blob_key)) + blob_key

    def next_page(self) -> bytes:
        """Return the next page, as a message of the log."""
        assert self._next_number < self.pages
        rest = self._rest
        while len(rest) < PAGE_BYTES and (part := next(self._parts, None)) is not None:
            rest += part
        page = _PAGE.pack(self._next_number, self.pages) + rest[:PAGE_BYTES]
        del rest[:PAGE_BYTES]
        self._next_number += 1
        return page


def encode_snapshot(state: MailboxState) -> bytes:
    """Return the state as bytes."""
    return b"".join(FrozenState(state).parts())


def decode_snapshot(encoded: bytes) -> MailboxState:
    """Return the state that ``encode_snapshot`` encoded. Raises DataLossError if the bytes are invalid."""
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
        state.locks.take(lock_id, message_id)
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
    state.exhausted.extend(
        row_id for row_id, row_state in zip(state.rows.ids, state.rows.states, strict=True) if row_state == _EXHAUSTED
    )
    state.recount()
    state.rebuild()
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


def page_count(encoded: bytes) -> int:
    """Return the number of pages of a snapshot, at least 1."""
    return max(1, -(-len(encoded) // PAGE_BYTES))


def page_of(encoded: bytes, number: int) -> bytes:
    """Return a page of a snapshot, as a message of the log."""
    return _PAGE.pack(number, page_count(encoded)) + encoded[number * PAGE_BYTES : (number + 1) * PAGE_BYTES]


def pages_of(encoded: bytes) -> Iterator[bytes]:
    """Yield all pages of a snapshot."""
    return (page_of(encoded, number) for number in range(page_count(encoded)))


def decode_page(payload: bytes) -> Page:
    """Parse a page. Raises DataLossError if it is invalid."""
    if len(payload) < _PAGE.size:
        raise DataLossError(f"a page of a snapshot has {len(payload)} bytes: restore the server from a backup")
    number, pages = _PAGE.unpack_from(payload)
    return Page(number, pages, payload[_PAGE.size :])
