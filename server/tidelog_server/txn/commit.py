"""Commits the staged batches of staged transactions: one atomic write of headers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tidelog_server.core.entries import NewEntry, TxnSpan
from tidelog_server.core.errors import Effect, TidelogServerError
from tidelog_server.core.ticks import NO_TICK, Tick
from tidelog_server.core.transactions import TxnOutcome, TxnRun
from tidelog_server.log.append import Settled, TickedAppend
from tidelog_server.log.batch import Conditions
from tidelog_server.log.channel_log import LogContext
from tidelog_server.log.protocols import ALONE, NOTHING_JOINED, Companions, settled_with
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.storage.rows import Row
from tidelog_server.txn.table import TxnSession, TxnTable

_Key = TypeVar("_Key")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class CommitTerms:
    """Options of a commit.

    Attributes:
        needs_sync: True if the acknowledgement waits for a sync.
        barrier_tick: Exclusive lower bound of every tick; NO_TICK if not set.
        conditions: Conditions on vchannels of the transaction, by id.
        expected_batches: Number of batches that the client has appended; None if not stated.
        companions: What is written with the commit.
    """

    needs_sync: bool = True
    barrier_tick: int = NO_TICK
    conditions: Mapping[int, Conditions] = field(default_factory=dict)
    expected_batches: int | None = None
    companions: Companions = ALONE


@dataclass(frozen=True, slots=True)
class TxnCommit:
    """A commit of one or several transactions.

    Attributes:
        sessions: Transactions to commit.
        terms: Options of the commit.
        app_changes: Called with the first tick; its changes are written with the rest.
        on_durable: Called with the first tick once the commit is durable.
    """

    sessions: Sequence[TxnSession]
    terms: CommitTerms
    app_changes: Callable[[int], list[Row]] = lambda _: []
    on_durable: Callable[[int], None] = lambda _: None

    @property
    def messages(self) -> int:
        """Number of messages to commit."""
        return sum(session.messages for session in self.sessions)


class CommitAppend(TickedAppend):
    """The append of a commit: headers, whose columns were staged before.

    Transactions follow each other in order. Messages of a vchannel get consecutive ticks in the order in which their
    batches arrived; vchannels follow in the order in which they joined. All share one span of ticks, so no watermark
    and no cut is between transactions that are committed together.

    Attributes:
        first_tick: Tick of the first message, after the submission; without messages, a tick that no message has.
        results: Outcome of each transaction, in order, after the submission.
    """

    __slots__ = ("_commit", "_node", "_table", "first_tick", "results")

    def __init__(self, node: LogContext, table: TxnTable, commit: TxnCommit, on_settled: Settled) -> None:
        """Create it; nothing is submitted yet."""
        assert all(session.is_committing for session in commit.sessions)
        assert len({session.txn_id for session in commit.sessions}) == len(commit.sessions)
        terms = commit.terms
        joined = terms.companions.joined
        needs_sync = terms.needs_sync or joined is not NOTHING_JOINED
        # At least one tick: the outcome of a transaction without messages also has a place in the order of commits.
        super().__init__(max(1, commit.messages) + joined.events, terms.barrier_tick, needs_sync, on_settled)
        self.first_tick = NO_TICK
        self.results: Sequence[TxnOutcome] = ()
        self._node = node
        self._table = table
        self._commit = commit

    def try_submit(self) -> bool:
        """See TickedAppend.

        Raises:
            ChannelNotExistError, StorageFailedError, ShutdownError, DiskFullError: Nothing happened.
            LastTickMismatchError, FencingTokenMismatchError: A condition does not hold. Nothing happened.
            TidelogServerError: See ``CommitTerms.companions``. Nothing happened.
        """
        node, table, commit = self._node, self._table, self._commit
        node.admission.check()
        sessions, terms, messages = commit.sessions, commit.terms, commit.messages
        for session in sessions:
            _check(session, terms)
        first_tick = node.oracle.try_allocate(self.ticks, self.barrier_tick)
        if first_tick is None:
            return False
        joined = terms.companions.joined
        joined_tick = first_tick + max(1, messages)
        joined.check(joined_tick)
        self.rows = terms.companions.move_positions()
        self.on_settled = settled_with(joined, self.on_settled)
        self.first_tick = first_tick
        self.results = _outcomes(sessions, first_tick, is_synced=self.needs_sync)
        entries: list[NewEntry] = []
        for session, outcome in zip(sessions, self.results, strict=True):
            entries += _entries(session, outcome, TxnSpan(session.txn_id, first_tick, first_tick + messages - 1))
        # The ticks of the entries are exactly those of the span.
        assert sum(entry.count for entry in entries) == messages
        assert not entries or entries[-1].base_tick + entries[-1].count == first_tick + messages
        written = [
            table.start_commit(session.txn_id, outcome) for session, outcome in zip(sessions, self.results, strict=True)
        ]
        self.rows = [*self.rows, *(row for rows in written for row in rows), *commit.app_changes(first_tick)]
        parts = (part for session in sessions for part in session.parts.values())
        targets = {part.target.vchannel.vchannel_id: part.target for part in parts}
        for entry in entries:
            target = targets[entry.vchannel_id]
            target.log.enter(target.vchannel, entry)
        self.entries = [*entries, *joined.enter(joined_tick, first_tick)]
        hit(Failpoint.TXN_COMMITTING)
        node.committer.submit(self)
        return True


async def answer_waiters(
    running: dict[_Key, "asyncio.Future[_Result]"], key: _Key, commit: Awaitable[_Result]
) -> _Result:
    """Await a commit, and pass its result or error to the calls that wait for ``running[key]``.

    A commit with an unknown outcome stays in ``running``: a retry gets its error until the server restarts.
    """
    waiters = running[key]
    try:
        result = await commit
    except TidelogServerError as error:
        if error.effect is Effect.NONE:
            del running[key]
        waiters.set_exception(error)
        # Retrieve the exception: asyncio logs exceptions that are never retrieved.
        waiters.exception()
        raise
    del running[key]
    waiters.set_result(result)
    return result


def _check(session: TxnSession, terms: CommitTerms) -> None:
    """Raise if the transaction cannot be committed."""
    for vchannel_id, part in session.parts.items():
        part.target.log.check_open()
        conditions = terms.conditions.get(vchannel_id)
        if conditions is not None:
            vchannel = part.target.vchannel
            conditions.check(vchannel.name, last_tick=vchannel.submitted_tick, fencing_token=vchannel.fencing_token)


def _outcomes(sessions: Sequence[TxnSession], first_tick: int, *, is_synced: bool) -> list[TxnOutcome]:
    outcomes: list[TxnOutcome] = []
    for session in sessions:
        runs = (TxnRun(vchannel_id, part.messages) for vchannel_id, part in session.parts.items() if part.batches)
        outcomes.append(TxnOutcome(first_tick, is_synced, tuple(runs), session.tenant))
        first_tick += session.messages
    return outcomes


def _entries(session: TxnSession, outcome: TxnOutcome, span: TxnSpan) -> list[NewEntry]:
    entries: list[NewEntry] = []
    tick = Tick(outcome.first_tick)
    for vchannel_id, part in session.parts.items():
        for messages, message_type, columns_crc32c, columns in part.batches:
            entries.append(NewEntry(vchannel_id, tick, messages, message_type, columns_crc32c, b"", span, columns))
            tick = Tick(tick + messages)
    return entries
