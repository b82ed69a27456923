"""The validated content of an append."""

from dataclasses import dataclass


@dataclass(slots=True)
class Batch:
    """A batch without ticks yet. Its columns are opaque here. Immutable, see NewEntry.

    Attributes:
        count: Number of messages, at least 1.
        message_type: Type of all messages, or entries.MIXED_TYPES.
        columns_crc32c: CRC-32C that the client sent with the columns.
        columns: The columns as they will be stored.
        txns: Number of transactions that its messages are divided into.
    """

    count: int
    message_type: int
    columns_crc32c: int
    columns: bytes
    txns: int = 1
