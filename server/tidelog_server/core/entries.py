"""Entries: batches as stored in the log."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from tidelog_server.core.ticks import Tick

MIXED_TYPES: Final = -1
"""Message type of an entry whose messages have several types."""

HASH_BYTES: Final = 16


class EntryKind(IntEnum):
    """Kind of an entry. On disk since format 1; a number is never reused."""

    MESSAGES = 1
    TXN_MESSAGES = 2
    BROADCAST_MESSAGE = 3
    STAGED_MESSAGES = 4


class TxnSpan(NamedTuple):
    """The transaction of an entry, and its ticks.

    Invariant: on every vchannel of the node, only messages of the transaction have ticks in the span.

    Attributes:
        txn_id: Id of the transaction.
        first_tick, last_tick: First and last tick of its messages on all its vchannels; both inclusive.
    """

    txn_id: int
    first_tick: int
    last_tick: int


class StagedBatch(NamedTuple):
    """A batch of a staged transaction, stored until the transaction ends.

    Attributes:
        vchannel_id: Target vchannel.
        txn_id: Id of the transaction.
        sequence: Number of the batch within the transaction on this vchannel, from 1.
        columns: The batch as received.
    """

    vchannel_id: int
    txn_id: int
    sequence: int
    columns: bytes


class StagedColumns(NamedTuple):
    """Reference to the columns of an entry that were staged before its transaction was committed.

    Attributes:
        sequence: See StagedBatch.
        columns_bytes: Length of the columns.
        stored_crc32c: CRC-32C of the columns' bytes.
    """

    sequence: int
    columns_bytes: int
    stored_crc32c: int


@dataclass(slots=True)
class NewEntry:
    """A batch with its ticks, ready to be written. Immutable; not frozen, because that triples its construction time.

    Attributes:
        vchannel_id: Id of the vchannel.
        base_tick: Tick of the first message; above every earlier tick of the vchannel.
        count: Number of messages, at least 1; message i has tick ``base_tick + i``.
        message_type: Type of all messages, or MIXED_TYPES.
        columns_crc32c: CRC-32C that the client sent with the columns (not that of the bytes below).
        columns: The batch as received, opaque here. Immutable. Empty if staged.
        txn: Transaction of the entry; None outside of transactions.
        staged: Reference to columns that are already in the store; only with ``txn``.
        broadcast_id: Id of the broadcast, 0 outside of broadcasts. A broadcast is never part of a transaction.
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
    """An entry without its messages.

    Attributes:
        vchannel_id, base_tick, count, message_type, columns_crc32c, txn, broadcast_id: See NewEntry.
        previous_tick: Last tick of the previous entry of the vchannel; 0 for the first ever. It reveals a missing
            entry to any reader.
        sequence: Number of the entry in the whole store, from 1, without gaps.
        chain_hash: Hash over this header and the chain hash of entry ``sequence - 1``.
        columns_bytes: Length of the columns.
        stored_crc32c: CRC-32C of the columns' bytes as stored; the store checks it on each read.
        staged_sequence: Sequence of the staged batch that has its columns; 0 if they were written with the entry.
        inline_columns: Columns stored in the header's row, not checked; None if stored elsewhere. Read columns through
            the store, which checks them.
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
    """An entry as read: its header, and the columns exactly as written."""

    header: EntryHeader
    columns: bytes
