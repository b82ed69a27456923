"""What an append brings, after the edge has checked it."""

from dataclasses import dataclass


@dataclass(slots=True)
class Batch:
    """A batch without ticks yet. Its columns are opaque here. Never changed, see NewEntry.

    Attributes:
        count: Number of messages, at least 1.
        message_type: The type of all messages, or entries.MIXED_TYPES.
        columns_crc32c: The CRC-32C that came with the columns.
        columns: The columns as they will be stored.
        txns: Number of transactions that its messages are divided into.
    """

    count: int
    message_type: int
    columns_crc32c: int
    columns: bytes
    txns: int = 1
