"""Writes rows into a log, and applies them to the view once they are confirmed."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog_server.core.errors import DataLossError, Effect, StorageFailedError
from tidelog_server.core.errors.cluster import LogFailure, OwnershipLostError
from tidelog_server.recordlog.engine import EngineUnavailableError
from tidelog_server.recordlog.record_log import RecordLog, Ticket
from tidelog_server.recordlog.records import EMPTY, Mark, Position
from tidelog_server.recordlog.rules import FencedError, TenureEndedError
from tidelog_server.storage.engine.operations import FAMILY_NUMBERS, RowBatch
from tidelog_server.storage.engine.view import FrozenView, View
from tidelog_server.storage.format.codec import TailRow
from tidelog_server.storage.format.data_folder import FORMAT
from tidelog_server.storage.log_store import StoreHead, WriteMark
from tidelog_server.storage.rocksdb.writer import NO_TAILS, RowWriter, Tails

# How long a wait for the engine lasts before it is looked whether the store was closed.
_LOOK_EVERY_S: Final = 0.5
_FORMAT_OF_VERSION_1: Final = 2
"""Newest format of rows in records of version 1. Rows of a later one need a later version of records."""
assert FORMAT == _FORMAT_OF_VERSION_1


class _Sent(NamedTuple):
    """A batch that was sent and not applied.

    ``sent_s``: when, on the clock of the log. ``size_bytes``: bytes of its payload.
    """

    mark: WriteMark
    sent_s: float
    size_bytes: int
    ticket: Ticket
    tails: Tails
    readers_first: bool


class EngineWriter(RowWriter):
    """Implements ``RowWriter``: a batch is sent by ``write``, confirmed by ``sync``, and then in the database.

    Threads: as ``LogStore``; a ``write`` may run during a ``sync``, which waits for the engine as long as it is silent.
    Parts of a snapshot are written by another thread, between groups, which may also sync.

    Attributes:
        tails: Tails of what is in the database.
        view: The view. Changed by the thread whose turn it is to confirm.
        appended_bytes, confirmed_bytes: Bytes that were sent, and of these those that are confirmed.
        on_confirmed: Called with the seconds from each write to its confirmation, by the thread that confirms.
    """

    writes_at_once = False

    def __init__(
        self,
        name: str,
        view: View,
        log: RecordLog,
        tails: dict[int, TailRow],
        *,
        mark: Mark,
        snapshot: Position | None,
    ) -> None:
        """Continue a log that this process has claimed and applied.

        Args:
            name: Name of the log, for errors.
            view: Its view.
            log: The log.
            tails: Tails of the view.
            mark: The store as of the view.
            snapshot: The newest snapshot that a record names.
        """
        super().__init__(view.engine, FAMILY_NUMBERS, RowBatch)
        self.tails = tails
        self._name = name
        self.view = view
        self._log = log
        # Held while something is appended: guards the next four.
        self._append_lock = threading.Lock()
        self._mark = mark
        self._snapshot = snapshot
        self._last: WriteMark = 0
        # In order; added by the threads that append, removed by the one that confirms.
        self._sent: deque[_Sent] = deque()
        # Whether a thread confirms the oldest batch. The committer syncs, the thread of a snapshot, and at the start
        # threads that read rows; each waits for its own batch only.
        self._is_confirming = self._is_freezing = False
        self._confirmed = threading.Condition()
        self.appended_bytes = self.confirmed_bytes = 0
        self.on_confirmed: Callable[[float], None] = lambda _: None

    def write(
        self, batch: RowBatch, tails: Tails = NO_TAILS, *, readers_first: bool = False, head: StoreHead | None = None
    ) -> WriteMark:
        """See ``RowWriter``. A batch without changes is covered by the mark of the one before it."""
        self.check_works(Effect.UNKNOWN)
        payload = batch.payload()
        if not payload:
            return self._last
        with self._append_lock:
            after = self._mark if head is None else mark_of(head)
            ticket = self._appended(lambda: self._log.append(payload, self._mark, after, self._snapshot))
            self._mark = after
            return self._note_sent(ticket, len(payload), dict(tails), readers_first=readers_first)

    def write_part(self, part: int, payload: bytes, *, is_last: bool) -> Ticket:
        """Write a part of a snapshot, and return once it is confirmed. Called by the thread of the snapshot.

        Raises:
            StorageFailedError, OwnershipLostError: The store has stopped.
        """
        self.check_works(Effect.UNKNOWN)
        with self._append_lock:
            ticket = self._appended(
                lambda: self._log.append_part(part, payload, self._mark, self._snapshot, is_last=is_last)
            )
            mark = self._note_sent(ticket, len(payload), NO_TAILS)
        self.sync(mark)
        return ticket

    def check_owned(self) -> None:
        """Return if no other process owned the log when this was called. Any thread.

        Raises:
            OwnershipLostError: Another one does: the store has stopped.
            StorageFailedError: The store has stopped.
        """
        self.name_snapshot(None)

    def name_snapshot(self, snapshot: Position | None) -> None:
        """Name a snapshot in each later record, and return once one of them is confirmed.

        It is a record without a change, because the next change may come late.

        Args:
            snapshot: Position of its last part, which is confirmed; None for the snapshot that was named before.

        Raises:
            StorageFailedError, OwnershipLostError: The store has stopped.
        """
        self.check_works(Effect.UNKNOWN)
        with self._append_lock:
            self._snapshot = self._snapshot if snapshot is None else snapshot
            ticket = self._appended(lambda: self._log.append(b"", self._mark, self._mark, self._snapshot))
            mark = self._note_sent(ticket, 0, NO_TAILS)
        self.sync(mark)

    def freeze(self) -> FrozenView:
        """Return all rows as of now. Any thread.

        Raises:
            StorageFailedError, OwnershipLostError: The store has stopped.
            DataLossError, StorageUnreadableError: The database could not be read.
        """
        with self._confirmed:
            # Before those that wait for a turn: under load there is always one.
            self._is_freezing = True
            try:
                while self._is_confirming:
                    self._confirmed.wait()
                self.check_works(Effect.UNKNOWN)
                return self.view.freeze()
            finally:
                self._is_freezing = False
                self._confirmed.notify_all()

    def sync(self, mark: WriteMark | None = None) -> None:
        """See ``LogStore.sync``. What is confirmed is in the database, and readers see it."""
        mark = self._last if mark is None else mark
        while self._gets_turn(mark):
            try:
                sent = self._sent[0]
                self._confirm(sent.ticket)
                self._apply_confirmed(sent)
            finally:
                self._end_turn()

    def sync_soon(self, mark: WriteMark, within_s: float) -> bool:
        """See ``LogStore.sync_soon``; False, too, if the oldest batch is another one."""
        with self._confirmed:
            self.check_works(Effect.UNKNOWN)
            if self._is_confirming or self._is_freezing or not self._sent or self._sent[0].mark != mark:
                return False
            self._is_confirming = True
        try:
            is_confirmed = self._log.confirm_soon(self._sent[0].ticket, within_s)
            if is_confirmed:
                self._apply_confirmed(self._sent[0])
            return is_confirmed
        finally:
            self._end_turn()

    def _apply_confirmed(self, sent: _Sent) -> None:
        self.on_confirmed(self._log.clock.monotonic_s() - sent.sent_s)
        self._apply(sent)
        self._sent.popleft()
        self.confirmed_bytes += sent.size_bytes

    def _end_turn(self) -> None:
        with self._confirmed:
            self._is_confirming = False
            self._confirmed.notify_all()

    @property
    def term(self) -> int:
        """Term of this owner."""
        return self.view.state.term

    @property
    def end(self) -> Position:
        """Position behind what is in the database."""
        return self.view.next

    def unconfirmed_s(self) -> float:
        """See ``LogStore.unconfirmed_s``."""
        try:
            oldest = self._sent[0]
        except IndexError:
            return 0.0
        return self._log.clock.monotonic_s() - oldest.sent_s

    def raise_format(self, number: int, what: str) -> None:
        """See ``RowWriter``: the version of the records says which rows they may have."""
        assert number <= _FORMAT_OF_VERSION_1, f"{what} has rows of format {number}"

    def close(self) -> None:
        """See ``RowWriter``. A sync in another thread ends, and this returns after it."""
        self.fail("the store is closed")
        with self._confirmed:
            # Ordering: what it uses, the log and the database, is closed next.
            while self._is_confirming:
                self._confirmed.wait()

    def _appended(self, append: Callable[[], Ticket]) -> Ticket:
        try:
            return append()
        except (FencedError, TenureEndedError, DataLossError) as error:
            raise self._stopped_by(error) from error

    def _note_sent(self, ticket: Ticket, size_bytes: int, tails: Tails, *, readers_first: bool = False) -> WriteMark:
        self._last += 1
        self.appended_bytes += size_bytes
        sent_s = self._log.clock.monotonic_s()
        self._sent.append(_Sent(self._last, sent_s, size_bytes, ticket, tails, readers_first))
        return self._last

    def _gets_turn(self, mark: WriteMark) -> bool:
        """Wait until this thread may confirm the oldest batch; return False once that of ``mark`` is applied."""
        with self._confirmed:
            while True:
                self.check_works(Effect.UNKNOWN)
                if not self._sent or mark < self._sent[0].mark:
                    return False
                if not self._is_confirming and not self._is_freezing:
                    self._is_confirming = True
                    return True
                self._confirmed.wait()

    def _confirm(self, ticket: Ticket) -> None:
        try:
            while not is_confirmed(self._log, ticket):
                # Stopped by another thread.
                self.check_works(Effect.UNKNOWN)
        except (FencedError, TenureEndedError, DataLossError) as error:
            raise self._stopped_by(error) from error

    def _apply(self, sent: _Sent) -> None:
        # Ordering: see EntryReader.
        if sent.readers_first:
            self._change_tails(sent.tails)
        try:
            self._or_stop("applying a group to the view", lambda: self.view.apply(sent.ticket.completed))
        except DataLossError as error:
            raise self._stopped_by(error) from error
        if not sent.readers_first:
            self._change_tails(sent.tails)

    def _change_tails(self, tails: Tails) -> None:
        for vchannel_id, tail in tails.items():
            if tail is None:
                self.tails.pop(vchannel_id, None)
            else:
                self.tails[vchannel_id] = tail

    def _stopped_by(self, error: FencedError | TenureEndedError | DataLossError) -> LogFailure:
        """Stop the store; return what to raise."""
        failure: LogFailure
        if isinstance(error, FencedError):
            failure = OwnershipLostError.by_claim(self._name, error.by_term)
        elif isinstance(error, TenureEndedError):
            failure = OwnershipLostError.by_unknown_record(self._name, str(error))
        else:
            failure = StorageFailedError(f"log '{self._name}': {error}", is_damage=True)
        return self.fail_by(failure).with_effect(Effect.UNKNOWN)


def is_confirmed(log: RecordLog, ticket: Ticket) -> bool:
    """Return whether a ticket is confirmed within a short time; False while the engine is silent.

    Nothing is known to be wrong with the log then: what was sent is confirmed once the engine answers.

    Raises:
        FencedError, TenureEndedError, DataLossError: See ``RecordLog.wait``.
    """
    try:
        return log.wait(ticket, _LOOK_EVERY_S)
    except EngineUnavailableError:
        return False


def mark_of(head: StoreHead) -> Mark:
    """Return how the records of a log name a store with this head."""
    # Before the first entry, the chain hash of the store is not that of an entry.
    return Mark(head.sequence, head.chain_hash) if head.sequence else EMPTY
