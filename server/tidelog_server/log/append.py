"""An append from its validation to its acknowledgement, and what it changes. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

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

Settled = Callable[["Append"], None]
"""Called once with a settled append, on the event loop, before those behind it are settled.

It must not raise: that would stop the log.
"""


class Append:
    """Entries and rows that are written atomically, and the outcome. Changed by the event loop only.

    Attributes:
        entries: Entries to write, together with the changes below.
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

    __slots__ = (
        "app_commits", "entries", "failure", "floors", "is_duplicate", "needs_sync", "on_settled", "outcomes",
        "positions", "repetitions", "settled", "staged", "started_s", "windows",
    )  # fmt: skip

    def __init__(
        self,
        entries: Sequence[NewEntry],
        needs_sync: bool,
        on_settled: Settled,
        *,
        windows: Sequence[WindowChange] = (),
        positions: Sequence[PositionChange] = (),
    ) -> None:
        self.entries = entries
        self.needs_sync = needs_sync
        self.on_settled = on_settled
        self.windows = windows
        self.positions = positions
        self.staged: Sequence[StagedBatch] = ()
        self.outcomes: Sequence[OutcomeChange] = ()
        self.app_commits: Sequence[AppChange] = ()
        self.floors: Sequence[FloorChange] = ()
        self.started_s = 0.0
        self.settled = False
        self.failure: LogFailure | None = None
        self.is_duplicate = False
        self.repetitions: list[Append] | None = None

    @property
    def has_side_rows(self) -> bool:
        """True if it changes more than entries."""
        return bool(self.windows or self.staged or self.outcomes or self.positions or self.app_commits or self.floors)


class TickedAppend(Append, ABC):
    """A validated append, which takes its ticks and makes its entries when it is submitted.

    Attributes:
        ticks: Number of ticks that it needs.
        barrier_tick: Exclusive lower bound of all of them; NO_TICK if not set.
    """

    __slots__ = ("barrier_tick", "ticks")

    def __init__(
        self,
        ticks: int,
        barrier_tick: int,
        needs_sync: bool,
        on_settled: Settled,
    ) -> None:
        super().__init__((), needs_sync, on_settled)
        self.ticks = ticks
        self.barrier_tick = barrier_tick

    @abstractmethod
    def try_submit(self) -> bool:
        """Submit it now; False if the oracle cannot allocate ticks now: then ``prepare`` it and try again.

        A retry of an append is not written again: it is settled with the first one, or before this returns.

        Raises:
            TidelogServerError: The append is refused. Nothing happened.
        """


def side_rows_of(appends: Sequence[Append]) -> SideRows:
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
