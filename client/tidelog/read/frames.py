"""The table of a bounded scan, up to a limit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidelog.errors import FrameTooLargeError
from tidelog.wire.batch import Batch

if TYPE_CHECKING:
    import pyarrow

MAX_FRAME_BYTES: Final = 1 << 30
"""Size from which a scan is refused as a table, unless the call permits more."""


class Frame:
    """The record batches of the table of a scan, up to its limit."""

    def __init__(self, columns: Sequence[str] | None, max_bytes: int | None) -> None:
        """Create an empty table with ``columns``, None for all, that takes ``max_bytes`` at most, None for any number.

        Raises:
            ValueError: There is no column of a name, or ``max_bytes`` is not positive.
        """
        from tidelog.wire.arrow import record_batch, schema_of

        if max_bytes is not None and max_bytes <= 0:
            raise ValueError(f"max_bytes is {max_bytes}, expected a positive number of bytes")
        self.schema = schema_of(columns)
        self._record_batch = record_batch
        self._max_bytes = max_bytes
        self._size_bytes = 0

    def add(self, run: Sequence[Batch]) -> "pyarrow.RecordBatch":
        """Add batches, and return them as Arrow's.

        Raises:
            FrameTooLargeError: The table would exceed its limit.
        """
        batch = self._record_batch(run, self.schema)
        self._size_bytes += batch.nbytes
        if self._max_bytes is not None and self._size_bytes > self._max_bytes:
            raise FrameTooLargeError(
                f"the table of the scan exceeds {self._max_bytes} bytes at tick {run[-1].ticks[-1]} of "
                f"{run[-1].vchannel}: read fewer messages (start, until, types, key) or columns, raise the limit, "
                "as in scan.to_arrow(max_bytes=...), or read batch by batch, as to_arrow_reader() of a Client does",
                values={"max_bytes": str(self._max_bytes)},
            )
        return batch
