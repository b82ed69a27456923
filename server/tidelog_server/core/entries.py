"""Entries: batches as the log keeps them."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog_server.core.ticks import Tick

MIXED_TYPES: Final = -1
"""Stands for the type of an entry whose messages have several."""

HASH_BYTES: Final = 16


class EntryKind(IntEnum):
    """What an entry is. On disk since format 1; a number is never reused."""

    MESSAGES = 1
    TXN_MESSAGES = 2
    BROADCAST_MESSAGE = 3
    STAGED_MESSAGES = 4


class TxnSpan(NamedTuple):
    """The transaction that an entry belongs to.

    Invariant: nothing but the transaction has a tick of the span, on any vchannel of the node.

    Attributes:
        txn_id: Its number.
        first_tick, last_tick: Of all its messages, on all its vchannels; both inclusive.
    """

    txn_id: int
    first_tick: int
    last_tick: int


class StagedBatch(NamedTuple):
    """A batch of a begun transaction, to be kept in the store until the transaction ends.

    Attributes:
        vchannel_id: The vchannel that it is for.
        txn_id: Its transaction.
        sequence: Its number among those of the transaction on the vchannel, from 1.
        columns: The batch as it came.
    """

    vchannel_id: int
    txn_id: int
    sequence: int
    columns: bytes


class StagedColumns(NamedTuple):
    """Where the columns of an entry are that were staged before its transaction committed.

    Attributes:
        sequence: As in StagedBatch.
        columns_bytes: Length of the columns.
        stored_crc32c: CRC-32C of the columns' bytes.
    """

    sequence: int
    columns_bytes: int
    stored_crc32c: int


@dataclass(slots=True)
class NewEntry:
    """A batch with its ticks, ready to be written. Never changed; freezing it would triple the time that it takes.

    Attributes:
        vchannel_id: The vchannel.
        base_tick: Tick of the first message; above every earlier tick of the vchannel.
        count: Number of messages, at least 1; message i has ``base_tick + i``.
        message_type: The type of all messages, or MIXED_TYPES.
        columns_crc32c: The CRC-32C that came with the columns (not that of the bytes below).
        columns: The batch as it came, opaque here. Never changed. Empty if they are staged.
        txn: Its transaction; None for an append of its own.
        staged: Where its columns are, if the store has them already; only with ``txn``.
        broadcast_id: Its broadcast, which no transaction can be a part of; 0 for none.
    """

    vchannel_id: int
    base_tick: Tick
    count: int
    message_type: int
    columns_crc32c: int
    columns: bytes
    txn: TxnSpan | None = None
    staged: StagedColumns | None = None
    broadcast_id: int = 0

    @property
    def last_tick(self) -> Tick:
        """Tick of the last message, inclusive."""
        return Tick(self.base_tick + self.count - 1)

    @property
    def columns_bytes(self) -> int:
        """Length of the columns, here or staged."""
        return len(self.columns) if self.staged is None else self.staged.columns_bytes


@dataclass(frozen=True, slots=True)
class EntryHeader:
    """What the log knows about an entry without its messages.

    Attributes:
        vchannel_id, base_tick, count, message_type, columns_crc32c, txn, broadcast_id: As in NewEntry.
        previous_tick: Last tick of the entry before it in the same vchannel; 0 for the first ever. It makes a hole
            visible to any reader.
        sequence: Dense number of the entry in the whole store, from 1.
        chain_hash: Hash over this header and the chain hash of entry ``sequence - 1``.
        columns_bytes: Length of the columns.
        stored_crc32c: CRC-32C of the columns' bytes as they are stored; the store checks it on each read.
        staged_sequence: Number of the staged batch that its columns are; 0 if they were written with the entry.
        inline_columns: Its columns, if the store keeps them beside the header, as they were read; None if not. Whoever
            wants columns asks the store, which checks them.
    """

    vchannel_id: int
    base_tick: Tick
    count: int
    message_type: int
    columns_crc32c: int
    previous_tick: Tick
    sequence: int
    chain_hash: bytes
    columns_bytes: int
    stored_crc32c: int
    txn: TxnSpan | None = None
    staged_sequence: int = 0
    broadcast_id: int = 0
    inline_columns: bytes | None = None

    @property
    def last_tick(self) -> Tick:
        """Tick of the last message, inclusive."""
        return Tick(self.base_tick + self.count - 1)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as it was read: its header, and the columns exactly as they were written."""

    header: EntryHeader
    columns: bytes
