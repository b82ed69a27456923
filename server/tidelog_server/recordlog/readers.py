"""The connected readers of a log, of which each thread that reads has one for the time of its read."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import structlog

from tidelog_server.recordlog.engine import EngineUnavailableError
from tidelog_server.recordlog.records import Position

_log = structlog.get_logger()


class PlacedReader(Protocol):
    """A reader that stays where its last read ended: the next one often begins there. One thread at a time."""

    @property
    def next(self) -> Position | None:
        """Where its last read ended, if it can continue there; else None."""
        ...

    @property
    def is_unused(self) -> bool:
        """Whether it has something ready, and no read has been there for a second."""
        ...

    def rest(self) -> None:
        """Release what is ready. The next read makes it ready again.

        Raises:
            EngineUnavailableError: The engine does not answer; the reader has nothing ready all the same.
        """
        ...

    def close(self) -> None:
        """Disconnect."""
        ...


_Reader = TypeVar("_Reader", bound=PlacedReader)


class ReaderPool(Generic[_Reader]):
    """Lends readers.

    A thread gets the one whose last read ended where its own begins, if there is one, so that a scan continues
    whichever thread reads for it; otherwise the one that was not used for the longest time.
    """

    def __init__(self, connect: Callable[[], _Reader], places: int = 1) -> None:
        """Take what makes a reader, and at how many places readers stay before one of them has to move."""
        self._connect = connect
        self._places = places
        # The least recently used ones first.
        self._idle: list[_Reader] = []
        self._all: list[_Reader] = []
        self._lock = threading.Lock()

    @contextmanager
    def lent(self, begin: Position | None) -> Iterator[_Reader]:
        """Lend a reader, preferably one whose last read ended at ``begin``."""
        with self._lock:
            found = next((each for each in self._idle if each.next == begin), None)
            if found is None and self._idle and self._places <= len(self._all):
                found = self._idle[0]
            if found is not None:
                self._idle.remove(found)
        if found is None:
            found = self.adopted(self._connect())
        try:
            yield found
        finally:
            with self._lock:
                self._idle.append(found)

    def adopted(self, reader: _Reader) -> _Reader:
        """Disconnect a reader with the others, which is not lent; return it."""
        with self._lock:
            self._all.append(reader)
        return reader

    def rest(self) -> None:
        """Let readers rest that were not used for a second."""
        with self._lock:
            unused = [each for each in self._idle if each.is_unused]
            self._idle = [each for each in self._idle if each not in unused]
        try:
            # It may ask a broker: others are lent meanwhile.
            for each in unused:
                try:
                    each.rest()
                except EngineUnavailableError as error:
                    # The broker releases what is ready when the connection ends.
                    _log.debug("reader_not_rested", problem=str(error))
        finally:
            with self._lock:
                self._idle[:0] = unused

    def close(self) -> None:
        """Disconnect all."""
        for reader in self._all:
            reader.close()
