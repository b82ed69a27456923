"""Drives one mailbox: executes operations in steps, and writes the events of a step as one entry of its log.

Operations that arrive in the same turn of the event loop share a step, an entry and a sync. A step changes the state in
memory when its events are submitted, because they precede all later ones in the log in any case; it answers once they
are durable. If the log fails, operations whose events were submitted are answered with an unknown effect, all others
with none, and a restart replays what is durable. A bug within a step may leave a state that contradicts the log, so it
stops the log, as bugs of the committer do.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.entries import NewEntry, TxnSpan
from tidelog_server.core.errors import Effect, ShutdownError, TidelogServerError
from tidelog_server.core.errors.mailboxes import MailboxNotExistError
from tidelog_server.core.limits import MIB
from tidelog_server.core.mailboxes import MailboxSettings
from tidelog_server.core.ticks import LOGICAL_BITS, Tick, physical_ms
from tidelog_server.log.append import Append
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Place
from tidelog_server.mailboxes.blobs.store import Blobs
from tidelog_server.mailboxes.bodies import BodyBudget, RecentBodies
from tidelog_server.mailboxes.bounds import Bounds
from tidelog_server.mailboxes.calls import Call, FetchCall, PendingStep, WaitingFetches
from tidelog_server.mailboxes.events import EventType
from tidelog_server.mailboxes.figures import Figures
from tidelog_server.mailboxes.loading import EventCodec, Loaded
from tidelog_server.mailboxes.operations import MAX_OVERDUE, Fetched, RandomBytes, Step, bury, pass_time, reenqueue
from tidelog_server.mailboxes.outbox import Outbox
from tidelog_server.mailboxes.state import Tally
from tidelog_server.runtime.failpoints import Failpoint, hit
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.rows import Row

_T = TypeVar("_T")

# Limits of one step. A larger one would hold the event loop for longer.
_MAX_STEP_EVENTS: Final = 2_000
_MAX_STEP_BYTES: Final = 2 * MIB
# Events that a step adds on its own: leases that ended and messages that expired.
_OVERDUE_EVENTS: Final = MAX_OVERDUE + 1
# Exhausted messages that a step buries, in one event; the next step continues.
_MAX_BURIED: Final = 10_000
FINISH_EVENTS: Final = 1
"""Events that ``MailboxLog.finish`` adds: messages that were delivered too often are buried."""
# Waiting fetches that a step serves.
_MAX_SERVED: Final = 1_000
_SOON_TICKS: Final = 1_000 << LOGICAL_BITS
# A mailbox without other steps forgets deduplication keys within this time, so that their memory is free for others.
_FORGET_TICKS: Final = 10_000 << LOGICAL_BITS
# A step because of time alone comes at most this often.
_MIN_TIMER_S: Final = 0.005
# Timers of the event loop are bounded; a later deadline is checked again then.
_MAX_TIMER_S: Final = 3_600.0
# After this time, a step that could get no ticks is tried again.
_RETRY_S: Final = 1.0


@dataclass(slots=True)
class MailboxContext:
    """What all mailboxes of a node share."""

    node: LogNode
    tasks: TaskOwner
    codec: EventCodec
    budget: BodyBudget
    random_bytes: RandomBytes
    blobs: Blobs
    figures: Figures
    bounds: Bounds


class Identity(Protocol):
    """What a mailbox is, by its record."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def mailbox_id(self) -> int:
        """Its id, which is never reused."""
        ...

    @property
    def settings(self) -> MailboxSettings:
        """Its settings."""
        ...


