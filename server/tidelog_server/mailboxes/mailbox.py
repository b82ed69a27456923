"""Drives one mailbox: the fold of its log, in whose steps time passes and waiting fetches are served."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

from tidelog_server.blobs.step import BlobStep
from tidelog_server.blobs.store import Blobs
from tidelog_server.core.callers import NO_TENANT, Tenant
from tidelog_server.core.entries import NewEntry, TxnSpan
from tidelog_server.core.errors import TidelogServerError
from tidelog_server.core.errors.mailboxes import MailboxNotExistError
from tidelog_server.core.ticks import LOGICAL_BITS, physical_ms
from tidelog_server.fold.calls import Answers, Call
from tidelog_server.fold.events import EventCodec
from tidelog_server.fold.loading import Loaded
from tidelog_server.fold.log import FoldLog
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Place
from tidelog_server.mailboxes.bodies import BodyBudget, RecentBodies
from tidelog_server.mailboxes.bounds import Bounds
from tidelog_server.mailboxes.catalog import MailboxRecord
from tidelog_server.mailboxes.events import MAILBOX, EventType
from tidelog_server.mailboxes.figures import Figures
from tidelog_server.mailboxes.operations import MAX_OVERDUE, Fetched, RandomBytes, Step, bury, pass_time, reenqueue
from tidelog_server.mailboxes.outbox import Outbox
from tidelog_server.mailboxes.state import Counts, MailboxState
from tidelog_server.mailboxes.waiting import FetchCall, WaitingFetches
from tidelog_server.runtime.tasks import TaskOwner

# Events that a step adds on its own: leases that ended and messages that expired.
_OVERDUE_EVENTS: Final = MAX_OVERDUE + 1
# Exhausted messages that a step buries, in one event; the next step continues.
_MAX_BURIED: Final = 10_000
FINISH_EVENTS: Final = 1
"""Events that ``Mailbox.finish`` adds: messages that were delivered too often are buried."""
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
class Shared:
    """What all mailboxes of a node share."""

    node: LogNode
    tasks: TaskOwner
    codec: EventCodec
    budget: BodyBudget
    random_bytes: RandomBytes
    blobs: Blobs
    figures: Figures
    bounds: Bounds


class Mailbox(FoldLog[MailboxState, Step]):
    """One mailbox on its owner. Lives on the event loop; nothing here blocks.

    Attributes:
        name: Name of the mailbox.
        mailbox_id: Id of the mailbox.
        settings: Its settings; replaced when they change.
        recent: Payloads of the latest steps.
        on_step: Called after each step that added events.
        is_closed: True once nothing is executed any more.
    """

    fold = MAILBOX

    def __init__(
        self,
        shared: Shared,
        record: MailboxRecord,
        place: Place,
        loaded: Loaded[MailboxState],
        tenant: Tenant = NO_TENANT,
    ) -> None:
        super().__init__(shared.node, shared.tasks, shared.codec, place, loaded)
        self.name = record.name
        self.mailbox_id = record.mailbox_id
        self.settings = record.settings
        self.recent = RecentBodies(shared.budget)
        self.on_step: Callable[[Mailbox], None] = lambda _: None
        self._shared = shared
        self._waiting = WaitingFetches()
        self._timer: asyncio.TimerHandle | None = None
        self.is_closed = False
        # The tenant to which its messages count, and what the figures of the node have of this mailbox.
        self._tenant = tenant
        self._storer = partial(shared.blobs.storer, tenant)
        self._counts = Counts()
        self._memory_bytes = 0
        # Set by each step, and when the mailbox is closed.
        self._changed = asyncio.Event()
        self.arm_timer()
        self.state.locks.remember(shared.bounds.ended_locks)
        self._account(self.state.counts(), self.state.memory_bytes)

    def close(self) -> None:
        """Refuse everything that waits: the mailbox was deleted, or the node stops."""
        if not self.is_closed:
            self._account(Counts(), 0)
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.fail_all(MailboxNotExistError(self.name))

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
        now = self._node.shared.oracle.now
        while (next_tick := self.state.order.next_tick()) is not None and next_tick <= now():
            await self.run(Call(lambda _: None, events=0))

    # -- Steps ---------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise if the mailbox accepts no operations now. Nothing happened then."""
        if self.is_closed or self.place.log.is_closed:
            raise MailboxNotExistError(self.name)
        super().check_open()

    @property
    def _events_of_time(self) -> int:
        """Maximum number of events that a step adds because time passes; 0 if nothing ends within the next second."""
        next_tick = self.state.order.next_tick()
        if next_tick is None or next_tick > self._node.shared.oracle.now() + _SOON_TICKS:
            return 0
        return _OVERDUE_EVENTS

    @property
    def _further_events(self) -> int:
        """Maximum number of events of a step for waiting fetches, and of ``finish``."""
        return min(len(self._waiting), _MAX_SERVED) + FINISH_EVENTS

    def new_step(self, base: int, joined_base: int) -> Step:
        """Return the step that ``begin`` would return, for checks, which must not change anything."""
        blobs = BlobStep(self._shared.blobs.state, joined_base, self._storer)
        return Step(
            self.name, self.settings, self.state, Outbox(base), base, self._shared.random_bytes, self._check_node,
            blobs,
        )  # fmt: skip

    def begin(self, base: int, joined_base: int, *, with_time: bool) -> Step:
        """Begin a step; see FoldLog. The other log is that of the blobs."""
        step = self.new_step(base, joined_base)
        self.state.locks.remember(self._shared.bounds.ended_locks)
        if with_time:
            pass_time(step)
        else:
            self.state.advance(base)
        return step

    def finish(self, step: Step, ticks: int, txn: TxnSpan | None = None) -> list[NewEntry]:
        """Complete a step; see FoldLog."""
        if self._may_bury:
            bury(step, tuple(islice(self.state.exhausted, _MAX_BURIED)))
        if self._may_bury or (self._waiting and self._may_serve):
            # What this step had no room for.
            self.wake()
        outbox = step.outbox
        outbox.close()
        self.arm_timer()
        self._shared.figures.happened(outbox)
        self._account(self.state.counts(), self.state.memory_bytes)
        self._changed.set()
        if txn is None and step.blobs.payloads:
            # A message and its body: a restore to a tick between them must remove both.
            txn = TxnSpan(outbox.base, outbox.base, step.blobs.next_tick - 1)
        entries = super().finish(step, ticks, txn)
        if not entries:
            return []
        if EventType.SENT in outbox.types:
            self.recent.add(outbox.base, outbox.payloads)
        self.on_step(self)
        if step.blobs.payloads:
            assert self._shared.blobs.log is not None
            entries.append(self._shared.blobs.log.enter(step.blobs, txn))
        return entries

    @property
    def _may_bury(self) -> bool:
        return bool(self.state.exhausted) and not self.settings.dead_letter

    def _account(self, counts: Counts, memory_bytes: int) -> None:
        """Tell the figures of the node what the mailbox holds."""
        if self.is_closed:
            return
        if memory_bytes != self._memory_bytes:
            self._shared.bounds.memory.add(self._tenant, memory_bytes - self._memory_bytes)
            self._memory_bytes = memory_bytes
        if counts != self._counts:
            self._shared.figures.entered(self._counts, counts)
            self._shared.bounds.messages.add(self._tenant, counts.messages - self._counts.messages)
            self._counts = counts

    def _check_node(self, messages: int, memory_bytes: int) -> None:
        """Raise RateLimitRejectedError if the node does not accept further messages of this mailbox, or their bytes."""
        self._shared.bounds.check_memory(
            self._tenant, max(0, self.state.memory_bytes - self._memory_bytes) + memory_bytes
        )
        more = self.state.rows.live + messages - self._counts.messages
        if more > 0:
            self._shared.bounds.check_messages(self._tenant, more)

    # -- Waiting fetches -----------------------------------------------------------------------------------

    def _waits(self, call: Call[Any], result: Any) -> bool:
        """Let a fetch without messages wait. Return True if it waits, or was refused because too many wait."""
        assert isinstance(call, FetchCall)
        if result.grants or call.wait_s <= 0:
            return False
        bounds, tenant = self._shared.bounds, call.tenant
        try:
            bounds.check_waiting(tenant)
        except TidelogServerError as error:
            call.fail(error)
            return True
        bounds.waiting.add(tenant, 1)
        self._waiting.add(call)
        call.done.add_done_callback(lambda _: bounds.waiting.add(tenant, -1))
        return True

    def end_wait(self, call: FetchCall) -> None:
        """Answer a fetch that waits without messages; one that has not begun to wait will not."""
        call.wait_s = 0.0
        if call in self._waiting:
            self._waiting.remove(call)
            call.succeed(Fetched((), 0))

    def _serve(self, step: Step, answers: Answers) -> None:
        """Give available messages to waiting fetches, in the order in which they came."""
        served = 0
        while (call := self._waiting.first()) is not None and self._may_serve and served < _MAX_SERVED:
            if call.is_open:
                result = call.execute(step)
                if not result.grants:
                    return
                answers.append((call, result))
                served += 1
            self._waiting.remove(call)

    @property
    def _may_serve(self) -> bool:
        state = self.state
        return state.has_available and not state.is_paused and state.leases < self.settings.max_in_flight

    def _on_left(self, results: Sequence[Any]) -> None:
        """Give back what was fetched for callers that have left."""
        if fetched := [each for each in results if isinstance(each, Fetched) and each.grants]:
            self.give_back(fetched)

    def fail_all(self, error: TidelogServerError) -> None:
        """Refuse all operations and fetches that wait."""
        self._changed.set()
        super().fail_all(error)
        while (call := self._waiting.first()) is not None:
            self._waiting.remove(call)
            call.fail(error)

    # -- Time ----------------------------------------------------------------------------------------------

    def _on_no_ticks(self) -> None:
        """Retry later: fetches continue to wait, and leases end then."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_RETRY_S, self.wake)

    def arm_timer(self) -> None:
        """Run a step when the next lease ends, or a message becomes due or expires, by the wall clock of now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        next_tick = self._next_tick()
        if next_tick is None or self.is_closed:
            return
        left_s = (physical_ms(next_tick) + 1 - self._node.clock.wall_ms()) / 1_000
        self._timer = self._loop.call_later(min(max(left_s, _MIN_TIMER_S), _MAX_TIMER_S), self.wake)

    def _next_tick(self) -> int | None:
        """Return the tick of the next step that time needs. Keys are forgotten by any step, if there is one soon."""
        until = self.state.keys.next_until()
        if until is not None and until > self.state.now:
            until += _FORGET_TICKS
        return min((tick for tick in (self.state.order.next_tick(), until) if tick is not None), default=None)


def _give_back(step: Step, lock_ids: Sequence[bytes]) -> None:
    # By lock: a lease may have ended meanwhile, and the message may be under another one.
    message_ids = [message_id for lock_id in lock_ids if (message_id := step.state.locks.message_of(lock_id))]
    reenqueue(step, message_ids)
