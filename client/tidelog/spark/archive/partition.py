"""A partition of a read that comes from an archive."""

from dataclasses import dataclass
from typing import ClassVar

from tidelog.spark.archive.manifest import ArchivedFile
from tidelog.spark.read.partition import Partition
from tidelog.spark.ticks import END_OF_TIME


@dataclass(frozen=True)
class ArchivePartition(Partition):
    """The ticks ``[begin_tick, end_tick)`` of one file of an archive.

    Attributes:
        root: The archive's folder.
        file: The file's record in the manifest.
        begin_tick, end_tick: Half-open range of ticks.
        types: Message types to read; empty for all.
    """

    _reader: ClassVar[str] = "tidelog.spark.archive.reader"

    root: str
    file: ArchivedFile
    begin_tick: int = 0
    end_tick: int = END_OF_TIME
    types: tuple[int, ...] = ()

    @property
    def path(self) -> str:
        """Path of the file."""
        return f"{self.root}/{self.file.path}"

    @property
    def vchannel(self) -> str:
        """``<channel>/<index>``."""
        return self.file.vchannel

    @property
    def is_whole(self) -> bool:
        """True if every message of the file is read."""
        return self.begin_tick <= self.file.first_tick and self.file.last_tick < self.end_tick and not self.types
