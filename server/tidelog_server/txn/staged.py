"""Staged transactions: drives their table by requests, time and results of the log."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

import structlog
from crc32c import crc32c

from tidelog_server.core.callers import Caller
from tidelog_server.core.entries import StagedBatch
from tidelog_server.core.errors import (
    ChannelNotExistError,
    Effect,
    InvalidRequestError,
    VchannelNotInTransactionError,
)
from tidelog_server.core.limits import MAX_KEEPALIVE_US, MAX_TXN_VCHANNELS, MIB, MIN_KEEPALIVE_US
from tidelog_server.core.message_checks import check_at_most
from tidelog_server.core.shares import FloorTable, floors_of
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.core.transactions import TxnOutcome
from tidelog_server.log.append import Append, Settled, TickedAppend
from tidelog_server.log.batch import Batch
from tidelog_server.log.channel_log import ChannelLog
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Place
from tidelog_server.runtime.clock import AwakeClock
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.txn.commit import CommitAppend, CommitTerms, TxnCommit, answer_waiters
from tidelog_server.txn.rows import FLOORS, OUTCOMES
from tidelog_server.txn.table import BatchOfTxn, EndCause, TxnSession, TxnTable

# Maximum delay of an expiry if no request concerns the transaction.
_SWEEP_EVERY_S: Final = 0.25
# Maximum time that a pause of this process counts towards a keepalive; greater than the delay of a busy event loop.
_MAX_PAUSE_S: Final = 2 * _SWEEP_EVERY_S
# Disk space is reclaimed once this number of bytes of staged batches was discarded.
_RECLAIM_AT_BYTES: Final = 64 * MIB
# Batches discarded per job: the committer writes nothing else during a job.
_DISCARDED_AT_ONCE: Final = 256
_log = structlog.get_logger()


class Committed(NamedTuple):
    """The result of a commit.

    Attributes:
        outcome: Position of the transaction in the log.
        is_repeated: True if another call committed the transaction, or is committing it.
    """

    outcome: TxnOutcome
    is_repeated: bool


class StagingAppend(TickedAppend):
    """A batch of a staged transaction. It needs no ticks, because the commit takes them.

    Attributes:
        place: The transaction, and the sequence of the batch.
        target: Vchannel of the batch.
        batch: The batch.
    """

    __slots__ = ("_transactions", "batch", "place", "target")

    def __init__(
        self, transactions: "Transactions", place: BatchOfTxn, target: Place, batch: Batch, on_settled: Settled
    ) -> None:
        """Create it; nothing is staged yet."""
        super().__init__(0, NO_TICK, False, on_settled)
        self.place = place
        self.target = target
        self.batch = batch
        self._transactions = transactions

    def try_submit(self) -> bool:
        """See TickedAppend and ``Transactions.stage``. Always True."""
        self._transactions.stage(self)
        return True


class Transactions:
    """The staged transactions of a node. Lives on the event loop.

    Attributes:
        table: All that this node knows of.
        clock: The clock for keepalives.
    """

    def __init__(self, node: LogNode, tasks: TaskOwner, on_disk_freed: Callable[[], None]) -> None:
        """``on_disk_freed`` is called whenever enough batches were discarded to reclaim their disk space."""
        self._node = node
        self._tasks = tasks
        self._on_disk_freed = on_disk_freed
        self.table: TxnTable
        self.clock: AwakeClock
        # Commits in progress and commits with an unknown outcome, by id.
        self._commits: dict[int, asyncio.Future[TxnOutcome]] = {}
        # Ended transactions whose batches are not discarded yet.
        self._discarding: list[TxnSession] = []
        self._discard_due = asyncio.Event()
        self._discarded_bytes = 0

    async def open(self) -> None:
        """Discard batches that an earlier run left behind, and start expiring transactions."""
        store, limits = self._node.store, self._node.admission.limits
        leftovers = store.staged()
        if leftovers:
            await self._node.committer.run(lambda: store.discard(dict.fromkeys(leftovers)))
            _log.info("open_transactions_discarded", places=len(leftovers))
            self._on_disk_freed()
        self.table = TxnTable(
            limits, store.rows(OUTCOMES), self._node.shared.oracle.last + 1,
            floors_of(store.rows(FLOORS), FloorTable.OUTCOMES), self._node.metrics.evictions.labels("outcomes").inc,
        )  # fmt: skip
        self.clock = AwakeClock(self._node.shared.clock, _MAX_PAUSE_S)
        self._tasks.keep("transactions", self._sweep())
        self._tasks.keep("discarded transactions", self._discard())

    async def begin(self, targets: Sequence[Place], keepalive_us: int, caller: Caller) -> TxnSession:
        """Begin a transaction on ``targets``; if empty, on the vchannels to which it appends.

        Raises:
            InvalidRequestError: Too many vchannels, or a keepalive (in microseconds, 0 for the default) out of range.
            RateLimitRejectedError: Too many transactions are open.
            StorageFailedError, ShutdownError, DiskFullError: See Admission.
        """
        admission = self._node.admission
        admission.check()
        check_at_most(
            len(targets), MAX_TXN_VCHANNELS, "vchannels", "the transaction has {value} vchannels", advice=": name fewer"
        )
        if keepalive_us and not MIN_KEEPALIVE_US <= keepalive_us <= MAX_KEEPALIVE_US:
            raise InvalidRequestError(
                f"the keepalive is {keepalive_us} us, expected {MIN_KEEPALIVE_US} to {MAX_KEEPALIVE_US}, or 0 for the "
                f"server's {admission.limits.txn_keepalive_ms} ms",
                field="keepalive_us",
            )
        keepalive_s = keepalive_us / 1e6 if keepalive_us else admission.limits.txn_keepalive_ms / 1e3
        self.table.check_room(caller)
        txn_id = await self._node.shared.oracle.allocate(1)
        # Check again: other transactions may have begun meanwhile.
        self.table.check_room(caller)
        session = self.table.begin(txn_id, caller, targets, keepalive_s, self.clock.now_s())
        hit(Failpoint.TXN_BEGUN)
        return session

    def stage(self, append: StagingAppend) -> None:
        """Stage a batch; it settles once written, and the transaction's commit makes it durable.

        A batch whose sequence was staged before is a retry, and settles before this returns.

        Raises:
            TidelogServerError: See ``TxnTable.session``, ``TxnTable.stage`` and ``TxnSession.is_repeated``. Nothing
                happened.
        """
        self._node.admission.check()
        target, batch = append.target, append.batch
        target.log.check_open()
        txn_id, caller, sequence = append.place
        session = self.open_session(txn_id, caller)
        session.check_open()
        session.check_not_prepared()
        # A client whose batch is refused is alive.
        session.keep_alive(self.clock.now_s())
        vchannel_id = target.vchannel.vchannel_id
        is_repeated = session.is_repeated(vchannel_id, batch, sequence)
        if not is_repeated:
            sequence = self.table.stage(session, target, batch, crc32c(batch.columns))
        append.staged = (StagedBatch(vchannel_id, txn_id, sequence, batch.columns),)
        append.is_duplicate = is_repeated
        if is_repeated:
            # The first one is written before any commit submitted after it.
            append.settled = True
            append.on_settled(append)
        else:
            self._node.admission.note_submitted(len(batch.columns))
            self._node.committer.submit(append)

    def keep_alive(self, txn_id: int, caller: Caller) -> TxnSession:
        """Restart the keepalive of a transaction, also during its commit. Raises as ``TxnTable.session``."""
        session = self.open_session(txn_id, caller)
        session.keep_alive(self.clock.now_s())
        return session

    def roll_back(self, txn_id: int, caller: Caller) -> None:
        """Roll back a transaction. Idempotent. Raises as ``TxnTable.session``."""
        if self.table.was_rolled_back(txn_id, caller):
            return
        session = self.open_session(txn_id, caller)
        session.check_open()
        self.end(session, "rolled_back")

    def abort(self, txn_id: int, reason: str) -> None:
        """Abort a transaction of any client, for an operator; audited. Raises as ``TxnTable.session``."""
        session = self.open_session(txn_id, None)
        session.check_open()
        self.end(session, "aborted")
        _log.warning("transaction_aborted", txn_id=txn_id, caller=str(session.caller), reason=reason)

    async def commit(
        self, txn_id: int, caller: Caller, terms_of: Callable[[], CommitTerms], wait_s: float
    ) -> Committed:
        """Commit a transaction and return its outcome; a retry returns the same outcome.

        Cancelling does not stop it. After an error with the effect none the transaction remains open.

        Args:
            txn_id: Id of the transaction.
            caller: The requesting client.
            terms_of: Returns the terms of the commit; not called if the transaction is committed or being committed.
            wait_s: Maximum wait for the barrier in seconds.

        Raises:
            TidelogServerError: See ``TxnTable.session``, ``check_whole`` and ``CommitAppend.try_submit``. Nothing
                happened.
            BarrierNotReachedError: The barrier was not reached within ``wait_s``. Nothing happened.
            TransactionOutcomeForgottenError: The transaction may have been committed, but its outcome was evicted.
            StorageFailedError: See its effect.
        """
        self._expire(txn_id)
        found = self.table.find(txn_id, caller)
        if isinstance(found, TxnOutcome):
            return Committed(found, is_repeated=True)
        session = self.open_session(txn_id, caller)
        session.check_not_prepared()
        if txn_id not in self._commits:
            # A client whose commit is refused is alive.
            session.keep_alive(self.clock.now_s())
            terms = terms_of()
            session.check_whole(terms.expected_batches)
            for vchannel_id in terms.conditions.keys() - session.parts.keys():
                name = self._node.vchannel_name(vchannel_id) or f"vchannel id {vchannel_id}"
                raise VchannelNotInTransactionError(txn_id, name)
            self._commits[txn_id] = asyncio.get_running_loop().create_future()
            session.start_commit()
            commit = self._commit_one(session, terms, wait_s)
            outcome = await self._tasks.finish(answer_waiters(self._commits, txn_id, commit))
            return Committed(outcome, is_repeated=False)
        return Committed(await asyncio.shield(self._commits[txn_id]), is_repeated=True)

    def describe(self, txn_id: int) -> TxnSession | TxnOutcome:
        """Return an open transaction or the outcome of a committed one. Raises as ``TxnTable.session``."""
        self._expire(txn_id)
        found = self.table.find(txn_id, None)
        return found if isinstance(found, TxnOutcome) else self.open_session(txn_id, None)

    def list(self, after_id: int = 0, count: int | None = None) -> "list[TxnSession]":
        """Return up to ``count`` open transactions with ids above ``after_id``, oldest first."""
        self._expire_all()
        # The table is in order of beginning, which is that of the ids.
        sessions = (session for session in self.table.open.values() if session.txn_id > after_id)
        return list(islice(sessions, count))

    def channel_destroyed(self, log: ChannelLog) -> None:
        """End the transactions on a destroyed channel, except those whose commit is already in progress."""
        for session in self.table.on_vchannels(vchannel.vchannel_id for vchannel in log.vchannels):
            if not session.is_committing:
                self.end(session, "channel_destroyed")

    def refresh_metrics(self) -> None:
        """Update the gauges."""
        metrics = self._node.metrics
        metrics.open_txns.set(len(self.table.open))
        metrics.staged_bytes.set(self.table.staged_bytes)

    # -- For prepared transactions -----------------------------------------------------------------------------

    def open_session(self, txn_id: int, caller: Caller | None) -> TxnSession:
        """Return an open transaction. Raises as ``TxnTable.session``."""
        self._expire(txn_id)
        return self.table.session(txn_id, caller, self._node.shared.oracle.last)

    def end(self, session: TxnSession, cause: EndCause) -> None:
        """End an open transaction without a commit, and schedule its batches for discarding."""
        self.table.end(session, cause)
        self._node.metrics.txns_ended.labels(cause).inc()
        self._discarding.append(session)
        self._discard_due.set()

    async def commit_all(self, commit: TxnCommit, wait_s: float) -> CommitAppend:
        """Commit transactions that are marked as committing, and return once the commit is durable.

        Raises:
            TidelogServerError: See ``CommitAppend.try_submit``. Nothing happened, and the transactions remain open.
            BarrierNotReachedError: The barrier was not reached within ``wait_s``. Nothing happened.
            StorageFailedError: See its effect.
        """
        settled = asyncio.Event()

        def on_settled(_: Append) -> None:
            if append.failure is None:
                hit(Failpoint.TXN_COMMITTED)
                for session, outcome in zip(commit.sessions, append.results, strict=True):
                    self.table.finish_commit(session, outcome)
                commit.on_durable(append.first_tick)
                self._node.metrics.txns_ended.labels("committed").inc(len(commit.sessions))
            settled.set()

        append = CommitAppend(self._node.shared, self.table, commit, on_settled)
        await self._submit(append, commit.sessions, wait_s)
        await settled.wait()
        if append.failure is not None:
            raise append.failure.with_effect(Effect.UNKNOWN)
        return append

    # -- Private -------------------------------------------------------------------------------------------

    def _expire(self, txn_id: int) -> None:
        """End a transaction if its keepalive has run out, so that requests need not wait for the sweep."""
        session = self.table.open.get(txn_id)
        if session is not None and not session.is_committing and session.expires_s <= self.clock.now_s():
            self.end(session, "keepalive")

    def _expire_all(self) -> None:
        for session in self.table.expired(self.clock.now_s()):
            self.end(session, "keepalive")

    async def _submit(self, append: CommitAppend, sessions: Sequence[TxnSession], wait_s: float) -> None:
        """Submit a commit once its ticks are available. If this raises, the transactions remain open."""
        try:
            await self._node.shared.submit(append, wait_s)
        except BaseException as error:
            for session in sessions:
                session.refuse_commit()
                session.keep_alive(self.clock.now_s())
                if isinstance(error, ChannelNotExistError) and session.has_closed_channel:
                    self.end(session, "channel_destroyed")
            raise

    async def _commit_one(self, session: TxnSession, terms: CommitTerms, wait_s: float) -> TxnOutcome:
        return (await self.commit_all(TxnCommit([session], terms), wait_s)).results[0]

    async def _sweep(self) -> None:
        """End expired transactions periodically. Never returns."""
        while True:
            # Before the first sleep, because the clock stands still if the recovery has taken long.
            self.clock.beat()
            self._expire_all()
            await asyncio.sleep(_SWEEP_EVERY_S)

    async def _discard(self) -> None:
        """Discard the staged batches of ended transactions, in bulk. Never returns."""
        store = self._node.store
        while True:
            await self._discard_due.wait()
            self._discard_due.clear()
            sessions, self._discarding = self._discarding, []
            places = [place for session in sessions for place in session.places.items()]
            for begin in range(0, len(places), _DISCARDED_AT_ONCE):
                await self._node.committer.run(partial(store.discard, dict(places[begin : begin + _DISCARDED_AT_ONCE])))
            for session in sessions:
                self.table.release_staged(session)
                self._discarded_bytes += session.size_bytes
            if self._discarded_bytes >= _RECLAIM_AT_BYTES:
                self._discarded_bytes = 0
                self._on_disk_freed()


def check_targets(targets: Sequence[Place]) -> None:
    """Raise InvalidRequestError if a vchannel is named twice."""
    seen: set[int] = set()
    for target in targets:
        if target.vchannel.vchannel_id in seen:
            raise InvalidRequestError(
                f"the transaction names {target.vchannel.name} twice: name it once", field="vchannels"
            )
        seen.add(target.vchannel.vchannel_id)
