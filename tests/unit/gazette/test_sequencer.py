"""A sequencer decides, delivers, evicts, replays and prunes by the rules of Gazette's message package.

Method: short streams of messages of one or two producers, each line of the decision table in turn. A message is written
as (position, producer, clock, flags).
"""

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tidelog.gazette import NIL_UUID, NO_BEGIN, Envelope, JournalProducer, JournalSpec, ProducerState
from tidelog.gazette.errors import (
    MustStartReplayError,
    ReplayBeginError,
    ReplayEndError,
    ReplayError,
    ReplayJournalError,
    ReplayReaderError,
)
from tidelog.gazette.sequencer import Outcome, Sequencer, StepSequencer
from tidelog.gazette.uuids import CLOCK_UNITS_PER_SECOND
from tidelog_testing.parts.gazette_messages import ACK, CONTINUE, OUTSIDE, Note, clocks, envelope, producer_id

JOURNAL = "my/journal"
Written = tuple[int, int, int, int]


def stream(*messages: Written) -> list[Envelope]:
    return [envelope(*message) for message in messages]


def drained(sequencer: StepSequencer) -> list[Envelope]:
    found = []
    while sequencer.step():
        assert sequencer.dequeued is not None
        found.append(sequencer.dequeued)
    return found


def queued(sequencer: StepSequencer, *messages: Written) -> tuple[list[Outcome], list[int]]:
    """Queue messages, and return their outcomes and the clocks of what was delivered."""
    outcomes, found = [], []
    for each in stream(*messages):
        outcomes.append(sequencer.queue(each))
        found += clocks(drained(sequencer))
    return outcomes, found


def state(producer: int, last_ack: int, begin: int = NO_BEGIN, max_clock: int = 0) -> ProducerState:
    return ProducerState(JournalProducer(JOURNAL, producer_id(producer)), last_ack, begin, max_clock)


# ------------------------------------------------------------------------------------------------ the decision table


def test_messages_outside_of_transactions_are_delivered_once() -> None:
    outcomes, found = queued(
        StepSequencer(), (0, 1, 5, OUTSIDE), (1, 1, 5, OUTSIDE), (2, 1, 4, OUTSIDE), (3, 1, 6, OUTSIDE)
    )
    assert outcomes == ["outside_commit", "outside_already_acked", "outside_already_acked", "outside_commit"]
    assert found == [5, 6]


def test_a_transaction_is_delivered_with_its_acknowledgement() -> None:
    outcomes, found = queued(
        StepSequencer(), (0, 1, 5, CONTINUE), (1, 2, 5, OUTSIDE), (2, 1, 6, CONTINUE), (3, 1, 7, ACK), (4, 1, 8, ACK)
    )
    assert outcomes == [
        Outcome.CONTINUE_BEGIN_SPAN, Outcome.OUTSIDE_COMMIT, Outcome.CONTINUE_EXTEND_SPAN, Outcome.ACK_COMMIT_RING,
        Outcome.ACK_EMPTY,
    ]  # fmt: skip
    assert found == [5, 5, 6, 7, 8]


def test_duplicates_within_and_after_a_transaction_are_dropped() -> None:
    outcomes, found = queued(
        StepSequencer(), (0, 1, 5, CONTINUE), (1, 1, 6, CONTINUE), (2, 1, 5, CONTINUE), (3, 1, 6, CONTINUE),
        (4, 1, 7, ACK), (5, 1, 6, CONTINUE), (6, 1, 7, ACK), (7, 1, 7, OUTSIDE),
    )  # fmt: skip
    assert outcomes[2:4] == [Outcome.CONTINUE_TXN_CLOCK_LARGER] * 2
    assert outcomes[5:] == [Outcome.CONTINUE_ALREADY_ACKED, Outcome.ACK_ROLLBACK, Outcome.OUTSIDE_ALREADY_ACKED]
    assert found == [5, 6, 7]


def test_an_acknowledgement_at_the_last_one_rolls_back() -> None:
    outcomes, found = queued(
        StepSequencer(), (0, 1, 5, ACK), (1, 1, 6, CONTINUE), (2, 1, 5, ACK), (3, 1, 7, CONTINUE), (4, 1, 8, ACK)
    )
    assert outcomes[2:] == [Outcome.ACK_ROLLBACK, Outcome.CONTINUE_BEGIN_SPAN, Outcome.ACK_COMMIT_RING]
    assert found == [5, 7, 8]


