"""Steps of several mailboxes in one atomic write, alone or within a transaction."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog_server.core.entries import NewEntry, TxnSpan
from tidelog_server.fold.calls import Answers, Call
from tidelog_server.log.append import Append
from tidelog_server.log.node import LogNode
from tidelog_server.mailboxes.mailbox import FINISH_EVENTS, Mailbox
from tidelog_server.mailboxes.operations import Step
from tidelog_server.runtime.failpoints import Failpoint, hit


@dataclass(frozen=True, slots=True)
class JointPart:
    """What a joint step does to one mailbox.

    Attributes:
        mailbox: The mailbox.
        call: What it executes; it must not be refused, because other parts may be executed before it.
        check: Raises TidelogServerError if the part is refused. Its step adds no events.
    """

    mailbox: Mailbox
    call: Call[Any]
    check: Callable[[Step], None] = lambda _: None

    @property
    def events(self) -> int:
        """Maximum number of events of the part in the log of the mailbox."""
        return self.call.events + FINISH_EVENTS

    @property
    def ticks(self) -> int:
        """Maximum number of events of the part in all logs."""
        return self.events + self.call.joined_events


class JointStep:
    """The parts of several mailboxes that are written together.

    Protocol: ``prepare``, then, in one turn of the event loop, an allocation of ``events`` ticks, ``check``, ``enter``,
    and the submission of the entries in an append that calls ``settled``.
    """

    def __init__(self, parts: Sequence[JointPart]) -> None:
        assert len({part.mailbox for part in parts}) == len(parts)
        for part in parts:
            # Within a transaction, no caller awaits the parts.
            part.call.detach()
        self._parts = parts
        # Parts that write events, to be settled.
        self._pending: list[tuple[Mailbox, Answers]] = []

    @property
    def events(self) -> int:
        """Maximum number of events of all parts."""
        return sum(part.ticks for part in self._parts)

    async def prepare(self) -> None:
        """End the leases whose time is over."""
        for part in self._parts:
            await part.mailbox.let_time_pass()

    def check(self, base: int) -> None:
        """Raise TidelogServerError if a part is refused with ticks from ``base`` on. Nothing happened then."""
        for part in self._parts:
            part.mailbox.check_open()
            part.check(part.mailbox.new_step(base, base))
            base += part.ticks

    def enter(self, base: int, first_tick: int) -> list[NewEntry]:
        """Execute all parts with ticks from ``base`` on; return the entries to submit.

        They form a transaction that begins at ``first_tick``, so that a restore to a tick within it removes all of it.
        """
        entries: list[NewEntry] = []
        txn = TxnSpan(first_tick, first_tick, base + self.events - 1)
        try:
            assert first_tick <= base
            for part in self._parts:
                entries += self._enter(part, base, txn)
                base += part.ticks
        except BaseException as error:
            # A bug: some parts have changed, and their entries will not be written.
            calls = [part.call for part in self._parts]
            for part in self._parts:
                part.mailbox.stop_by_defect(error, calls)
            raise
        return entries

    def _enter(self, part: JointPart, base: int, txn: TxnSpan) -> list[NewEntry]:
        mailbox, call = part.mailbox, part.call
        step = mailbox.begin(base, base + part.events, with_time=False)
        answers: Answers = [(call, call.execute(step))]
        entries = mailbox.finish(step, part.events, txn)
        if entries:
            mailbox.unsettled.append(answers)
            self._pending.append((mailbox, answers))
        else:
            mailbox.answer_later(answers)
        return entries

    def settled(self, append: Append) -> None:
        """Answer the calls of all parts."""
        for mailbox, answers in self._pending:
            mailbox.settled(answers, append)

    def results(self) -> list[Any]:
        """Return the results of the parts that are known, in order."""
        return [part.call.done.result() for part in self._parts if part.call.done.done()]

    async def done(self) -> list[Any]:
        """Wait until the step is durable; return the results of the parts, in order. Raises as their calls do."""
        results = await asyncio.gather(*(part.call.done for part in self._parts), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results


async def write_jointly(node: LogNode, joint: JointStep) -> list[Any]:
    """Write a joint step alone; return the results of its parts when they are durable.

    Raises:
        TidelogServerError: A part was refused, and nothing happened; or the log failed.
    """
    oracle = node.shared.oracle
    while True:
        await joint.prepare()
        base = oracle.try_allocate(joint.events)
        if base is not None:
            break
        await oracle.prepare(joint.events)
    joint.check(base)
    entries = joint.enter(base, base)
    if entries:
        node.committer.submit(Append(entries, True, joint.settled))
        hit(Failpoint.MAILBOX_JOINT_SUBMITTED)
    return await joint.done()
