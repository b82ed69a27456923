"""Writes snapshots into the log, and lets the engine delete what is not used any more: the driver of their plan."""

import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

import structlog

from tidelog_server.core.errors import DataLossError, Effect
from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.recordlog.engine import EngineUnavailableError
from tidelog_server.recordlog.record_log import RecordLog, Ticket
from tidelog_server.recordlog.records import Position
from tidelog_server.recordlog.rules import SnapshotPart
from tidelog_server.runtime.engine_figures import Figure
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.engine.operations import FAMILY_NUMBERS
from tidelog_server.storage.engine.references import References
from tidelog_server.storage.engine.snapshot_format import SnapshotEnd, pack_end, parts_of
from tidelog_server.storage.engine.snapshot_plan import LogMark, LogUse, SnapshotLimits, UseCounter, is_due
from tidelog_server.storage.engine.values import LENGTH_OF_REFERENCE, POSITION_OF_REFERENCE, is_reference
from tidelog_server.storage.engine.view import OF_COLUMNS
from tidelog_server.storage.engine.writer import EngineWriter
from tidelog_server.storage.log_store import Change
from tidelog_server.storage.rocksdb.engine import engine_errors, multi_get, read_options

REWRITE_BYTES: Final = 1 << 20
"""Bytes of columns that are written again in one change: other changes wait for it."""
RETRY_AFTER_S: Final = 60.0
"""Seconds until the next attempt at a snapshot that failed."""
_FAMILY_NAMES: Final = {number: name for name, number in FAMILY_NUMBERS.items()}
_log = structlog.get_logger("tidelog_server.storage")


class Newest(NamedTuple):
    """The newest snapshot that records name.

    Attributes:
        position: Its position; None without one.
        log_bytes: Bytes of the log before its place; before the first record of the log without one.
        size_bytes: Its size; 0 without one.
        marks: Its marks of the log.
    """

    position: Position | None
    log_bytes: int
    size_bytes: int
    marks: Sequence[LogMark]

    @classmethod
    def of(cls, position: Position, end: SnapshotEnd) -> "Newest":
        """Return what the end of a snapshot says."""
        return cls(position, end.place.log_bytes, end.size_bytes, end.marks)

    @classmethod
    def none(cls, begin: Position) -> "Newest":
        """Return what holds without a snapshot; the log begins at ``begin``."""
        return cls(None, 0, 0, (LogMark(begin, 0),))


