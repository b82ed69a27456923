"""An append between the allocation of its tick and its acknowledgement, and what it changes. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidelog_server.core.entries import NewEntry, StagedBatch
from tidelog_server.core.errors.cluster import LogFailure
from tidelog_server.core.groups import GroupKey, GroupPosition
from tidelog_server.core.producers import ProducerKey, ProducerWindow
from tidelog_server.core.shares import FloorChange
from tidelog_server.core.transactions import AppCommit, AppKey, TxnOutcome
from tidelog_server.storage.log_store import NO_SIDE_ROWS, SideRows

WindowChange = tuple[ProducerKey, ProducerWindow | None]
"""A producer's window after a batch, or None to delete it."""

OutcomeChange = tuple[int, TxnOutcome | None]
"""A staged transaction and its outcome, or None to delete it."""

AppChange = tuple[AppKey, AppCommit | None]
"""An application and its last commit, or None to delete it."""

PositionChange = tuple[GroupKey, GroupPosition | None]
"""A consumer group's position, or None to delete it."""

Settled = Callable[["PendingAppend"], None]
"""Called once with a settled append, on the event loop, before those behind it are settled.

It must not raise: that would stop the log.
"""


@dataclass(slots=True, eq=False)
class PendingAppend:
    """An append between the allocation of its tick and its acknowledgement. Changed by the event loop only.

    Attributes:
        entries: Entries to write atomically, together with the changes below.
        needs_sync: True if the acknowledgement waits for a sync.
        on_settled: Called once on the event loop, after ``settled`` is set.
        started_s: Time of submission on the committer's clock, set by the committer.
        settled: True once the outcome is known.
        failure: Cause if it was not acknowledged.
        windows: Windows of the entries' producer, if one is named.
        staged: Batches of a staged transaction; then there are no entries.
        outcomes: Outcomes of staged transactions that the entries commit.
        positions: Positions of consumer groups, with entries or alone.
        app_commits: Last commits of applications, with the entries of prepared transactions.
        floors: Floors of tables from which this append evicts.
        is_duplicate: True for a retry of an earlier append, which is not written itself.
        repetitions: Retries of this append, settled after it.
    """

    entries: Sequence[NewEntry]
    needs_sync: bool
    on_settled: Settled
    started_s: float = field(default=0.0, init=False)
    settled: bool = False
    failure: LogFailure | None = None
    windows: Sequence[WindowChange] = ()
    staged: Sequence[StagedBatch] = ()
    outcomes: Sequence[OutcomeChange] = ()
    positions: Sequence[PositionChange] = ()
    app_commits: Sequence[AppChange] = ()
    floors: Sequence[FloorChange] = ()
    is_duplicate: bool = False
    repetitions: "list[PendingAppend] | None" = None

    @property
    def has_side_rows(self) -> bool:
        """True if it changes more than entries."""
        return bool(self.windows or self.staged or self.outcomes or self.positions or self.app_commits or self.floors)


def side_rows_of(appends: Sequence[PendingAppend]) -> SideRows:
    """Return the changes that are written together with the entries of a group."""
    appends = [append for append in appends if append.has_side_rows]
    if not appends:
        return NO_SIDE_ROWS
    # Later changes replace earlier ones.
    windows = dict(change for append in appends for change in append.windows)
    outcomes = dict(change for append in appends for change in append.outcomes)
    positions = dict(change for append in appends for change in append.positions)
    staged = [batch for append in appends for batch in append.staged]
    app_commits = dict(change for append in appends for change in append.app_commits)
    floors = dict(change for append in appends for change in append.floors)
    return SideRows(windows, staged, outcomes, positions, app_commits, floors)
