"""Prints messages as an Arrow stream or a Parquet file. Imported only for these formats: both need pyarrow."""

import sys
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog import Batch, StoredMessage, arrow_from_batches, arrow_schema
from tidelog_cli.output.framing import MessagePrinter
from tidelog_cli.output.records import MessageOutput

# Rows and bytes of a record batch of the stream, and of a row group of Parquet.
_STREAM: Final = (10_000, 1 << 20)
_PARQUET: Final = (1 << 20, 64 << 20)


def arrow_printer(output: MessageOutput) -> MessagePrinter:
    """Return the printer of ``arrow``, a stream of Arrow's IPC format, or of ``parquet``."""
    file = _Positioned(sys.stdout.buffer)
    if output is MessageOutput.ARROW:
        return _Tables(pa.ipc.new_stream(file, arrow_schema()), *_STREAM)
    return _Tables(pq.ParquetWriter(file, arrow_schema(), compression="zstd"), *_PARQUET)


class _Positioned:
    """A pipe as a file that knows its position, which the writer of Parquet asks for."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = 0

    def write(self, content: Any) -> int:
        self._position += (written := self._file.write(content))
        return written

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        self._file.flush()

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        """Leave the file open: it is stdout."""


class _Tables(MessagePrinter):
    """Gathers batches, and passes them to a writer of tables."""

    def __init__(self, writer: Any, max_rows: int, max_bytes: int) -> None:
        self._writer = writer
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._batches: list[Batch] = []
        self._rows = self._size_bytes = 0

    def print(self, messages: Sequence[StoredMessage], count: int) -> None:
        assert isinstance(messages, Batch)
        self._batches.append(messages)
        self._rows += count
        self._size_bytes += messages.columns.size_bytes
        if self._rows >= self._max_rows or self._size_bytes >= self._max_bytes:
            self._write()

    def finish(self) -> None:
        if self._batches:
            self._write()
        # A Parquet file without its end is unreadable.
        self._writer.close()

    def _write(self) -> None:
        # Only of the last batch not all messages are wanted.
        self._writer.write_batch(arrow_from_batches(self._batches).slice(0, self._rows))
        self._batches.clear()
        self._rows = self._size_bytes = 0