def test_a_repeated_append_of_an_acknowledgement_and_messages_loses_nothing() -> None:
    batch = [(5, ACK), (6, CONTINUE), (7, CONTINUE)]
    written = [(0, 4, CONTINUE), *((at, *each) for at, each in enumerate([*batch, *batch, *batch, (8, ACK)], start=1))]
    _, found = queued(StepSequencer(), *((at, 1, clock, flags) for at, clock, flags in written))
    assert found == [4, 5, 6, 7, 8]


def test_an_acknowledgement_commits_the_smaller_clocks_only() -> None:
    outcomes, found = queued(
        StepSequencer(), (0, 1, 5, CONTINUE), (1, 1, 9, CONTINUE), (2, 1, 7, ACK), (3, 1, 9, CONTINUE), (4, 1, 10, ACK)
    )
    assert outcomes[2:] == [Outcome.ACK_COMMIT_RING, Outcome.CONTINUE_BEGIN_SPAN, Outcome.ACK_COMMIT_RING]
    assert found == [5, 7, 9, 10]


def test_an_acknowledgement_before_the_last_one_moves_the_producer_back(caplog: pytest.LogCaptureFixture) -> None:
    outcomes, found = queued(
        StepSequencer(), (0, 1, 5, OUTSIDE), (1, 1, 9, OUTSIDE), (2, 1, 5, ACK), (3, 1, 9, OUTSIDE)
    )
    assert outcomes[2:] == [Outcome.ACK_ROLLBACK, Outcome.OUTSIDE_COMMIT]
    assert found == [5, 9, 9]
    assert "producer 010000000001 goes back in journal my/journal from clock 9 to 5" in caplog.text


def test_a_message_outside_discards_an_open_transaction(caplog: pytest.LogCaptureFixture) -> None:
    outcomes, found = queued(StepSequencer(), (0, 1, 5, CONTINUE), (1, 1, 6, OUTSIDE), (2, 1, 7, ACK))
    assert outcomes[1:] == [Outcome.OUTSIDE_COMMIT, Outcome.ACK_EMPTY]
    assert found == [6, 7]
    assert "its messages from position 0 to 1 are discarded" in caplog.text


@pytest.mark.parametrize("flags", [0x3, 0x167, 0x3FF])
def test_unknown_flags_count_as_outside_and_are_reported_once(flags: int, caplog: pytest.LogCaptureFixture) -> None:
    outcomes, found = queued(StepSequencer(), (0, 1, 5, flags), (1, 1, 5, flags), (2, 1, 6, flags))
    assert outcomes == [Outcome.OUTSIDE_COMMIT, Outcome.OUTSIDE_ALREADY_ACKED, Outcome.OUTSIDE_COMMIT]
    assert found == [5, 6]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert f"flags {flags:#x} at position 0 of journal {JOURNAL} are unknown" in caplog.text


def test_clock_zero_and_the_nil_uuid_are_always_delivered() -> None:
    sequencer = StepSequencer()
    assert (
        queued(sequencer, *((at, 1, 0, flags) for at, flags in enumerate([OUTSIDE, OUTSIDE, CONTINUE, ACK])))[1]
        == [0] * 4
    )
    nil = Envelope(JournalSpec(JOURNAL), 4, 5, Note(NIL_UUID))
    assert sequencer.queue(nil) == Outcome.OUTSIDE_COMMIT
    assert drained(sequencer) == [nil]
    assert sequencer.checkpoint().states == ()
    assert sequencer.checkpoint().offsets == {JOURNAL: 5}


def test_a_clock_with_the_lowest_time_is_not_taken_for_clock_zero() -> None:
    outcomes, found = queued(
        StepSequencer(), (0, 1, 16, OUTSIDE), (1, 1, 0, OUTSIDE), (2, 1, 16, OUTSIDE), (3, 1, 17, OUTSIDE)
    )
    assert outcomes[2] == Outcome.OUTSIDE_ALREADY_ACKED
    assert found == [16, 0, 17]


def test_a_reader_that_joins_within_a_transaction_does_not_wait_for_its_start() -> None:
    outcomes, found = queued(StepSequencer(), (7, 1, 6, CONTINUE), (8, 1, 5, CONTINUE), (9, 1, 7, ACK))
    assert outcomes == [Outcome.CONTINUE_BEGIN_SPAN, Outcome.CONTINUE_ALREADY_ACKED, Outcome.ACK_COMMIT_RING]
    assert found == [6, 7]


