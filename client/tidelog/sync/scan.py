"""The synchronous scan. See ``tidelog.read.scan``."""

import threading
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from tidelog.read.scan import AsyncScan
from tidelog.tick import Tick
from tidelog.transport.background import background
from tidelog.transport.in_one_process import InOneProcess
from tidelog.wire.batch import Batch


class Scan(InOneProcess, Iterator[Batch]):
    """Batches in tick order: ``for batch in scan``. See ``AsyncScan``.

    Attributes:
        caught_up: Event that is set while the caller has received everything that was durable when the server last
            answered.
    """

    def __init__(self, scan: AsyncScan) -> None:
        self.caught_up = threading.Event()
        self._core = scan.core
        self._core.caught_up = self.caught_up

    @property
    def watermark(self) -> Tick:
        """The tick at or below which no more messages follow; 0 until the server has reported it."""
        return self._core.watermark

    @property
    def positions(self) -> Mapping[str, Tick]:
        """By vchannel, the tick up to which the caller has received everything. See ``AsyncScan.positions``."""
        return self._core.positions

    def close(self) -> None:
        """End the scan. Its ``positions`` remain available."""
        background.run(self._core.aclose())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        """Return the next batch. Raises as ``AsyncScan.__anext__``, but StopIteration at the end."""
        if not self._core.has_batch and not background.run(self._core.fetch()):
            raise StopIteration
        return self._core.take()

    def __enter__(self) -> Self:
        background.run(self._core.enter())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