class MailboxLog:
    """One mailbox on its owner. Lives on the event loop; nothing here blocks.

    Invariant: events are submitted in the order in which the state has changed.

    Attributes:
        name: Name of the mailbox.
        mailbox_id: Id of the mailbox.
        settings: Its settings; replaced when they change.
        place: Its vchannel.
        state: Its state, including what is submitted and not durable yet.
        recent: Payloads of the latest steps.
        written_bytes: Bytes of events since the last snapshot, which a start would replay.
        changes: Messages that these events concern.
        snapshot_tick, snapshot_bytes: Tick and size of the last complete snapshot; 0 without one.
        copied_ratio: Bytes of messages in the log, in proportion to what housekeeping assumes; at least 1.
        on_step: Called after each step that added events.
        is_closed: True once nothing is executed any more.
    """

    def __init__(
        self, context: MailboxContext, identity: Identity, place: Place, loaded: Loaded, tenant: Tenant = NO_TENANT
    ) -> None:
        self.name = identity.name
        self.mailbox_id = identity.mailbox_id
        self.settings = identity.settings
        self.place = place
        self.state = loaded.state
        self.recent = RecentBodies(context.budget)
        self.written_bytes = loaded.written_bytes
        self.changes = loaded.changes
        self.snapshot_tick = loaded.snapshot_tick
        self.snapshot_bytes = loaded.snapshot_bytes
        self.copied_ratio = 1.0
        self.on_step: Callable[[MailboxLog], None] = lambda _: None
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._calls: deque[Call[Any]] = deque()
        self._waiting = WaitingFetches()
        self._unsettled: deque[PendingStep] = deque()
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self.is_closed = False
        # The tenant to which its messages count, and what the figures of the node have of this mailbox.
        self._tenant = tenant
        self._storer = partial(context.blobs.storer, tenant)
        self._tally = Tally()
        self._memory_bytes = 0
        # Set by each step, and when the mailbox is closed.
        self._changed = asyncio.Event()
        self._arm_timer()
        self.state.locks.remember(context.bounds.ended_locks)
        self._enter(self.state.tally(), self.state.memory_bytes)

    # -- Operations ----------------------------------------------------------------------------------------

    async def run(self, call: Call[_T]) -> _T:
        """Execute an operation, and return its result once it is durable.

        Cancelling prevents an operation that was not executed. It has no effect on others, except that messages of a
        fetch are given back.

        Raises:
            TidelogServerError: The operation was refused, and nothing happened, unless its effect is unknown.
        """
        self.submit(call)
        return await call.done

    def submit(self, call: Call[Any]) -> None:
        """Execute an operation in the next step; ``call.done`` receives its result."""
        self._calls.append(call)
        self._schedule()

    def close(self) -> None:
        """Refuse everything that waits: the mailbox was deleted, or the node stops."""
        if not self.is_closed:
            self._enter(Tally(), 0)
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._fail_all(MailboxNotExistError(self.name))

    def wake(self) -> None:
        """Run a step soon: settings or messages have changed, or the node begins to shut down."""
        self._schedule()

    def clock_moved(self) -> None:
        """Compute again when the next lease ends: the wall clock was set, or the machine was suspended."""
        self._arm_timer()

    def give_back(self, fetched: Iterable[Fetched]) -> None:
        """End the leases of messages whose caller has left before it received them. They count as delivered."""
        lock_ids = [grant.lock_id for each in fetched for grant in each.grants]
        call = Call(lambda step: _give_back(step, lock_ids), events=len(lock_ids))
        call.detach()
        self.submit(call)

    async def changed(self) -> None:
        """Wait for the next step, which may end leases. Raises TidelogServerError if the mailbox is closed."""
        self.check_open()
        self._changed.clear()
        await self._changed.wait()
        self.check_open()

    async def let_time_pass(self) -> None:
        """End the leases whose time is over, so that what comes next in this turn of the event loop need not."""
        now = self._context.node.shared.oracle.now
        while (next_tick := self.state.next_tick()) is not None and next_tick <= now():
            await self.run(Call(lambda _: None, events=0))

    # -- Steps ---------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            # Not at once: operations that arrive in the same turn of the event loop share the step.
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Execute what waits, in one step; the rest follows in further turns."""
        self._is_scheduled = False
        try:
            self.check_open()
        except TidelogServerError as error:
            self._fail_all(error)
            return
        calls = self._gather()
        time_events = self.events_of_time
        served = min(len(self._waiting), _MAX_SERVED)
        wanted = sum(call.events for call in calls) + time_events + served + FINISH_EVENTS
        for_blobs = sum(call.blob_events for call in calls)
        base = self._context.node.shared.oracle.try_allocate(wanted + for_blobs)
        if base is None:
            self._calls.extendleft(reversed(calls))
            self._is_scheduled = True
            self._context.tasks.start("mailbox-ticks", self._prepare(wanted + for_blobs))
            return
        try:
            self._step(base, calls, wanted, with_time=bool(time_events))
        except BaseException as error:  # noqa: BLE001 - a bug: the state may have changes that the log has not
            self.stop_by_defect(error, calls)
            return
        # What this step had no room for.
        if self._calls or self._may_bury or (self._waiting and self._may_serve):
            self._schedule()

    async def _prepare(self, ticks: int) -> None:
        try:
            await self._context.node.shared.oracle.prepare(ticks)
        except TidelogServerError as error:
            self._without_ticks(error)
        except BaseException:
            self._without_ticks(ShutdownError())
            raise
        else:
            self._turn()

    def _without_ticks(self, error: TidelogServerError) -> None:
        """Refuse the operations that need ticks now. Fetches continue to wait, and leases end later."""
        self._is_scheduled = False
        for call in self._calls:
            call.fail(error)
        self._calls.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_RETRY_S, self._schedule)

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
        """Execute ``calls``, then waiting fetches, with ``ticks`` ticks from ``base`` on, and submit the events."""
        pending = PendingStep()
        step = self.begin(base, base + ticks, with_time=with_time)
        rows: list[Row] = []
        for call in calls:
            # A caller that has left needs nothing.
            if call.is_open and self._execute(step, call, pending):
                rows += call.rows
        self._serve_waiting(step, pending)
        entries = self.finish(step, ticks)
        if not entries and not rows:
            self.answer_later(pending)
            return
        self.expect(pending)
        append = Append(entries, True, lambda settled: self.settled(pending, settled), rows=rows)
        self._context.node.committer.submit(append)
        hit(Failpoint.MAILBOX_STEP_SUBMITTED)

    def _execute(self, step: Step, call: Call[Any], pending: PendingStep) -> bool:
        """Execute an operation; return False if it was refused."""
        try:
            if call.needs_disk:
                self._context.node.admission.check()
            result = call.execute(step)
        except TidelogServerError as error:
            call.fail(error)
            return False
        if isinstance(call, FetchCall) and not result.grants and call.wait_s > 0:
            return self._let_wait(call)
        pending.answers.append((call, result))
        return True

    def _let_wait(self, call: FetchCall) -> bool:
        """Let a fetch wait; return False if it was refused because too many wait."""
        bounds, tenant = self._context.bounds, call.tenant
        try:
            bounds.check_waiting(tenant)
        except TidelogServerError as error:
            call.fail(error)
            return False
        bounds.waiting.add(tenant, 1)
        self._waiting.add(call)
        call.done.add_done_callback(lambda _: bounds.waiting.add(tenant, -1))
        return True

    def answer_later(self, pending: PendingStep) -> None:
        """Answer a step without events: it may depend on events that are not durable yet."""
        if self._unsettled:
            self._unsettled[-1].answers += pending.answers
        else:
            pending.settle(None)

    def stop_by_defect(self, error: BaseException, calls: Iterable[Call[Any]]) -> None:
        """Stop the log because of a bug while ``calls`` were executed; refuse them and everything that waits."""
        failure = self._context.node.committer.stop_by_defect(error)
        for call in calls:
            call.fail(failure.with_effect(Effect.UNKNOWN))
        self._fail_all(failure.with_effect(Effect.NONE))

    # -- Parts of a step, also for steps of several mailboxes ------------------------------------------------

    def check_open(self) -> None:
        """Raise if the mailbox accepts no operations now. Nothing happened then."""
        if self.is_closed or self.place.log.is_closed:
            raise MailboxNotExistError(self.name)
        self._context.node.admission.check_storage()

    @property
    def events_of_time(self) -> int:
        """Maximum number of events that a step adds because time passes; 0 if nothing ends within the next second."""
        next_tick = self.state.next_tick()
        if next_tick is None or next_tick > self._context.node.shared.oracle.now() + _SOON_TICKS:
            return 0
        return _OVERDUE_EVENTS

    def trial(self, base: int) -> Step:
        """Return the step that ``begin`` would return, for checks, which must not change anything."""
        return self._new_step(base, base)

    def _new_step(self, base: int, blobs_base: int) -> Step:
        blobs = self._context.blobs.step(blobs_base, self._storer)
        return Step(
            self.name, self.settings, self.state, Outbox(base), base, self._context.random_bytes, self._check_node,
            blobs,
        )  # fmt: skip

    def begin(self, base: int, blobs_base: int, *, with_time: bool) -> Step:
        """Begin a step.

        Args:
            base: Tick of its first event.
            blobs_base: Tick of its first event in the log of the blobs.
            with_time: True if it has ticks for ``events_of_time``, so that leases can end.
        """
        step = self._new_step(base, blobs_base)
        self.state.locks.remember(self._context.bounds.ended_locks)
        if with_time:
            pass_time(step)
        else:
            self.state.advance(base)
        return step

    def finish(self, step: Step, ticks: int, txn: TxnSpan | None = None) -> list[NewEntry]:
        """Complete a step that has that number of ticks; return its entries, or [] without events.

        The caller submits the entries without an ``await``. ``txn`` is the transaction of the step.
        """
        if self._may_bury:
            bury(step, tuple(islice(self.state.exhausted, _MAX_BURIED)))
        outbox = step.outbox
        outbox.close()
        # A further event would have the tick of another message.
        assert len(outbox.payloads) <= ticks
        self._arm_timer()
        self._context.figures.happened(outbox)
        self._enter(self.state.tally(), self.state.memory_bytes)
        self._changed.set()
        if not outbox.payloads:
            return []
        if txn is None and step.blobs.payloads:
            # A message and its body: a restore to a tick between them must remove both.
            txn = TxnSpan(outbox.base, outbox.base, step.blobs.last_tick)
        batch = self._context.codec.encode(outbox.types, outbox.payloads)
        entry = NewEntry(
            self.place.vchannel.vchannel_id, Tick(outbox.base), batch.count, batch.message_type, batch.columns_crc32c,
            batch.columns, txn,
        )  # fmt: skip
        self.place.log.enter(self.place.vchannel, entry)
        if EventType.SNAPSHOT not in outbox.types:
            # A start does not replay snapshots.
            self.written_bytes += len(entry.columns)
        self.changes += outbox.changes
        if EventType.SENT in outbox.types:
            self.recent.add(outbox.base, outbox.payloads)
        self.on_step(self)
        return [entry, *self._context.blobs.enter(step.blobs, txn)]

    @property
    def _may_bury(self) -> bool:
        return bool(self.state.exhausted) and not self.settings.dead_letter

    def _enter(self, tally: Tally, memory_bytes: int) -> None:
        """Tell the figures of the node what the mailbox holds."""
        if self.is_closed:
            return
        if memory_bytes != self._memory_bytes:
            self._context.bounds.memory.add(self._tenant, memory_bytes - self._memory_bytes)
            self._memory_bytes = memory_bytes
        if tally != self._tally:
            self._context.figures.entered(self._tally, tally)
            self._context.bounds.messages.add(self._tenant, tally.messages - self._tally.messages)
            self._tally = tally

    def _check_node(self, messages: int, memory_bytes: int) -> None:
        """Raise RateLimitRejectedError if the node does not accept further messages of this mailbox, or their bytes."""
        self._context.bounds.check_memory(
            self._tenant, max(0, self.state.memory_bytes - self._memory_bytes) + memory_bytes
        )
        more = self.state.rows.live + messages - self._tally.messages
        if more > 0:
            self._context.bounds.check_messages(self._tenant, more)

    def expect(self, pending: PendingStep) -> None:
        """Add a step whose events are submitted next."""
        self._unsettled.append(pending)

    def settled(self, pending: PendingStep, append: Append) -> None:
        """Answer a step: its events are durable, or the log failed."""
        assert self._unsettled[0] is pending
        self._unsettled.popleft()
        left = pending.settle(None if append.failure is None else append.failure.with_effect(Effect.UNKNOWN))
        if left:
            self.give_back(left)

    # -- Waiting fetches -----------------------------------------------------------------------------------

    def end_wait(self, call: FetchCall) -> None:
        """Answer a fetch that waits without messages; one that has not begun to wait will not."""
        call.wait_s = 0.0
        if call in self._waiting:
            self._waiting.remove(call)
            call.succeed(Fetched((), 0))

    def _serve_waiting(self, step: Step, pending: PendingStep) -> None:
        """Give available messages to waiting fetches, in the order in which they came."""
        served = 0
        while (call := self._waiting.first()) is not None and self._may_serve and served < _MAX_SERVED:
            if call.is_open:
                result = call.execute(step)
                if not result.grants:
                    return
                pending.answers.append((call, result))
                served += 1
            self._waiting.remove(call)

    @property
    def _may_serve(self) -> bool:
        state = self.state
        return state.has_available and not state.is_paused and state.leases < self.settings.max_in_flight

    def _fail_all(self, error: TidelogServerError) -> None:
        self._changed.set()
        for call in (*self._calls, *self._waiting.take_all()):
            call.fail(error)
        self._calls.clear()

    # -- Time ----------------------------------------------------------------------------------------------

    def _arm_timer(self) -> None:
        """Run a step when the next lease ends, or a message becomes due or expires."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_tick = self._next_tick()
        if next_tick is None or self.is_closed:
            return
        left_s = (physical_ms(next_tick) + 1 - self._context.node.clock.wall_ms()) / 1_000
        self._timer = self._loop.call_later(min(max(left_s, _MIN_TIMER_S), _MAX_TIMER_S), self._schedule)

    def _next_tick(self) -> int | None:
        """Return the tick of the next step that time needs. Keys are forgotten by any step, if there is one soon."""
        until = self.state.keys.next_until()
        if until is not None and until > self.state.now:
            until += _FORGET_TICKS
        return _earliest(self.state.next_tick(), until)


def _earliest(*ticks: int | None) -> int | None:
    return min((tick for tick in ticks if tick is not None), default=None)


def _give_back(step: Step, lock_ids: Sequence[bytes]) -> None:
    # By lock: a lease may have ended meanwhile, and the message may be under another one.
    message_ids = [message_id for lock_id in lock_ids if (message_id := step.state.locks.message_of(lock_id))]
    reenqueue(step, message_ids)