def test_producers_of_two_journals_are_distinct() -> None:
    sequencer = StepSequencer()
    for name in ("my/a-journal", "my/b-journal"):
        assert sequencer.queue(envelope(0, 1, 5, OUTSIDE, name)) == Outcome.OUTSIDE_COMMIT
        drained(sequencer)
    assert sequencer.checkpoint().offsets == {"my/a-journal": 1, "my/b-journal": 1}


def test_queueing_before_the_run_is_drained_is_a_bug_of_the_caller() -> None:
    sequencer = StepSequencer()
    sequencer.queue(envelope(0, 1, 5, OUTSIDE))
    with pytest.raises(RuntimeError, match="committed messages remain: call step until it returns False"):
        sequencer.queue(envelope(1, 1, 6, OUTSIDE))


def test_an_application_may_change_the_uuid_of_a_delivered_message() -> None:
    sequencer = StepSequencer()
    sequencer.queue(envelope(0, 1, 5, OUTSIDE))
    assert sequencer.step()
    assert sequencer.dequeued is not None
    sequencer.dequeued.message.set_uuid(NIL_UUID)
    assert not sequencer.step()
    assert sequencer.checkpoint().states == (state(1, 5),)


# ------------------------------------------------------------------------------------------------ eviction and replay

SPAN = ((0, 1, 5, CONTINUE), (1, 1, 6, CONTINUE), (2, 1, 7, CONTINUE), (3, 1, 8, ACK))


def evicted(ring_size: int, *messages: Written) -> StepSequencer:
    """Return a sequencer after messages of which the last asks for a replay."""
    sequencer = StepSequencer(ring_size=ring_size)
    *before, last = stream(*messages)
    for each in before:
        sequencer.queue(each)
        drained(sequencer)
    assert sequencer.queue(last) == Outcome.ACK_COMMIT_REPLAY
    return sequencer


@pytest.mark.parametrize(("ring_size", "end"), [(2, 2), (1, 3), (0, 3)])
def test_evicted_messages_are_replayed(ring_size: int, end: int) -> None:
    sequencer = evicted(ring_size, *SPAN)
    assert sequencer.must_replay
    with pytest.raises(MustStartReplayError, match="must start reader"):
        sequencer.step()
    assert sequencer.replay_range() == (JOURNAL, 0, end)
    sequencer.start_replay(iter(stream(*SPAN[:end])))
    assert clocks(drained(sequencer)) == [5, 6, 7, 8]


def test_a_duplicate_evicts_too_and_its_entry_stays_empty() -> None:
    sequencer = evicted(2, (0, 1, 5, CONTINUE), (1, 1, 6, CONTINUE), (2, 1, 6, CONTINUE), (3, 1, 7, ACK))
    assert sequencer.replay_range() == (JOURNAL, 0, 1)


def test_a_message_outside_of_a_transaction_evicts() -> None:
    sequencer = evicted(2, (0, 1, 5, CONTINUE), (1, 2, 5, OUTSIDE), (2, 2, 6, OUTSIDE), (3, 1, 6, ACK))
    assert sequencer.replay_range() == (JOURNAL, 0, 3)
    sequencer.start_replay(iter(stream((0, 1, 5, CONTINUE), (1, 2, 5, OUTSIDE), (2, 2, 6, OUTSIDE))))
    assert clocks(drained(sequencer)) == [5, 6]


def test_a_replay_skips_what_was_committed_or_exceeds_the_acknowledgement() -> None:
    sequencer = StepSequencer(ring_size=1)
    written = ((0, 1, 5, CONTINUE), (1, 1, 0, OUTSIDE), (2, 1, 5, CONTINUE), (3, 1, 9, CONTINUE), (4, 1, 6, ACK))
    for each in stream(*written[:-1]):
        sequencer.queue(each)
        drained(sequencer)
    sequencer.queue(envelope(*written[-1]))
    sequencer.start_replay(iter(stream(*written[:-1])))
    assert clocks(drained(sequencer)) == [5, 6]


def test_a_driver_can_pass_replayed_messages_itself() -> None:
    sequencer = evicted(2, *SPAN)
    found = [each for each in stream(*SPAN[:2]) if sequencer.step_replay(each)]
    sequencer.end_replay()
    assert clocks(found + drained(sequencer)) == [5, 6, 7, 8]
    assert sequencer.checkpoint() == StepSequencer({JOURNAL: 4}, [state(1, 8)]).checkpoint()


