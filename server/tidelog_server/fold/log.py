"""Drives one folded log: executes operations in steps, and writes the events of a step as one entry.

Operations that arrive in the same turn of the event loop share a step, an entry and a sync. A step changes the state in
memory when its events are submitted, because they precede all later ones in the log in any case; it answers once they
are durable. If the log fails, operations whose events were submitted are answered with an unknown effect, all others
with none, and a restart replays what is durable. A bug within a step may leave a state that contradicts the log, so it
stops the log, as bugs of the committer do.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from tidelog_server.core.entries import NewEntry, TxnSpan
from tidelog_server.core.errors import Effect, ShutdownError, TidelogServerError
from tidelog_server.core.limits import MIB
from tidelog_server.core.ticks import Tick
from tidelog_server.fold.calls import Answers, Call, Result
from tidelog_server.fold.events import EventCodec, Outbox
from tidelog_server.fold.loading import Fold, Loaded, State
from tidelog_server.log.append import Append
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Place
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.rows import Row

# Limits of one step. A larger one would hold the event loop for longer.
_MAX_STEP_EVENTS: Final = 2_000
_MAX_STEP_BYTES: Final = 2 * MIB


class FoldStep(Protocol):
    """One step, as its operations see it: the state, and the events that change it."""

    @property
    def outbox(self) -> Outbox:
        """Receives the events."""
        ...


Step = TypeVar("Step", bound=FoldStep)


class FoldLog(ABC, Generic[State, Step]):
    """A state and its log on their owner. Lives on the event loop; nothing here blocks.

    Invariant: events are submitted in the order in which the state has changed.

    Attributes:
        fold: How the state follows from the log.
        place: Its vchannel.
        state: The state, including what is submitted and not durable yet.
        written_bytes: Bytes of events since the last snapshot, which a start would replay.
        changes: What these events change.
        snapshot_tick, snapshot_bytes: Tick and size of the last complete snapshot; 0 without one.
        unsettled: Steps whose events were submitted and are not settled, in order; one is added before its submission.
        copied_ratio: Bytes of bodies in the log, in proportion to what its ``Keeper`` assumes; at least 1.
    """

    fold: Fold[State]

    def __init__(self, node: LogNode, tasks: TaskOwner, codec: EventCodec, place: Place, loaded: Loaded[State]) -> None:
        self.place = place
        self.state = loaded.state
        self.written_bytes = loaded.written_bytes
        self.changes = loaded.changes
        self.snapshot_tick = loaded.snapshot_tick
        self.snapshot_bytes = loaded.snapshot_bytes
        self.copied_ratio = 1.0
        self._node = node
        self._tasks = tasks
        self._codec = codec
        self._loop = asyncio.get_running_loop()
        self._calls: deque[Call[Any]] = deque()
        self.unsettled: deque[Answers] = deque()
        self._is_scheduled = False

    async def run(self, call: Call[Result]) -> Result:
        """Execute an operation, and return its result once it is durable.

        Cancelling prevents an operation that was not executed. It has no effect on others, but see ``_on_left``.

        Raises:
            TidelogServerError: The operation was refused, and nothing happened, unless its effect is unknown.
        """
        self.submit(call)
        return await call.done

    def submit(self, call: Call[Any]) -> None:
        """Execute an operation in the next step; ``call.done`` receives its result."""
        self._calls.append(call)
        self.wake()

    def wake(self) -> None:
        """Run a step soon."""
        if not self._is_scheduled:
            self._is_scheduled = True
            # Not at once: operations that arrive in the same turn of the event loop share the step.
            self._loop.call_soon(self._turn)

    # -- What differs between features -----------------------------------------------------------------------

    @abstractmethod
    def begin(self, base: int, joined_base: int, *, with_time: bool) -> Step:
        """Begin a step.

        Args:
            base: Tick of its first event.
            joined_base: Tick of its first event in another log.
            with_time: True if it has ticks for its events of time.
        """

    # Only passes on: what each log adds to this check differs.
    def check_open(self) -> None:
        """Raise if no operations are accepted now. Nothing happened then."""
        self._node.admission.check_storage()

    @property
    def _events_of_time(self) -> int:
        """Maximum number of events that the next step adds because time passes; 0 if that can wait."""
        return 0

    @property
    def _further_events(self) -> int:
        """Maximum number of further events that the next step adds on its own."""
        return 0

    def _waits(self, _call: Call[Any], _result: Any) -> bool:
        """Return whether an executed operation that can wait gets its answer by other means than its step."""
        return False

    def _serve(self, step: Step, answers: Answers) -> None:
        """Execute what waits, after the operations of a step."""

    def _on_left(self, results: Sequence[Any]) -> None:
        """Take note of durable results whose callers have left."""

    def _on_no_ticks(self) -> None:
        """Take note that a step could get no ticks; the operations are refused."""

    def finish(self, step: Step, ticks: int, txn: TxnSpan | None = None) -> list[NewEntry]:
        """Complete a step that has that number of ticks; return its entries, or [] without events.

        The caller submits the entries without an ``await``. ``txn`` is the transaction of the step.
        """
        outbox = step.outbox
        # A further event would have the tick of another one.
        assert len(outbox.payloads) <= ticks
        return [self.enter(outbox, txn)] if outbox.payloads else []

    # -- Steps -----------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Execute what waits, in one step; the rest follows in further turns."""
        self._is_scheduled = False
        try:
            self.check_open()
        except TidelogServerError as error:
            self.fail_all(error)
            return
        calls = self._gather()
        time_events = self._events_of_time
        ticks = sum(call.events for call in calls) + time_events + self._further_events
        wanted = max(1, ticks + sum(call.joined_events for call in calls))
        base = self._node.shared.oracle.try_allocate(wanted)
        if base is None:
            self._calls.extendleft(reversed(calls))
            self._is_scheduled = True
            self._tasks.start("fold-ticks", self._prepare(wanted))
            return
        try:
            self._step(base, calls, ticks, with_time=bool(time_events))
        except BaseException as error:  # noqa: BLE001 - a bug: the state may have changes that the log has not
            self.stop_by_defect(error, calls)
            return
        # What this step had no room for.
        if self._calls:
            self.wake()

    async def _prepare(self, ticks: int) -> None:
        try:
            await self._node.shared.oracle.prepare(ticks)
        except TidelogServerError as error:
            self._without_ticks(error)
        except BaseException:
            self._without_ticks(ShutdownError())
            raise
        else:
            self._turn()

    def _without_ticks(self, error: TidelogServerError) -> None:
        """Refuse the operations that need ticks now."""
        self._is_scheduled = False
        for call in self._calls:
            call.fail(error)
        self._calls.clear()
        self._on_no_ticks()

    def _gather(self) -> list[Call[Any]]:
        """Take the calls of the next step from the queue."""
        calls: list[Call[Any]] = []
        events = size_bytes = 0
        while self._calls:
            call = self._calls[0]
            events += call.events
            size_bytes += call.size_bytes
            if calls and (events > _MAX_STEP_EVENTS or size_bytes > _MAX_STEP_BYTES):
                break
            calls.append(self._calls.popleft())
        return calls

    def _step(self, base: int, calls: Sequence[Call[Any]], ticks: int, *, with_time: bool) -> None:
        """Execute ``calls``, then what waits, with ``ticks`` ticks from ``base`` on, and submit the events."""
        answers: Answers = []
        step = self.begin(base, base + ticks, with_time=with_time)
        rows: list[Row] = []
        for call in calls:
            # A caller that has left needs nothing.
            if call.is_open and self._execute(step, call, answers):
                rows += call.rows
        self._serve(step, answers)
        entries = self.finish(step, ticks)
        if not entries and not rows:
            self.answer_later(answers)
            return
        self.unsettled.append(answers)
        append = Append(entries, True, lambda settled: self.settled(answers, settled), rows=rows)
        self._node.committer.submit(append)
        hit(Failpoint.FOLD_STEP_SUBMITTED)

    def _execute(self, step: Step, call: Call[Any], answers: Answers) -> bool:
        """Execute an operation; return False if it was refused, or waits."""
        try:
            if call.needs_disk:
                self._node.admission.check()
            result = call.execute(step)
        except TidelogServerError as error:
            call.fail(error)
            return False
        if call.can_wait and self._waits(call, result):
            return False
        answers.append((call, result))
        return True

    def enter(self, outbox: Outbox, txn: TxnSpan | None = None) -> NewEntry:
        """Return the entry of a step with events; the caller submits it without an ``await``."""
        batch = self._codec.encode(outbox.types, outbox.payloads)
        entry = NewEntry(
            self.place.vchannel.vchannel_id, Tick(outbox.base), batch.count, batch.message_type, batch.columns_crc32c,
            batch.columns, txn,
        )  # fmt: skip
        self.place.log.enter(self.place.vchannel, entry)
        if self.fold.snapshot_kind not in outbox.types:
            # A start does not replay snapshots.
            self.written_bytes += len(entry.columns)
        self.changes += outbox.changes
        return entry

    def answer_later(self, answers: Answers) -> None:
        """Answer a step without events: it may depend on events that are not durable yet."""
        if self.unsettled:
            self.unsettled[-1] += answers
        else:
            self._answer(answers, None)

    def settled(self, answers: Answers, append: Append) -> None:
        """Answer a step: its events are durable, or the log failed."""
        assert self.unsettled[0] is answers
        self.unsettled.popleft()
        self._answer(answers, None if append.failure is None else append.failure.with_effect(Effect.UNKNOWN))

    def _answer(self, answers: Answers, failure: TidelogServerError | None) -> None:
        left: list[Any] = []
        for call, result in answers:
            if failure is not None:
                call.fail(failure)
            elif call.done.cancelled():
                left.append(result)
            else:
                call.succeed(result)
        if left:
            self._on_left(left)

    def stop_by_defect(self, error: BaseException, calls: Iterable[Call[Any]]) -> None:
        """Stop the log because of a bug while ``calls`` were executed; refuse them and everything that waits."""
        failure = self._node.committer.stop_by_defect(error)
        for call in calls:
            call.fail(failure.with_effect(Effect.UNKNOWN))
        self.fail_all(failure.with_effect(Effect.NONE))

    def fail_all(self, error: TidelogServerError) -> None:
        """Refuse all operations that wait."""
        for call in self._calls:
            call.fail(error)
        self._calls.clear()
