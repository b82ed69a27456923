"""A log in a folder of numbered files, which several processes share: for tests.

A record is a file whose name is its position. A process makes the file with exclusive creation, and tries the next
number if another one was faster: so it appends to the end unconditionally, as with Kafka. ``Unruly`` makes the folder
repeat, delay, reorder and lose records, as engines do when connections and leaders change.
"""

import os
import random
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from tidelog_server.recordlog.engine import (
    Bounds,
    EngineUnavailableError,
    LogEngine,
    PositionGoneError,
    Read,
    Report,
    Stored,
)
from tidelog_server.recordlog.records import Position
from tidelog_server.runtime.clock import SystemClock

_DIGITS: Final = 20
_BEGIN: Final = "begin"
# How often a read that waits looks for another file.
_LOOK_EVERY_S: Final = 0.01
_CLOCK: Final = SystemClock()
_COPIES_LATE: Final = 2

_Pending: TypeAlias = tuple[bytes, Report]


@dataclass(frozen=True, slots=True)
class Unruly:
    """How often, of 1, a record is repeated, is repeated behind later ones, is held back behind the next, and is lost.

    Of one that is lost the report is an error.
    """

    repeated: float = 0.0
    repeated_late: float = 0.0
    held_back: float = 0.0
    lost: float = 0.0
    seed: int = 0


class FolderEngine(LogEngine):
    """Implements ``LogEngine``. Records are stored by ``poll``, not by ``send``: what was sent is on its way."""

    def __init__(self, folder: Path, unruly: Unruly = Unruly()) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._unruly = unruly
        self._random = random.Random(unruly.seed)
        self._sent: deque[_Pending] = deque()
        self._is_sent = threading.Condition()
        # Held while records are stored, so that several threads may poll.
        self._storing = threading.Lock()
        # Repeated late: the copies.
        self._copies: deque[bytes] = deque()
        # No file below this position is missing, except for trimmed ones.
        self._end = self.bounds().end
        self._never = threading.Event()
        self._is_closed = False

    def send(self, value: bytes, report: Report) -> None:
        with self._is_sent:
            self._sent.append((value, report))
            self._is_sent.notify()

    def poll(self, timeout_s: float) -> None:
        with self._is_sent:
            self._is_sent.wait_for(lambda: self._sent, timeout_s)
        with self._storing:
            reports = self._store_sent()
        for each in reports:
            each()

    def _store_sent(self) -> list[Callable[[], None]]:
        """Store what was sent; return the reports to make."""
        with self._is_sent:
            pending = list(self._sent)
            self._sent.clear()
        reports: list[Callable[[], None]] = []
        while pending:
            at = 1 if len(pending) > 1 and self._is_due(self._unruly.held_back) else 0
            value, report = pending.pop(at)
            if self._is_due(self._unruly.lost):
                reports.append(partial(report, EngineUnavailableError("the record was lost")))
                continue
            position = self._store(value)
            if len(self._copies) > _COPIES_LATE:
                self._store(self._copies.popleft())
            if self._is_due(self._unruly.repeated_late):
                self._copies.append(value)
            if self._is_due(self._unruly.repeated):
                # Either copy may be the one that is reported.
                position = self._random.choice((position, self._store(value)))
            reports.append(partial(report, position))
        return reports

    def _is_due(self, chance: float) -> bool:
        return self._random.random() < chance

    def read(self, begin: Position, max_bytes: int, wait_s: float = 0.0) -> Read:
        end_s = _CLOCK.monotonic_s() + wait_s
        while not self._path(begin).exists() and (left_s := end_s - _CLOCK.monotonic_s()) > 0:
            self._never.wait(min(left_s, _LOOK_EVERY_S))
        first = self._first()
        if begin < first:
            raise PositionGoneError(begin, first)
        found: list[Stored] = []
        size_bytes = 0
        while size_bytes < max_bytes:
            try:
                value = self._path(begin).read_bytes()
            except FileNotFoundError:
                break
            found.append(Stored(begin, value))
            size_bytes += len(value)
            begin += 1
        return Read(found, begin)

    def bounds(self) -> Bounds:
        names = sorted(name for name in os.listdir(self._folder) if name.isdecimal())
        first = self._first()
        return Bounds(first, max(int(names[-1]) + 1 if names else 0, first))

    def trim(self, before: Position) -> None:
        before = min(before, self.bounds().end)
        for position in range(self._first(), before):
            if position == self._first():
                _replace(self._folder / _BEGIN, str(position + 1).encode())
            with suppress(FileNotFoundError):
                self._path(position).unlink()

    def rest(self) -> None:
        """See ``LogEngine``: a folder keeps nothing."""

    def close(self) -> None:
        self._is_closed = True

    def _first(self) -> Position:
        try:
            return int((self._folder / _BEGIN).read_bytes())
        except FileNotFoundError:
            return 0

    def _store(self, value: bytes) -> Position:
        written = self._folder / f"{os.getpid()}-{threading.get_ident()}.part"
        written.write_bytes(value)
        while True:
            position = self._end
            try:
                # Complete or not at all, and never over another record.
                os.link(written, self._path(position))
            except FileExistsError:
                self._end += 1
                continue
            self._end += 1
            if position < (first := self._first()):
                # A position that was trimmed is not used again.
                self._path(position).unlink()
                self._end = first
                continue
            written.unlink()
            return position

    def _path(self, position: Position) -> Path:
        return self._folder / f"{position:0{_DIGITS}}"


def _replace(path: Path, value: bytes) -> None:
    written = path.with_suffix(f".{os.getpid()}.part")
    written.write_bytes(value)
    written.replace(path)
