"""The append slot of a journal: how frames gather, in what order batches are sent, and what a failure stops."""

from concurrent.futures import Future
from typing import Any

import pytest

from tidelog import AppendResult, Tick
from tidelog.append.numbering import Numbering
from tidelog.append.queue import _MAX_GROWN_BATCHES, AppendBatch
from tidelog.append.queues import AppendQueues
from tidelog.append.sender import Room
from tidelog.errors import AppendUnknownError, BufferFullError, ProducerStoppedError
from tidelog.gazette.append_queue import FRAME_OVERHEAD_BYTES, MAX_BATCH_BYTES, AppendHandle, JournalQueue
from tidelog.wire.append_terms import DEFAULT_TERMS
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH
from tidelog_testing.parts.append_queues import a_queue as an_append_queue
from tidelog_testing.parts.append_queues import answer, payloads_of

LOST = AppendUnknownError("lost", effect="unknown")


class Slot(JournalQueue[AppendHandle]):
    """The append slot of a journal, before the queue of an append stream."""

    def __init__(self, journal: str = "a/journal", room: Room | None = None) -> None:
        super().__init__(journal, room or Room(1 << 30), self._made, lambda: None)
        self.appends: AppendQueues = an_append_queue(max_in_flight_bytes=1 << 30)
        self.handles: list[AppendHandle] = []
        self._numbering = Numbering()

    def _made(self) -> AppendHandle:
        self.handles.append(AppendHandle(self.journal, Future()))
        return self.handles[-1]

    def sent(self) -> list[AppendBatch]:
        """Send what may be sent now."""
        for batch in self.ready():
            self.appends.submit("a/0", DEFAULT_TERMS, batch, self._numbering)
        return list(iter(self.appends.next_batch, None))

    def frames(self) -> list[list[bytes]]:
        """Send what may be sent now; return the frames of each batch."""
        return [payloads_of(batch) for batch in self.sent()]


def test_frames_of_one_batch_share_its_handle_and_keep_their_order() -> None:
    queue = Slot()

    handles = [queue.add(frame) for frame in (b"1", b"2", b"3")]

    assert handles == [queue.handles[0]] * 3
    assert queue.frames() == [[b"1", b"2", b"3"]]
    assert queue.add(b"4") is queue.handles[1]


def test_frames_gather_while_two_batches_are_unanswered() -> None:
    queue = Slot()
    batches = []
    for frame in (b"1", b"2"):
        queue.add(frame)
        batches += queue.sent()
    queue.add(b"3")
    assert (len(batches), queue.sent()) == (2, [])
    queue.add(b"4")

    answer(queue.appends, batches[0], first_tick=5)

    assert queue.handles[0].future.result() == AppendResult(Tick(5), Tick(5), "sync")
    assert queue.frames() == [[b"3", b"4"]]