def failing(*messages: Written) -> Iterator[Envelope]:
    yield from stream(*messages)
    raise OSError("the disk is gone")


def test_a_replay_that_fails_is_started_again_where_it_ended() -> None:
    sequencer = evicted(2, *SPAN)
    sequencer.start_replay(failing(SPAN[0]))
    assert sequencer.step()
    with pytest.raises(ReplayReaderError, match=r"^replay reader: the disk is gone$") as caught:
        sequencer.step()
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(MustStartReplayError):
        sequencer.step()
    assert sequencer.replay_range() == (JOURNAL, 0, 2)
    sequencer.start_replay(iter(stream(*SPAN[:2])))
    assert clocks(drained(sequencer)) == [6, 7, 8]


@pytest.mark.parametrize(
    ("replayed", "error", "text"),
    [
        (
            envelope(0, 1, 5, CONTINUE, "other/journal"),
            ReplayJournalError,
            "replay of wrong journal (other/journal; expected my/journal)",
        ),
        (envelope(2, 1, 5, CONTINUE), ReplayBeginError, "replay has wrong Begin (2; expected >= 3)"),
        (envelope(5, 1, 5, CONTINUE), ReplayEndError, "replay has wrong End (6; expected <= 5)"),
    ],
)
def test_a_replay_of_something_else_is_refused(replayed: Envelope, error: type[ReplayError], text: str) -> None:
    sequencer = evicted(1, (3, 1, 5, CONTINUE), (4, 1, 6, CONTINUE), (5, 1, 7, ACK))
    assert sequencer.replay_range() == (JOURNAL, 3, 5)
    sequencer.start_replay(iter([replayed]))
    with pytest.raises(error) as caught:
        sequencer.step()
    assert caught.value.args[0] == text
    sequencer.start_replay(iter(stream((3, 1, 5, CONTINUE), (4, 1, 6, CONTINUE))))
    assert clocks(drained(sequencer)) == [5, 6, 7]


def test_calls_for_a_replay_that_is_not_required_are_bugs_of_the_caller() -> None:
    sequencer = StepSequencer()
    calls = (
        sequencer.replay_range,
        lambda: sequencer.start_replay(iter([])),
        lambda: sequencer.step_replay(envelope(0, 1, 5, CONTINUE)),
        sequencer.end_replay,
    )
    for call in calls:
        with pytest.raises(RuntimeError, match="no replay is required"):
            call()


# ------------------------------------------------------------------------------------------------ checkpoints


def test_a_checkpoint_within_a_run_resumes_after_the_consumed_message() -> None:
    sequencer = StepSequencer()
    for each in stream(*SPAN):
        sequencer.queue(each)
    assert sequencer.step()
    assert sequencer.checkpoint().states == (state(1, 4, begin=0, max_clock=8),)
    sequencer.consume()
    checkpoint = sequencer.checkpoint()
    assert checkpoint.states == (state(1, 5, begin=0, max_clock=8),)
    assert checkpoint.offsets == {JOURNAL: 3}

    restored = StepSequencer(checkpoint.offsets, checkpoint.states)
    assert restored.queue(envelope(*SPAN[-1])) == Outcome.ACK_COMMIT_REPLAY
    assert restored.replay_range() == (JOURNAL, 0, 3)
    restored.start_replay(iter(stream(*SPAN[:-1])))
    assert clocks(drained(restored)) == [6, 7, 8]
    assert restored.checkpoint().offsets == {JOURNAL: 4}


def test_consuming_the_last_message_ends_the_run() -> None:
    sequencer = StepSequencer()
    sequencer.queue(envelope(0, 1, 5, OUTSIDE))
    before = sequencer.is_draining
    assert sequencer.step()
    assert (before, sequencer.is_draining) == (True, False)
    assert sequencer.checkpoint().offsets == {}
    sequencer.consume()
    assert sequencer.checkpoint().offsets == {JOURNAL: 1}
    assert sequencer.queue(envelope(1, 1, 6, OUTSIDE)) == Outcome.OUTSIDE_COMMIT


