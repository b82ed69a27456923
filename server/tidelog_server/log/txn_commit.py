"""Committing what a begun transaction has staged: one atomic write of headers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelog_server.core.entries import NewEntry, TxnSpan
from tidelog_server.core.ticks import NO_TICK, Tick
from tidelog_server.core.transactions import TxnOutcome, TxnRun
from tidelog_server.log.channel_log import NodeLog
from tidelog_server.log.committer import PendingAppend, Settled
from tidelog_server.log.conditions import Conditions
from tidelog_server.log.transactions import MovePositions, no_positions
from tidelog_server.log.txn_table import TxnSession, TxnTable
from tidelog_server.runtime.failpoints import Failpoint, hit


@dataclass(frozen=True, slots=True)
class CommitTerms:
    """What is asked of a commit.

    Attributes:
        needs_sync: Whether the acknowledgement waits for a sync.
        barrier_tick: Every tick must be greater; NO_TICK for none.
        conditions: What must hold of vchannels of the transaction, by id.
        expected_batches: How many batches the client has appended; None if it does not say.
        move_positions: As for ``try_append_transaction``.
    """

    needs_sync: bool = True
    barrier_tick: int = NO_TICK
    conditions: Mapping[int, Conditions] = field(default_factory=dict)
    expected_batches: int | None = None
    move_positions: MovePositions = no_positions


@dataclass(frozen=True, slots=True)
class SubmittedCommit:
    """A commit on its way."""

    append: PendingAppend
    outcome: TxnOutcome


def try_commit(
    node: NodeLog, table: TxnTable, session: TxnSession, terms: CommitTerms, on_settled: Settled
) -> SubmittedCommit | None:
    """Submit the commit at once; None if the oracle cannot give ticks now: then ``prepare`` it and try again.

    Messages of one vchannel get consecutive ticks in the order in which their batches came; vchannels follow each
    other in the order in which they joined.

    Raises:
        ChannelNotExistError, StorageFailedError, ShutdownError, DiskFullError: Nothing happened.
        LastTickMismatchError, FencingTokenMismatchError: A condition does not hold. Nothing happened.
        TidelogServerError: As ``move_positions``. Nothing happened.
    """
    node.admission.check()
    for vchannel_id, lane in session.lanes.items():
        lane.target.log.check_open()
        conditions = terms.conditions.get(vchannel_id)
        if conditions is not None:
            vchannel = lane.target.vchannel
            conditions.check(vchannel.name, last_tick=vchannel.submitted_tick, fencing_token=vchannel.fencing_token)
    # One also for a transaction without messages: its outcome has a place in the order of commits.
    tick = node.oracle.try_allocate(max(1, session.messages), terms.barrier_tick)
    if tick is None:
        return None
    positions = terms.move_positions()
    runs = (TxnRun(vchannel_id, lane.messages) for vchannel_id, lane in session.lanes.items() if lane.batches)
    outcome = TxnOutcome(tick, terms.needs_sync, tuple(runs))
    entries = _entries(session, outcome)
    append = PendingAppend(
        entries, terms.needs_sync, on_settled, node.clock.monotonic_s(),
        outcomes=table.note_committing(session.txn_id, outcome), positions=positions,
    )  # fmt: skip
    for entry in entries:
        target = session.lanes[entry.vchannel_id].target
        target.log.enter(target.vchannel, entry)
    hit(Failpoint.TXN_COMMITTING)
    node.committer.submit(append)
    return SubmittedCommit(append, outcome)


def _entries(session: TxnSession, outcome: TxnOutcome) -> list[NewEntry]:
    span = TxnSpan(session.txn_id, outcome.first_tick, outcome.last_tick)
    entries: list[NewEntry] = []
    tick = Tick(outcome.first_tick)
    for vchannel_id, lane in session.lanes.items():
        for messages, message_type, columns_crc32c, columns in lane.batches:
            entries.append(NewEntry(vchannel_id, tick, messages, message_type, columns_crc32c, b"", span, columns))
            tick = Tick(tick + messages)
    return entries