@pytest.mark.parametrize(("size_bytes", "most"), [(MAX_BATCH_BYTES // 4, 3), (1, MAX_MESSAGES_PER_BATCH)])
def test_a_full_batch_is_sent_without_waiting_for_an_answer(size_bytes: int, most: int) -> None:
    queue = Slot()
    frame = bytes(size_bytes)
    for _ in range(most * (_MAX_GROWN_BATCHES + 2) + 1):
        queue.add(frame)

    assert [len(frames) for frames in queue.frames()] == [most] * _MAX_GROWN_BATCHES


def test_an_acknowledgement_is_the_first_of_its_batch_and_later_frames_ride_behind_it() -> None:
    """Invariant I4: without a new batch for each, a repeated batch would have an ACK followed by another one."""
    queue = Slot()
    queue.add(b"continue 1")
    queue.add_first(b"ack 1")
    queue.add(b"continue 2")
    queue.add_first(b"ack 2")
    queue.add_first(b"ack 3")

    assert queue.frames() == [[b"continue 1"], [b"ack 1", b"continue 2"], [b"ack 2"]]  # The last one gathers.


def test_a_batch_waits_for_its_dependencies_and_so_does_everything_behind_it() -> None:
    queue = Slot()
    queue.add(b"before")
    batch = queue.add_first(b"ack", unmet=2)
    queue.add(b"behind")
    queue.add_first(b"later")
    assert queue.frames() == [[b"before"]]

    queue.met(batch)
    assert queue.frames() == []
    queue.met(batch)

    assert queue.frames() == [[b"ack", b"behind"]]


def test_a_failure_stops_the_queue_so_that_nothing_follows_the_gap() -> None:
    """Invariant I2: nothing later is written while it is unknown whether an earlier batch is in the journal."""
    queue = Slot()
    queue.add(b"1")
    (batch,) = queue.sent()
    queue.add_first(b"2")
    queue.add_first(b"3")

    answer(queue.appends, batch, first_tick=5)
    queue.stop(LOST)

    outcomes = [type(each.future.exception()) for each in queue.handles]
    assert outcomes == [type(None), ProducerStoppedError, ProducerStoppedError]
    assert (queue.sent(), queue.room.used_bytes, queue.failure, queue.lost_frames) == ([], 0, LOST, 2)
    for add in (queue.add, queue.add_first):
        with pytest.raises(ProducerStoppedError, match="appends to a/journal stopped") as caught:
            add(b"4")
        assert caught.value.__cause__ is LOST


@pytest.mark.parametrize("frame", [bytearray(b"1"), memoryview(b"1"), "1", type("Bytes", (bytes,), {})(b"1")])
def test_only_bytes_are_accepted_and_anything_else_changes_nothing(frame: Any) -> None:
    queue = Slot()
    for add in (queue.add, queue.add_first):
        with pytest.raises(TypeError, match=rf"^a frame for a/journal is a {type(frame).__name__}, expected bytes"):
            add(frame)
    assert (queue.sent(), queue.room.used_bytes, queue.last, queue.is_settled) == ([], 0, None, True)


def test_memory_is_bounded_over_all_journals_and_freed_by_answers() -> None:
    room = Room(10 * (100 + FRAME_OVERHEAD_BYTES))
    one, other = (Slot(name, room) for name in ("one/journal", "other/journal"))
    for queue in (one, other):
        for _ in range(5):
            queue.add(bytes(100))

    with pytest.raises(BufferFullError, match=r"1480 bytes wait to be acknowledged, the limit is 1480"):
        other.add(b"")
    for batch in one.sent():
        answer(one.appends, batch, first_tick=5)

    assert room.used_bytes == 5 * 148
    other.add(b"")


def test_an_acknowledgement_is_accepted_without_room_and_counted() -> None:
    queue = Slot(room=Room(100))
    queue.add(bytes(100))
    queue.unwritten_intents.add(b"ack")

    queue.add_first(b"ack")

    assert (queue.room.used_bytes, queue.unwritten_intents) == (100 + 3 + 2 * FRAME_OVERHEAD_BYTES, set())
    with pytest.raises(BufferFullError):
        queue.add(b"")


def test_a_frame_larger_than_the_memory_is_accepted_when_nothing_else_waits() -> None:
    queue = Slot(room=Room(10))
    queue.add(bytes(100))
    with pytest.raises(BufferFullError):
        queue.add(b"")


class CancelledMeanwhile(Future[Any]):
    """A future that another thread cancels after it was asked whether it is done."""

    def done(self) -> bool:
        is_done = super().done()
        self.cancel()
        return is_done


@pytest.mark.parametrize("error", [None, LOST])
def test_a_future_that_its_caller_cancels_as_it_is_settled_harms_nothing(error: AppendUnknownError | None) -> None:
    queue = Slot()
    queue.add(b"1")
    (batch,) = queue.sent()
    cancelled: Any = CancelledMeanwhile()
    queue.handles[0].future = batch.submissions[0].future = cancelled

    answer(queue.appends, batch, first_tick=5, error=error)

    assert (queue.room.used_bytes, queue.failure, queue.handles[0].future.cancelled()) == (0, error, True)
