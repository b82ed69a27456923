"""The synchronous scan. See ``tidelog.read.scan``."""

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self

from tidelog.read.frames import MAX_FRAME_BYTES
from tidelog.read.scan import AsyncScan
from tidelog.sync.generated.scan import ScanCalls
from tidelog.transport.background import background
from tidelog.transport.in_one_process import InOneProcess
from tidelog.wire.batch import Batch, polars_frame
from tidelog.wire.optional import need

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Scan(InOneProcess, ScanCalls, Iterator[Batch]):
    """Batches in tick order: ``for batch in scan``. See ``AsyncScan``.

    Libraries with the Arrow PyCapsule interface accept a scan with an end as it is: ``pyarrow.table(scan)``,
    ``polars.DataFrame(scan)``, ``FROM scan`` in DuckDB. They read it once, up to 1 GiB; for more see
    ``to_arrow_reader``.

    Attributes:
        caught_up: Event that is set while the caller has received everything that was durable when the server last
            answered.
    """

    def __init__(self, scan: AsyncScan) -> None:
        self.caught_up = threading.Event()
        self._core = scan.core
        self._core.caught_up = self.caught_up

    def __repr__(self) -> str:
        return f"<Scan {self._core!r}>"

    def __next__(self) -> Batch:
        """Return the next batch. Raises as ``AsyncScan.__anext__``, but StopIteration at the end."""
        if not self._core.has_batch and not background.run(self._core.fetch()):
            raise StopIteration
        return self._core.take()

    def __enter__(self) -> Self:
        background.run(self._core.enter())
        return self

    def to_arrow(self, *, max_bytes: int = MAX_FRAME_BYTES, columns: Sequence[str] | None = None) -> "pyarrow.Table":
        """Read all messages up to the end of the scan, and return them as a table. See ``AsyncScan.to_arrow``."""
        return background.run(self._core.to_arrow(max_bytes=max_bytes, columns=columns))

    def to_pandas(
        self, *, max_bytes: int = MAX_FRAME_BYTES, columns: Sequence[str] | None = None
    ) -> "pandas.DataFrame":
        """Return the table of ``to_arrow`` as a pandas frame. See ``AsyncScan.to_pandas``."""
        need("pandas")
        return self.to_arrow(max_bytes=max_bytes, columns=columns).to_pandas()

    def to_polars(
        self, *, max_bytes: int = MAX_FRAME_BYTES, columns: Sequence[str] | None = None
    ) -> "polars.DataFrame":
        """Return the table of ``to_arrow`` as a Polars frame. See ``AsyncScan.to_polars``."""
        need("polars")
        return polars_frame(self.to_arrow(max_bytes=max_bytes, columns=columns))

    def to_arrow_reader(self, columns: Sequence[str] | None = None) -> "pyarrow.RecordBatchReader":
        """Return a reader of all messages up to the end of the scan, which reads as its batches are taken.

        Memory for it has a bound, however many messages there are. The columns are those of ``Batch.to_arrow``.

        Args:
            columns: Names of the columns to read, in this order; default None, all.

        Raises:
            ValueError: The scan follows the log, or there is no column of a name.
            ClosedError: The scan was read to its end, or by another reader.
            ImportError: pyarrow is not installed.
        """
        return self._core.arrow_reader(self._take_run, columns, max_bytes=None)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the capsule of the Arrow PyCapsule interface, with the columns of ``to_arrow``, up to 1 GiB.

        A requested schema selects columns by their names, and their types. Raises as ``to_arrow_reader``; while it is
        read, errors are those of the library that reads, with the text of FrameTooLargeError and others.
        """
        need("pyarrow")
        from tidelog.wire.arrow import requested

        names, schema = requested(requested_schema)
        reader = self._core.arrow_reader(self._take_run, names, max_bytes=MAX_FRAME_BYTES)
        return (reader if schema is None else reader.cast(schema)).__arrow_c_stream__()

    def _take_run(self) -> Sequence[Batch]:
        return background.run(self._core.take_run())