def test_a_repeated_append_after_a_checkpoint_is_dropped() -> None:
    """The original messages lie before the checkpoint, the copies after it."""
    before = StepSequencer()
    queued(before, *SPAN[:2])
    checkpoint = before.checkpoint()
    restored = StepSequencer(checkpoint.offsets, checkpoint.states)
    for each in stream((2, 1, 5, CONTINUE), (3, 1, 6, CONTINUE)):
        assert restored.queue(each) == Outcome.CONTINUE_EXTEND_SPAN
    assert restored.queue(envelope(4, 1, 7, ACK)) == Outcome.ACK_COMMIT_REPLAY
    assert restored.replay_range() == (JOURNAL, 0, 2)
    restored.start_replay(iter(stream(*SPAN[:2])))
    found = drained(restored)
    assert [each.begin for each in found] == [0, 1, 4]


def test_pending_means_a_transaction_that_began_since_the_checkpoint() -> None:
    sequencer = StepSequencer()
    assert not sequencer.has_pending()
    queued(sequencer, (4, 1, 5, CONTINUE))
    assert sequencer.has_pending()
    assert sequencer.has_pending_since({})
    assert sequencer.has_pending_since({JOURNAL: 4})
    assert not sequencer.has_pending_since({JOURNAL: 5})
    sequencer.checkpoint()
    queued(sequencer, (5, 1, 6, CONTINUE))
    assert not sequencer.has_pending()
    assert sequencer.has_pending_since({})
    queued(sequencer, (6, 1, 7, ACK), (7, 1, 8, CONTINUE))
    assert sequencer.has_pending()
    queued(sequencer, (8, 1, 7, ACK))
    assert not sequencer.has_pending()
    assert not sequencer.has_pending_since({JOURNAL: NO_BEGIN})


SECOND = 160_000_000


@pytest.mark.parametrize("has_clock", [True, False])
def test_an_open_transaction_is_as_old_as_its_messages_also_after_a_restart(*, has_clock: bool) -> None:
    day = 86_400 * CLOCK_UNITS_PER_SECOND
    first = StepSequencer()
    # The producer last acknowledged a message two days before it began the transaction.
    queued(first, (0, 1, 5, ACK), (1, 2, 2 * day, OUTSIDE), (2, 1, 2 * day + 1, CONTINUE))
    before = first.checkpoint(86_400.0)
    assert before.states == (state(1, 5, 2, 2 * day + 1), state(2, 2 * day))
    states = before.states if has_clock else [replace(each, max_clock=0) for each in before.states]

    second = StepSequencer(before.offsets, states)
    queued(second, (3, 2, 2 * day + 2, OUTSIDE))
    between = second.checkpoint(86_400.0)
    third = StepSequencer(between.offsets, between.states)
    queued(third, (4, 1, 2 * day + 3, CONTINUE))
    third.queue(envelope(5, 1, 2 * day + 4, ACK))

    assert third.replay_range() == (JOURNAL, 2, 4)
    third.start_replay(iter(stream((2, 1, 2 * day + 1, CONTINUE), (3, 2, 2 * day + 2, OUTSIDE))))
    assert clocks(drained(third)) == [2 * day + 1, 2 * day + 3, 2 * day + 4]


@pytest.mark.parametrize("has_clock", [True, False])
def test_an_open_transaction_without_its_end_is_forgotten_also_after_a_restart(*, has_clock: bool) -> None:
    day = 86_400 * CLOCK_UNITS_PER_SECOND
    states = [state(1, 5, 2, day if has_clock else 0), state(2, day)]
    restored = StepSequencer({JOURNAL: 3}, states)
    restored.checkpoint(86_400.0)

    queued(restored, (3, 2, 2 * day + 1, OUTSIDE))

    assert restored.checkpoint(86_400.0).states == (state(2, 2 * day + 1),)


@pytest.mark.parametrize(
    ("horizon_s", "kept"),
    [(0.0, [1, 2, 3]), (5.0, [2, 3]), (10.0, [1, 2, 3]), (9.999, [2, 3]), (3_155_760_000.0, [1, 2, 3])],
)
def test_producers_behind_the_horizon_are_forgotten(horizon_s: float, kept: list[int]) -> None:
    sequencer = StepSequencer()
    queued(
        sequencer, (0, 1, 100 * SECOND, OUTSIDE), (1, 2, 103 * SECOND, OUTSIDE), (2, 2, 106 * SECOND, CONTINUE),
        (3, 3, 110 * SECOND, OUTSIDE),
    )  # fmt: skip
    states = sequencer.checkpoint(horizon_s).states
    assert [each.producer for each in states] == [producer_id(number) for number in kept]


