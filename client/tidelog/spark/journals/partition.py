"""The partition of a journal, which one task reads."""

from dataclasses import dataclass
from typing import ClassVar

from tidelog.spark.journals.options import DEFAULT_UUID_FIELD
from tidelog.spark.read.partition import ReadPartition


@dataclass(frozen=True, kw_only=True)
class JournalPartition(ReadPartition):
    """A journal from its first available frame to the cut.

    Attributes:
        journal: Name of the journal. ``channel`` is the system channel with its frames.
        content_type: Selects the framing.
        is_committed: True for ``read_committed``.
        uuid_field, uuid_field_number: Where JSON objects and protobuf messages have their UUID.
        max_held_messages: Maximum number of messages of open transactions that are held in memory.
    """

    _reader: ClassVar[str] = "tidelog.spark.journals.reader"

    journal: str
    content_type: str
    is_committed: bool = True
    uuid_field: str = DEFAULT_UUID_FIELD
    uuid_field_number: int = 1
    max_held_messages: int
