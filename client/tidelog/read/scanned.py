"""A scan without its iteration, of one server or of several: batch by batch, as a table, or as a stream of Arrow."""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidelog.errors import ClosedError
from tidelog.read.frames import Frame
from tidelog.read.scan_plan import ScanArguments
from tidelog.tick import Tick
from tidelog.transport.in_one_process import InOneProcess
from tidelog.wire.batch import Batch
from tidelog.wire.optional import need

if TYPE_CHECKING:
    import pyarrow

RUN_ROWS: Final = 8_192
"""Short batches become one record batch, up to this number of messages."""
RUN_BYTES: Final = 512 << 10
Signal = asyncio.Event | threading.Event
"""An event that a scan sets or clears, for its asynchronous or synchronous caller."""


class Scanned(InOneProcess, ABC):
    """A scan without its iteration: ``fetch`` waits for a batch, ``take`` returns it to the caller.

    Attributes:
        plan: What the scan was asked for.
        caught_up: Set while the caller has received everything that was durable at the server's last response.
        is_streamed: Whether an Arrow stream has begun to read it.
    """

    plan: ScanArguments
    caught_up: Signal
    is_streamed = False

    @property
    @abstractmethod
    def has_batch(self) -> bool:
        """Whether ``take`` has a batch to return."""

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """Whether a bounded scan has delivered everything before its end."""

    @property
    @abstractmethod
    def watermark(self) -> Tick:
        """As ``AsyncScan.watermark``."""

    @property
    @abstractmethod
    def positions(self) -> Mapping[str, Tick]:
        """As ``AsyncScan.positions``."""

    @abstractmethod
    async def fetch(self) -> bool:
        """Wait for a batch. Return True once there is one, False at the end of a bounded scan.

        Raises:
            TidelogError: As ``AsyncScan.__anext__``.
        """

    @abstractmethod
    def peek(self) -> Batch:
        """Return the batch that ``take`` returns next; there must be one."""

    @abstractmethod
    def take(self) -> Batch:
        """Return the next batch; there must be one."""

    @abstractmethod
    async def enter(self) -> None:
        """Open a scan that starts at ``latest``, so that it misses nothing that is appended from now on."""

    @abstractmethod
    def mark(self) -> Callable[[], None]:
        """Return a function that sets the positions back to the present ones, after ``end``."""

    @abstractmethod
    def end(self) -> None:
        """Deliver nothing more; ``aclose`` waits for what is under way. Idempotent."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the scan. Its positions remain available."""

    async def take_run(self) -> Sequence[Batch]:
        """Wait for batches, and return those that suit one record batch; none at the end. Raises as ``fetch``."""
        run: list[Batch] = []
        rows = size_bytes = 0
        while await self.fetch():
            batch = self.peek()
            rows += len(batch)
            size_bytes += batch.columns.size_bytes
            # A large batch is a run by itself: a run of several is copied.
            if run and (rows > RUN_ROWS or size_bytes > RUN_BYTES):
                break
            run.append(self.take())
        return run

    async def to_arrow(self, *, max_bytes: int, columns: Sequence[str] | None) -> "pyarrow.Table":
        """As ``AsyncScan.to_arrow``."""
        self._check_table()
        frame, restore, batches = Frame(columns, max_bytes), self.mark(), []
        try:
            while run := await self.take_run():
                batches.append(frame.add(run))
        except BaseException:
            # Nothing is delivered, and what was read is lost: it must not look like the whole table to a second call.
            self.end()
            restore()
            raise
        return need("pyarrow").Table.from_batches(batches, frame.schema)

    def arrow_reader(
        self, take: Callable[[], Sequence[Batch]], columns: Sequence[str] | None, max_bytes: int | None
    ) -> "pyarrow.RecordBatchReader":
        """Return a reader of the scan, which reads nothing before its first batch is taken.

        Args:
            take: Returns what ``take_run`` does, in the thread of the reader's consumer.
            columns: Names of columns; None for all.
            max_bytes: Limit of all record batches together; None for none.

        Raises:
            ValueError, ClosedError: As ``Scan.to_arrow_reader``.
        """
        self._check_table()
        frame = Frame(columns, max_bytes)
        return need("pyarrow").RecordBatchReader.from_batches(frame.schema, self._record_batches(take, frame))

    def _record_batches(self, take: Callable[[], Sequence[Batch]], frame: Frame) -> Iterator[Any]:
        self._check_table()
        # The rest of a stream that was given up would look like a whole table.
        self.is_streamed = True
        while run := take():
            yield frame.add(run)

    def _check_table(self) -> None:
        """Raise ValueError if the scan has no end, or ClosedError if it was read to it, or a stream reads it."""
        need("pyarrow")
        if self.plan.until.kind == "follow":
            raise ValueError(
                "the scan follows the log and never ends, so it is no table: set an end, such as "
                "until=At.watermark(), or iterate it and convert each batch with batch.to_arrow()"
            )
        if self.has_ended or self.is_streamed:
            raise ClosedError("the messages of the scan were read before: start another scan for another table")
