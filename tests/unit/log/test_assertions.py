"""Stated invariants of storage and log are asserted where they could break: breaking one on purpose stops the caller.

Method: call each function as only a bug in this package would. Input and damaged data never reach an assertion.
"""

from collections.abc import Callable
from typing import cast

import pytest

from tidelog_server.core.entries import NewEntry
from tidelog_server.core.limits import Limits
from tidelog_server.core.producers import ProducerSequence
from tidelog_server.core.ticks import NO_TICK, Tick, compose
from tidelog_server.log.append import Append
from tidelog_server.log.channel_log import Admission
from tidelog_server.log.lease_validity import LeaseValidity
from tidelog_server.log.oracle import TickState
from tidelog_server.log.producers import ProducerTable
from tidelog_server.log.scan.read_budget import ReadBudget
from tidelog_server.log.tail_ring import VchannelRing
from tidelog_server.storage.format.codec import StoreRow, TailRow, first_hash
from tidelog_server.storage.format.head_file import Head, HeadFile
from tidelog_server.storage.format.head_writer import HeadWriter
from tidelog_server.storage.log_state import LogState, trimmed, uncut
from tidelog_testing.parts.clocks import SteppedClock

FIRST_TICK = Tick(100)
NO_ID = bytes(16)


def an_entry(base_tick: int, count: int = 1) -> NewEntry:
    return NewEntry(1, Tick(base_tick), count, 0, 0, b"m" * count)


def a_state() -> LogState:
    state = LogState(StoreRow(NO_ID, 0, 0, first_hash(NO_ID), NO_TICK), {1: TailRow()})
    state.stage(an_entry(FIRST_TICK))
    state.publish()
    return state


def stage_an_older_tick() -> None:
    a_state().stage(an_entry(FIRST_TICK))


def stage_no_messages() -> None:
    a_state().stage(an_entry(FIRST_TICK + 1, count=0))


def publish_a_smaller_sequence() -> None:
    state = a_state()
    state.stage(an_entry(FIRST_TICK + 1))
    state._sequence -= 1
    state.publish()


def drop_more_than_was_numbered() -> None:
    state = a_state()
    state.tails[1] = state.tails[1]._replace(batches=2)
    state.drop([1])


def trim_backwards() -> None:
    tail = a_state().tails[1]
    trimmed(tail, uncut(tail))


def name_an_older_head() -> None:
    class NoFile:
        def write(self, head: Head) -> None:
            pass

        def close(self) -> None:
            pass

    newest = Head(1, NO_ID, 1, 7, NO_ID, 0, 0, 0, 70, False)
    writer = HeadWriter(cast("HeadFile", NoFile()), newest, on_failure=lambda _: None)
    try:
        writer.note(newest._replace(sequence=6), 71)
    finally:
        writer.close(is_clean=False)


def write_a_closed_head_file() -> None:
    HeadFile(-1).write(Head(1, NO_ID, 1, 7, NO_ID, 0, 0, 0, 70, False))


def allocate_no_ticks() -> None:
    TickState(NO_TICK, 10).allocate(1, 0)


def settle_more_bytes_than_were_submitted() -> None:
    admission = Admission(Limits())
    admission.note_submitted(10)
    admission.note_settled(11)


def keep_an_entry_that_is_below_the_ring() -> None:
    VchannelRing(1, floor=FIRST_TICK).push(an_entry(FIRST_TICK))


def evict_from_an_empty_ring() -> None:
    VchannelRing(1, floor=FIRST_TICK).evict_oldest()


def leave_out_a_sequence() -> None:
    append = Append((an_entry(FIRST_TICK),), True, lambda _: None)
    ProducerTable({}).note(1, ProducerSequence("loader", 0, 2), append)


def release_more_memory_than_was_taken() -> None:
    memory = ReadBudget(1 << 20).memory("reader")
    assert memory.try_take(10)
    memory.give_back(11)


def begin_a_lease_of_an_older_term() -> None:
    lease = LeaseValidity(SteppedClock(), "node")
    lease.begin(2, 0.0, 9.0)
    lease.begin(2, 1.0, 9.0)


BROKEN: list[Callable[[], None]] = [
    stage_an_older_tick,
    stage_no_messages,
    publish_a_smaller_sequence,
    drop_more_than_was_numbered,
    trim_backwards,
    name_an_older_head,
    write_a_closed_head_file,
    allocate_no_ticks,
    settle_more_bytes_than_were_submitted,
    keep_an_entry_that_is_below_the_ring,
    evict_from_an_empty_ring,
    leave_out_a_sequence,
    release_more_memory_than_was_taken,
    begin_a_lease_of_an_older_term,
]


@pytest.mark.parametrize("break_it", BROKEN, ids=lambda call: call.__name__)
def test_a_broken_invariant_stops_the_caller(break_it: Callable[[], None]) -> None:
    with pytest.raises(AssertionError):
        break_it()


def test_the_same_calls_pass_when_the_invariants_hold() -> None:
    state = a_state()
    state.stage(an_entry(FIRST_TICK + 1))
    state.publish()
    assert state.head.sequence == 2
    assert TickState(NO_TICK, 10).allocate(1, 1) == compose(1)
    memory = ReadBudget(1 << 20).memory("reader")
    assert memory.try_take(10)
    memory.give_back(10)
    memory.close()
