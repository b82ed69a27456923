"""Loads the newest snapshot of a log into an empty view.

A snapshot counts only if a record names it: one that is complete, and that no record names, may be a former owner's,
behind a FENCE that was trimmed.
"""

from collections.abc import Sequence

import structlog

from tidelog_server.recordlog.engine import PositionGoneError
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.recordlog.records import Kind, Position, Record, damaged
from tidelog_server.recordlog.rules import Fence, Reader, ReaderState, SnapshotPart, Taken
from tidelog_server.storage.engine.snapshot_format import PartsInOrder, SnapshotEnd, unfinished, unpack_end
from tidelog_server.storage.engine.view import View

_log = structlog.get_logger("tidelog_server.storage")


def load_newest(log: RecordLog, view: View, incarnation: bytes) -> None:
    """Load the newest snapshot that a record names into an empty view, which is then at its place; without one, return.

    Raises:
        PositionGoneError: It was trimmed meanwhile: a newer one is named by now. The view cannot be used.
        EngineUnavailableError: The engine does not answer.
        DataLossError: The snapshot is damaged.
    """
    gone: PositionGoneError | None = None
    for position in log.named_snapshots(incarnation):
        try:
            end = read_end(log, position)
            # Ordering: after the search, so that what is trimmed by now is not loaded.
            if end.place.next <= (begin := log.bounds().begin):
                raise PositionGoneError(end.place.next, begin)
        except PositionGoneError as error:
            # Named by a late record of a former owner: another record names a newer one.
            gone = error
            continue
        if end.place.state.incarnation != incarnation:
            raise damaged(position, "it is the end of a snapshot of another log")
        _load(log, view, position, end)
        return
    if gone is not None:
        raise gone


def read_end(log: RecordLog, position: Position) -> SnapshotEnd:
    """Return the end of the snapshot at ``position``, which a record names.

    Raises:
        PositionGoneError, EngineUnavailableError: As ``RecordLog.records``.
        DataLossError: It is not the end of a snapshot, or is damaged.
    """
    return unpack_end(position, _part_at(log, position).payload)


def _part_at(log: RecordLog, position: Position) -> Record:
    found = next(iter(log.records(position, 1)), None)
    if found is None or found[0] != position or found[1] is None or found[1].kind is not Kind.SNAPSHOT:
        raise damaged(position, "it is no part of the snapshot that a record names")
    return found[1]


def _load(log: RecordLog, view: View, position: Position, end: SnapshotEnd) -> None:
    first = _part_at(log, end.first)
    # A record that exists, because a snapshot that is named does: so this is the state of every reader there.
    state = ReaderState(first.incarnation, first.term, first.number, first.before, first.snapshot)
    loading = _Loading(view, end.first)
    view.begin_load()
    log.replay(Reader(state), end.first, position + 1, loading.take)
    if loading.parts.end is None:
        raise unfinished(end.first)
    view.end_load(end.place)
    _log.info("snapshot_loaded", position=position, as_of=end.place.next, size_bytes=end.size_bytes)


class _Loading:
    """Writes the parts of a snapshot into a view, and skips the groups between them: they are replayed after it."""

    def __init__(self, view: View, first: Position) -> None:
        self.parts = PartsInOrder(first)
        self._view = view
        self._rest = b""

    def take(self, taken: Sequence[Taken]) -> None:
        for each in taken:
            if isinstance(each, Fence):
                raise damaged(each.position, "it is a FENCE between the parts of the snapshot that a record names")
            if isinstance(each, SnapshotPart):
                self._take_part(each)

    def _take_part(self, part: SnapshotPart) -> None:
        payload = self.parts.take(part.position, part.part, part.payload, is_last=part.is_last)
        if payload is not None:
            payload = self._rest + payload
            self._rest = payload[self._view.load(payload) :]
        elif self._rest:
            raise damaged(part.position, f"{len(self._rest)} bytes before it are no row of the snapshot")
