"""The append slot of a journal: how frames gather, in what order batches are sent, and what a failure stops."""

import itertools
from typing import Any

import pytest

from tidelog.errors import AppendUnknownError, BufferFullError, ProducerStoppedError
from tidelog.gazette.append_queue import (
    FRAME_OVERHEAD_BYTES,
    MAX_BATCH_BYTES,
    MAX_IN_FLIGHT,
    FrameBatch,
    JournalQueue,
    Room,
)
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH

LOST = AppendUnknownError("lost", effect="unknown")


def a_queue(limit_bytes: int = 1 << 30) -> tuple[JournalQueue[int], Room]:
    room = Room(limit_bytes)
    return JournalQueue("a/journal", room, itertools.count().__next__, lambda: None), room


def sent(queue: JournalQueue[int]) -> list[FrameBatch[int]]:
    return list(iter(queue.next, None))


def test_frames_of_one_batch_share_its_handle_and_keep_their_order() -> None:
    queue, _ = a_queue()

    assert [queue.add(frame) for frame in (b"1", b"2", b"3")] == [0, 0, 0]

    assert [batch.frames for batch in sent(queue)] == [[b"1", b"2", b"3"]]
    assert queue.add(b"4") == 1


def test_frames_gather_while_two_batches_are_unanswered() -> None:
    queue, _ = a_queue()
    batches = []
    for frame in (b"1", b"2"):
        queue.add(frame)
        batches += sent(queue)
    queue.add(b"3")
    queue.add(b"4")
    assert (len(batches), sent(queue)) == (2, [])

    queue.settled(batches[0])

    assert [batch.frames for batch in sent(queue)] == [[b"3", b"4"]]


@pytest.mark.parametrize(("size_bytes", "most"), [(MAX_BATCH_BYTES // 4, 3), (1, MAX_MESSAGES_PER_BATCH)])
def test_a_full_batch_is_sent_without_waiting_for_an_answer(size_bytes: int, most: int) -> None:
    queue, _ = a_queue()
    frame = bytes(size_bytes)
    for _ in range(most * (MAX_IN_FLIGHT + 2) + 1):
        queue.add(frame)

    assert [len(batch.frames) for batch in sent(queue)] == [most] * MAX_IN_FLIGHT


def test_an_acknowledgement_is_the_first_of_its_batch_and_later_frames_ride_behind_it() -> None:
    """Invariant I4: without a new batch for each, a repeated batch would have an ACK followed by another one."""
    queue, _ = a_queue()
    queue.add(b"continue 1")
    queue.add_first(b"ack 1")
    queue.add(b"continue 2")
    queue.add_first(b"ack 2")
    queue.add_first(b"ack 3")

    frames = [batch.frames for batch in sent(queue)]

    assert frames == [[b"continue 1"], [b"ack 1", b"continue 2"], [b"ack 2"]]  # The last one gathers.


def test_a_batch_waits_for_its_dependencies_and_so_does_everything_behind_it() -> None:
    queue, _ = a_queue()
    queue.add(b"before")
    batch = queue.add_first(b"ack", unmet=2)
    queue.add(b"behind")
    queue.add_first(b"later")
    assert [each.frames for each in sent(queue)] == [[b"before"]]

    queue.met(batch)
    assert sent(queue) == []
    queue.met(batch)

    assert [each.frames for each in sent(queue)] == [[b"ack", b"behind"]]


def test_a_failure_stops_the_queue_so_that_nothing_follows_the_gap() -> None:
    """Invariant I2: nothing later is written while it is unknown whether an earlier batch is in the journal."""
    queue, room = a_queue()
    queue.add(b"1")
    (batch,) = sent(queue)
    queue.add_first(b"2")
    queue.add_first(b"3")

    queue.settled(batch)
    unsent = queue.stop(LOST)

    assert [each.frames for each in unsent] == [[b"2"], [b"3"]]
    assert (sent(queue), queue.stop(LOST), room.used_bytes, queue.is_settled) == ([], [], 0, False)
    for add in (queue.add, queue.add_first):
        with pytest.raises(ProducerStoppedError, match="appends to a/journal stopped") as caught:
            add(b"4")
        assert caught.value.__cause__ is LOST


@pytest.mark.parametrize("frame", [bytearray(b"1"), memoryview(b"1"), "1", type("Bytes", (bytes,), {})(b"1")])
def test_only_bytes_are_accepted_and_anything_else_changes_nothing(frame: Any) -> None:
    queue, room = a_queue()
    for add in (queue.add, queue.add_first):
        with pytest.raises(TypeError, match=rf"^a frame for a/journal is a {type(frame).__name__}, expected bytes"):
            add(frame)
    assert (sent(queue), room.used_bytes, queue.last, queue.is_settled) == ([], 0, None, True)


def test_memory_is_bounded_over_all_journals_and_freed_by_answers() -> None:
    room = Room(10 * (100 + FRAME_OVERHEAD_BYTES))
    one, other = (JournalQueue(name, room, lambda: 0, lambda: None) for name in ("one/journal", "other/journal"))
    for queue in (one, other):
        for _ in range(5):
            queue.add(bytes(100))

    with pytest.raises(BufferFullError, match=r"1480 bytes wait to be acknowledged, the limit is 1480"):
        other.add(b"")
    for batch in sent(one):
        one.settled(batch)

    assert room.used_bytes == 5 * 148
    other.add(b"")


def test_an_acknowledgement_is_accepted_without_room_and_counted() -> None:
    queue, room = a_queue(limit_bytes=100)
    queue.add(bytes(100))
    queue.unwritten_intents.add(b"ack")

    queue.add_first(b"ack")

    assert (room.used_bytes, queue.unwritten_intents) == (100 + 3 + 2 * FRAME_OVERHEAD_BYTES, set())
    with pytest.raises(BufferFullError):
        queue.add(b"")


def test_a_frame_larger_than_the_memory_is_accepted_when_nothing_else_waits() -> None:
    queue, _ = a_queue(limit_bytes=10)
    queue.add(bytes(100))
    with pytest.raises(BufferFullError):
        queue.add(b"")
