"""An append from its validation to its acknowledgement, and what it changes. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from tidelog_server.core.entries import NewEntry, StagedBatch
from tidelog_server.core.errors.cluster import LogFailure
from tidelog_server.storage.rows import Row

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
        rows: Changes of rows of tables, with entries or alone.
        staged: Batches of a staged transaction; then there are no entries.
        is_duplicate: True for a retry of an earlier append, which is not written itself.
        repetitions: Retries of this append, settled after it.
    """

    __slots__ = (
        "entries", "failure", "is_duplicate", "needs_sync", "on_settled", "repetitions", "rows", "settled", "staged",
        "started_s",
    )  # fmt: skip

    def __init__(
        self, entries: Sequence[NewEntry], needs_sync: bool, on_settled: Settled, *, rows: Sequence[Row] = ()
    ) -> None:
        self.entries = entries
        self.needs_sync = needs_sync
        self.on_settled = on_settled
        self.rows = rows
        self.staged: Sequence[StagedBatch] = ()
        self.started_s = 0.0
        self.settled = False
        self.failure: LogFailure | None = None
        self.is_duplicate = False
        self.repetitions: list[Append] | None = None

    @property
    def vchannels_of_channel(self) -> int:
        """Number of vchannels of its channel; 0 if it has several channels, or none."""
        return 0


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


def rows_of(appends: Sequence[Append]) -> Sequence[Row]:
    """Return the changes of rows that are written together with the entries of a group, one for each row."""
    # Of the windows of a pipelined producer only the last one is packed.
    return list({(row.table, row.key): row for append in appends for row in append.rows}.values())
