"""Prepared transactions: several clients stage messages, and one client commits them all, once.

A commit names an application and its version. Both are written in one atomic write with the messages, so a retry, by
any client and after any crash, finds the first commit done.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog_server.core.callers import Caller
from tidelog_server.core.errors import (
    BatchTooLargeError,
    InvalidRequestError,
    InvalidTransactionStateError,
    TransactionExpiredError,
)
from tidelog_server.core.limits import MIN_KEEPALIVE_US
from tidelog_server.core.shares import FloorTable
from tidelog_server.core.transactions import AppCommit, AppKey, TxnContent, TxnOutcome
from tidelog_server.log.node import LogNode
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.rows import Row
from tidelog_server.txn.applications import (
    AppCommits,
    AppTerms,
    AppVersion,
    check_same_content,
    check_same_messages,
)
from tidelog_server.txn.commit import CommitTerms, TxnCommit, answer_waiters
from tidelog_server.txn.rows import APP_COMMITS, FLOORS
from tidelog_server.txn.staged import Transactions
from tidelog_server.txn.table import TxnSession

# Time that a prepared transaction may wait for its commit.
MAX_PREPARED_KEEPALIVE_US: Final = 86_400_000_000
# Batches of the prepared transactions of one commit, which are committed in one step of the event loop.
MAX_PREPARED_BATCHES: Final = 16_384


class PreparedTxn(NamedTuple):
    """The identity of a prepared transaction.

    Attributes:
        txn_id: Id of the transaction.
        caller: Client that began it. Any client of the same principal that knows this client id may commit it.
    """

    txn_id: int
    caller: Caller


class CommittedPrepared(NamedTuple):
    """The result of committing prepared transactions.

    Attributes:
        commit: Position and content of the commit.
        is_repeated: True if the application had committed this version before.
    """

    commit: AppCommit
    is_repeated: bool


class PreparedTransactions:
    """The prepared transactions of a node. Lives on the event loop."""

    def __init__(self, node: LogNode, tasks: TaskOwner, transactions: Transactions) -> None:
        self._node = node
        self._tasks = tasks
        self._transactions = transactions
        self._apps: AppCommits
        # Commits in progress and commits with an unknown outcome, by ``AppVersion.key``.
        self._running: dict[AppKey, asyncio.Future[AppCommit]] = {}

    def open(self) -> None:
        """Load the commits of applications."""
        store, evictions = self._node.store, self._node.metrics.evictions

        def on_evicted(table: FloorTable, count: int) -> None:
            evictions.labels("applications" if table is FloorTable.APPS else "finished_applications").inc(count)

        self._apps = AppCommits(store.rows(APP_COMMITS), store.rows(FLOORS), on_evicted)

    def prepare(
        self, txn: PreparedTxn, app: AppVersion, *, expected_batches: int | None, keepalive_us: int
    ) -> TxnSession:
        """Prepare a transaction to be committed for ``app``.

        Its keepalive becomes ``keepalive_us`` microseconds, or stays the same if that is 0.

        Raises:
            InvalidRequestError: The transaction has no messages, or an argument is out of range.
            InvalidTransactionStateError: The transaction is prepared for another commit already.
            TidelogServerError: See ``TxnTable.session`` and ``check_whole``. Nothing happened.
        """
        app.check()
        if keepalive_us and not MIN_KEEPALIVE_US <= keepalive_us <= MAX_PREPARED_KEEPALIVE_US:
            raise InvalidRequestError(
                f"the keepalive is {keepalive_us} us, expected {MIN_KEEPALIVE_US} to {MAX_PREPARED_KEEPALIVE_US}, or 0 "
                "to keep that of the transaction",
                field="keepalive_us",
            )
        session = self._transactions.open_session(*txn)
        session.check_open()
        session.check_whole(expected_batches)
        if session.prepared_for not in {None, app}:
            session.check_not_prepared()
        if not session.batches:
            raise InvalidRequestError(f"transaction {txn.txn_id} has no messages: roll it back", field="txn_id")
        session.prepare(app)
        if keepalive_us:
            session.keepalive_s = keepalive_us / 1e6
        session.keep_alive(self._transactions.clock.now_s())
        return session

    async def commit(
        self,
        txns: Sequence[PreparedTxn],
        app: AppVersion,
        terms: CommitTerms,
        wait_s: float,
        app_terms: AppTerms = AppTerms(),  # noqa: B008 - immutable
    ) -> CommittedPrepared:
        """Commit prepared transactions together, once for each version of an application.

        Cancelling does not stop it. After an error with the effect none they remain prepared.

        Args:
            txns: The transactions, without duplicates.
            app: The application and its version, which is set.
            terms: Terms of the commit, without conditions.
            wait_s: Maximum wait for the barrier in seconds.
            app_terms: Further statements about the application.

        Raises:
            ApplicationForgottenError: See ``AppCommits.check_new``. Nothing happened.
            AppVersionPassedError, AppCommitMismatchError: See ``AppCommits.repeated``, and ``check_same_content`` for
                a retry. Nothing happened.
            TidelogServerError: See ``TxnTable.session`` and ``CommitAppend.try_submit``. Nothing happened.
            BarrierNotReachedError: The barrier was not reached within ``wait_s``. Nothing happened.
            StorageFailedError: See its effect.
        """
        app.check()
        app_terms.check()
        # Read the contents before the wait: the awaited commit may end these transactions as leftovers.
        contents = [self._transactions.table.content(*txn) for txn in txns]
        while (running := self._running.get(app.key)) is not None:
            if running.done():
                # Its outcome is unknown until the server restarts; this raises its error.
                await running
            await asyncio.wait([running])
        if (commit := self._apps.repeated(app, app_terms.query_id)) is not None:
            self._check_same(app, commit, txns, contents)
            self._end_leftovers(app, commit, txns)
            return CommittedPrepared(commit, is_repeated=True)
        if not app_terms.is_first:
            self._apps.check_new(app, is_last=app_terms.is_last, latest_tick=self._node.shared.oracle.last)
        sessions = [self._transactions.open_session(*txn) for txn in txns]
        for session in sessions:
            session.check_open()
            session.check_prepared(app)
        batches = sum(session.batches for session in sessions)
        if batches > MAX_PREPARED_BATCHES:
            raise BatchTooLargeError(actual=batches, maximum=MAX_PREPARED_BATCHES, unit="batches")
        for session in sessions:
            session.start_commit()
        self._running[app.key] = asyncio.get_running_loop().create_future()
        commit = await self._tasks.finish(self._commit(sessions, app, terms, wait_s, app_terms))
        return CommittedPrepared(commit, is_repeated=False)

    def roll_back(self, txns: Sequence[PreparedTxn]) -> None:
        """Roll back prepared transactions; those that have expired or were rolled back are skipped.

        Raises:
            InvalidTransactionStateError: One is committed, is being committed, or is not prepared. Nothing happened.
            TransactionForeignError: One belongs to another client of the principal. Nothing happened.
            TransactionNotExistError: One never existed, or belongs to another principal. Nothing happened.
        """
        sessions = [session for txn in txns if (session := self._still_open(txn)) is not None]
        for session in sessions:
            session.check_open()
            if session.prepared_for is None:
                raise InvalidTransactionStateError(
                    session.txn_id, state="not prepared", advice="its client must roll it back"
                )
        for session in sessions:
            self._transactions.end(session, "rolled_back")

    # -- Private -------------------------------------------------------------------------------------------

    def _check_same(
        self,
        app: AppVersion,
        commit: AppCommit,
        txns: Sequence[PreparedTxn],
        contents: Sequence[TxnContent | TxnOutcome | None],
    ) -> None:
        """Check that a retry of ``commit`` has the same content.

        Raises:
            AppCommitMismatchError: The content differs.
            TidelogServerError: A transaction's content is no longer known; the error states why.
        """
        outcomes = [content for content in contents if isinstance(content, TxnOutcome)]
        if outcomes and len(outcomes) == len(contents) and all(_is_within(commit, outcome) for outcome in outcomes):
            # All are transactions that this commit committed.
            check_same_messages(app, commit, sum(outcome.messages for outcome in outcomes))
            return
        total = TxnContent()
        for txn, content in zip(txns, contents, strict=True):
            if not isinstance(content, TxnContent):
                # This raises how the transaction ended.
                content = self._transactions.open_session(*txn).content  # noqa: PLW2901 - a name for the same
            total = total.plus(content)
        check_same_content(app, commit, total)

    def _still_open(self, txn: PreparedTxn) -> TxnSession | None:
        try:
            return self._transactions.open_session(*txn)
        except TransactionExpiredError:
            return None
        except InvalidTransactionStateError:
            if self._transactions.table.was_rolled_back(*txn):
                return None
            raise

    async def _commit(
        self,
        sessions: Sequence[TxnSession],
        app: AppVersion,
        terms: CommitTerms,
        wait_s: float,
        app_terms: AppTerms,
    ) -> AppCommit:
        total = TxnContent()
        for session in sessions:
            total = total.plus(session.content)

        def commit_at(first_tick: int) -> AppCommit:
            assert app.version is not None
            return AppCommit(
                app.version, first_tick, total.messages, terms.needs_sync, app_terms.is_last, app_terms.any_vchannel,
                app_terms.content(total), app_terms.query_id,
            )  # fmt: skip

        def app_changes(first_tick: int) -> list[Row]:
            return self._apps.committing(app, commit_at(first_tick))

        async def commit_once() -> AppCommit:
            committed = TxnCommit(sessions, terms, app_changes, lambda tick: self._apps.committed(app, commit_at(tick)))
            return commit_at((await self._transactions.commit_all(committed, wait_s)).first_tick)

        commit = await answer_waiters(self._running, app.key, commit_once())
        self._end_leftovers(app, commit, ())
        return commit

    def _end_leftovers(self, app: AppVersion, commit: AppCommit, named: Sequence[PreparedTxn]) -> None:
        """Roll back transactions prepared by other attempts at a commit: those in ``named``, and all leftovers.

        A transaction that began after the commit and has no version may belong to the next commit, because a retry may
        be late. It is rolled back only if named.
        """
        names = set(named)
        for session in list(self._transactions.table.open.values()):
            waits_for = session.prepared_for
            if waits_for is None or session.is_committing or not waits_for.is_covered_by(app):
                continue
            is_named = PreparedTxn(session.txn_id, session.caller) in names
            if is_named or waits_for.version is not None or session.txn_id < commit.first_tick:
                self._transactions.end(session, "rolled_back")


def _is_within(commit: AppCommit, outcome: TxnOutcome) -> bool:
    """Return True if ``commit`` includes the transaction of an outcome."""
    return commit.first_tick <= outcome.first_tick and outcome.last_tick <= commit.last_tick