class Snapshots:
    """Makes snapshots of a view. One thread at a time, but for ``close`` and ``figures``.

    Attributes:
        newest: The newest snapshot that records name.
        use: What of the log was in use as of it; None before the first one of this process.
        made: Number of snapshots that this process has made.
    """

    def __init__(
        self, writer: EngineWriter, log: RecordLog, references: References, newest: Newest, limits: SnapshotLimits
    ) -> None:
        """Continue with the snapshot that the log names. Does no I/O."""
        self.newest = newest
        self.use: LogUse | None = None
        self.made = 0
        self._writer = writer
        self._engine = writer.view.engine
        self._log = log
        self._references = references
        self._limits = limits
        self._not_before_s = 0.0
        # Held while the database is read, so that it is not closed meanwhile.
        self._is_reading = threading.Lock()

    def if_due(self) -> Iterator[Change]:
        """As ``make``, if a snapshot is due; what fails is logged, and tried again later.

        Raises:
            StorageFailedError, OwnershipLostError: The store has stopped.
        """
        self._log.engine.rest()
        grown_bytes = self._writer.view.place.log_bytes - self.newest.log_bytes
        is_time = self._not_before_s <= self._log.clock.monotonic_s()
        if not is_time or not is_due(self._limits, grown_bytes, self.newest.size_bytes):
            return
        try:
            yield from self.make()
        except (DataLossError, StorageUnreadableError) as error:
            self._not_before_s = self._log.clock.monotonic_s() + RETRY_AFTER_S
            _log.error(
                "snapshot_failed", problem=str(error),
                advice="until a snapshot is complete, the log grows; if the view is damaged, stop the server, delete "
                "storage.data_dir and start it: it makes the view again",
            )  # fmt: skip

    def make(self) -> Iterator[Change]:
        """Write a snapshot and trim the log; yield changes that write columns at its begin again.

        The next snapshot then lets the engine delete more. A change that is not made loses nothing.

        Raises:
            StorageFailedError, OwnershipLostError: The store has stopped: another process may own the log.
            DataLossError, StorageUnreadableError: The view or the log could not be read.
        """
        with self._is_reading:
            use = self._write()
        hit(Failpoint.ENGINE_SNAPSHOT_NAMED)
        self._trim(use.trim_before)
        if use.rewrite_before is not None:
            yield from self._rewrites(use.rewrite_before)

    def close(self) -> None:
        """Wait until the database is not read any more. Only after the writer was closed, which ends that."""
        with self._is_reading:
            pass

    def figures(self) -> dict[Figure, float]:
        """Return gauges."""
        use, log_bytes = self.use, self._writer.view.place.log_bytes
        begin_bytes = self.newest.marks[0].log_bytes if use is None else use.begin_bytes
        return {
            Figure("log_bytes"): float(log_bytes - begin_bytes),
            Figure("log_live_bytes"): 0.0 if use is None else float(use.live_bytes),
            Figure("log_snapshot_bytes"): float(self.newest.size_bytes),
            Figure("log_snapshots"): float(self.made),
        }

    def _write(self) -> LogUse:
        """Write a snapshot, and a record that names it; return what of the log is in use."""
        frozen = self._writer.freeze()
        place = frozen.place
        counter = UseCounter([*self.newest.marks, LogMark(place.next, place.log_bytes)])
        first: Position | None = None
        count = size_bytes = 0
        # Closed: if the store stops, the traceback of the error has these, and they keep the database open.
        with closing(frozen), closing(frozen.rows()) as rows, closing(_counted(rows, counter)) as counted:
            for count, payload in enumerate(parts_of(counted), 1):
                part = _position_of(self._writer.write_part(count - 1, payload, is_last=False))
                first = part if first is None else first
                size_bytes += len(payload)
                hit(Failpoint.ENGINE_SNAPSHOT_PART)
        assert first is not None
        use = counter.result(self._limits)
        end = SnapshotEnd(first, size_bytes, use.marks, place)
        position = _position_of(self._writer.write_part(count, pack_end(end), is_last=True))
        self._writer.name_snapshot(position)
        self.newest, self.use = Newest.of(position, end), use
        self.made += 1
        _log.info(
            "snapshot_written", position=position, as_of=place.next, size_bytes=size_bytes,
            log_begins_at=use.trim_before, live_bytes=use.live_bytes,
        )  # fmt: skip
        return use

    def _trim(self, before: Position) -> None:
        try:
            self._log.trim(before)
        except EngineUnavailableError as error:
            # The next snapshot trims as much.
            _log.warning("log_not_trimmed", before=before, problem=str(error))

    def _rewrites(self, before: Position) -> Iterator[Change]:
        """Yield changes that write all columns again that are before a position in the log."""
        key = before.to_bytes(16, "big")
        for family in sorted(OF_COLUMNS):
            rows = self._old_rows(family, key)
            while page := next(rows, None):
                yield self._rewrite(family, page)

    def _old_rows(self, family: int, before: bytes) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield rows of a family that refer to the log before a position, for each change."""
        begin_key: bytes | None = b""
        while begin_key is not None:
            with self._is_reading:
                self._writer.check_works(Effect.UNKNOWN)
                page, begin_key = self._page(family, begin_key, before)
            if page:
                yield page

    def _page(self, family: int, begin_key: bytes, before: bytes) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Return the next rows from a key on, and where to continue; None at the end."""
        page: list[tuple[bytes, bytes]] = []
        size_bytes = 0
        with engine_errors("reading the view"):
            rows = self._engine.family(_FAMILY_NAMES[family]).iter(read_options())
            rows.seek(begin_key)
            while rows.valid():
                key, value = rows.key(), rows.value()
                if REWRITE_BYTES <= size_bytes:
                    return page, key
                if is_reference(value) and value[POSITION_OF_REFERENCE] < before:
                    page.append((key, value))
                    size_bytes += int.from_bytes(value[LENGTH_OF_REFERENCE], "big")
                rows.next()
            rows.status()
        return page, None

    def _rewrite(self, family: int, page: Sequence[tuple[bytes, bytes]]) -> Change:
        """Read columns from the log; return the change that writes them again, unless they were deleted meanwhile."""
        columns = self._references.columns_of([value for _, value in page])

        def change() -> None:
            # Ordering: everything that was written before is in the database, also deletions.
            self._writer.settle()
            with engine_errors("reading the view"):
                current = multi_get(self._engine.family(_FAMILY_NAMES[family]), [key for key, _ in page])
            batch = self._writer.batch()
            for (key, value), found, now in zip(page, columns, current, strict=True):
                if now == value and found is not None:
                    batch.put(key, found, family)
            self._writer.commit(batch)

        return change


def _counted(rows: Iterable[tuple[int, bytes, bytes]], counter: UseCounter) -> Generator[tuple[int, bytes, bytes]]:
    """Yield rows, and count their references."""
    for row in rows:
        family, _, value = row
        if family in OF_COLUMNS and is_reference(value):
            counter.note(value[POSITION_OF_REFERENCE], int.from_bytes(value[LENGTH_OF_REFERENCE], "big"))
        yield row


def _position_of(ticket: Ticket) -> Position:
    (part,) = ticket.completed
    assert isinstance(part, SnapshotPart)
    return part.position