def test_forgetting_a_producer_empties_its_entries_of_the_ring() -> None:
    sequencer = StepSequencer(ring_size=2)
    queued(sequencer, (0, 1, 1, CONTINUE), (1, 2, 100 * SECOND, OUTSIDE))
    assert len(sequencer.checkpoint(1.0).states) == 1
    outcomes, found = queued(sequencer, (2, 1, 1, CONTINUE), (3, 1, 2, ACK))
    assert outcomes == [Outcome.CONTINUE_BEGIN_SPAN, Outcome.ACK_COMMIT_RING]
    assert found == [1, 2]


def test_pruning_within_a_run_keeps_its_producer() -> None:
    sequencer = StepSequencer()
    queued(sequencer, (0, 2, 100 * SECOND, OUTSIDE), (1, 1, 1, CONTINUE))
    sequencer.queue(envelope(2, 1, 2, ACK))
    assert sequencer.step()
    assert len(sequencer.checkpoint(1.0).states) == 2
    assert clocks(drained(sequencer)) == [2]


# ------------------------------------------------------------------------------------------------ other interfaces


def test_committed_yields_what_queue_and_step_deliver() -> None:
    written = [(0, 1, 5, CONTINUE), (1, 2, 9, OUTSIDE), (2, 1, 6, CONTINUE), (3, 1, 7, ACK), (4, 2, 9, OUTSIDE)]
    assert clocks(list(StepSequencer().committed(iter(stream(*written))))) == [9, 5, 6, 7]


def test_committed_stops_for_a_replay() -> None:
    sequencer, messages = StepSequencer(ring_size=2), iter(stream(*SPAN, (4, 1, 9, OUTSIDE)))
    assert list(sequencer.committed(messages)) == []
    assert sequencer.must_replay
    sequencer.start_replay(iter(stream(*SPAN[:2])))
    assert clocks(list(sequencer.committed(messages))) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("flags", [OUTSIDE, CONTINUE])
def test_committed_resumes_after_an_interruption(flags: int) -> None:
    messages = iter(stream((0, 1, 5, flags), (1, 1, 6, flags), (2, 1, 7, ACK), (3, 1, 8, OUTSIDE)))
    sequencer = StepSequencer()
    found = [next(sequencer.committed(messages))]
    sequencer.consume()
    found += sequencer.committed(messages)
    assert clocks(found) == [5, 6, 7, 8]


def test_stepping_within_committed_delivers_each_message_once() -> None:
    sequencer = StepSequencer()
    committed = sequencer.committed(iter(stream(*SPAN)))
    found = [next(committed)]
    assert sequencer.step()
    assert sequencer.dequeued is not None
    found += [sequencer.dequeued, *committed]
    assert clocks(found) == [5, 6, 7, 8]
    assert sequencer.checkpoint().states == (state(1, 8),)


def test_the_older_interface_dequeues_until_the_end() -> None:
    sequencer = Sequencer([], 2)
    for each in stream(*SPAN):
        sequencer.queue_uncommitted(each)
    with pytest.raises(MustStartReplayError):
        sequencer.deque_committed()
    with pytest.raises(RuntimeError, match="committed messages remain: call deque_committed until it raises EOFError"):
        sequencer.producer_states()
    assert sequencer.replay_range() == (0, 2)
    sequencer.start_replay(iter(stream(*SPAN[:2])))
    assert clocks([sequencer.deque_committed() for _ in SPAN]) == [5, 6, 7, 8]
    with pytest.raises(EOFError, match="no committed message remains"):
        sequencer.deque_committed()
    with pytest.raises(RuntimeError, match="no replay is required"):
        sequencer.replay_range()
    assert sequencer.producer_states() == [state(1, 8)]


def test_the_older_interface_queues_after_the_last_message() -> None:
    sequencer = Sequencer([state(1, 5), state(2, 3, begin=7)], 16)
    assert sequencer.has_pending({})
    assert not sequencer.has_pending({JOURNAL: 8})
    sequencer.queue_uncommitted(envelope(9, 1, 5, OUTSIDE))
    sequencer.queue_uncommitted(envelope(10, 1, 6, OUTSIDE))
    with pytest.raises(RuntimeError, match="committed messages remain"):
        sequencer.queue_uncommitted(envelope(11, 1, 7, OUTSIDE))
    assert clocks([sequencer.deque_committed()]) == [6]
    sequencer.queue_uncommitted(envelope(11, 1, 7, OUTSIDE))
    assert clocks([sequencer.deque_committed()]) == [7]
    assert sequencer.producer_states() == [state(1, 7), state(2, 3, begin=7)]
