"""Queues deliver in the order of a sorted list. Method: random entries against a sort."""

from random import Random

from tidelog_server.core.limits import MAX_PRIORITY
from tidelog_server.core.ticks import MAX_TICK
from tidelog_server.mailboxes.messages.queues import Deadlines, ReadyQueue, needs_rebuild


def drain(queue: ReadyQueue) -> list[tuple[int, int]]:
    found = list(queue.pop_all())
    assert len(queue) == 0
    return found


def test_messages_come_by_priority_then_by_due_time_then_by_id() -> None:
    chance = Random(1)
    queue = ReadyQueue()
    plain = list(range(100, 300, 2))
    queue.plain.extend(plain[:50])
    queue.plain.extend(plain[50:])
    entries = [(0, each, each) for each in plain]
    for message_id in range(101, 301, 2):
        priority, due = (
            chance.choice([0, 0, 1, MAX_PRIORITY]),
            chance.choice([message_id, message_id - 50, 200, MAX_TICK]),
        )
        queue.push(message_id, due, priority)
        entries.append((-priority, due, message_id))
    assert len(queue) == len(entries)
    assert drain(queue) == [(message_id, due) for _, due, message_id in sorted(entries)]


def test_equal_entries_come_one_after_the_other() -> None:
    queue = ReadyQueue()
    queue.plain.extend([5, 6])
    for message_id in (6, 5, 6):
        queue.push(message_id, message_id, 0)
    assert drain(queue) == [(5, 5), (5, 5), (6, 6), (6, 6), (6, 6)]


def test_the_first_messages_with_only_bodies_are_shown_before_they_are_taken() -> None:
    queue = ReadyQueue()
    assert queue.first_plain(1) == []
    queue.plain.extend([1, 2, 3])
    assert (queue.first_plain(2), queue.first_plain(9), len(queue)) == ([1, 2], [1, 2, 3], 3)
    queue.drop_plain(2)
    assert queue.first_plain(9) == [3]
    queue.push(4, 4, 0)
    assert queue.first_plain(9) == []
    assert drain(queue) == [(3, 3), (4, 4)]


def test_entries_are_removed_one_by_one() -> None:
    queue = ReadyQueue()
    queue.plain.extend([1, 2])
    queue.push(5, 5, 1)
    assert [next(queue.pop_all()), next(queue.pop_all())] == [(5, 5), (1, 1)]
    assert len(queue) == 1


def test_the_first_entries_of_given_messages_are_dropped() -> None:
    queue = ReadyQueue()
    queue.plain.extend([1, 2, 3, 4])
    queue.push(7, 3, 1)
    queue.push(8, 3, 1)
    queue.drop_first({1, 2, 4, 7, 9})
    assert drain(queue) == [(8, 3), (3, 3), (4, 4)]


def test_deadlines_come_in_order_until_a_tick_inclusive() -> None:
    deadlines = Deadlines()
    assert deadlines.first_tick() is None
    for tick, message_id in ((5, 1), (3, 9), (3, 2), (MAX_TICK, 4)):
        deadlines.push(tick, message_id)
    assert deadlines.first_tick() == 3
    assert list(deadlines.pop_until(2)) == []
    assert list(deadlines.pop_until(3)) == [(3, 2), (3, 9)]
    assert list(deadlines.pop_until(MAX_TICK)) == [(5, 1), (MAX_TICK, 4)]


def test_reading_a_part_of_the_deadlines_removes_that_part_only() -> None:
    deadlines = Deadlines()
    deadlines.rebuild([(3, 1), (1, 1), (2, 1)])
    assert next(deadlines.pop_until(9)) == (1, 1)
    assert (len(deadlines), deadlines.first_tick()) == (2, 2)


def test_the_first_deadlines_of_other_messages_are_dropped() -> None:
    deadlines = Deadlines()
    deadlines.push_all(3, [1, 2, 3])
    deadlines.push(4, 1)
    deadlines.drop_others({3})
    assert list(deadlines.pop_until(9)) == [(3, 3), (4, 1)]
    deadlines.push(5, 1)
    deadlines.drop_others(())
    assert len(deadlines) == 0


def test_deadlines_come_in_order_whatever_the_order_in_which_they_were_added() -> None:
    chance, deadlines, expected = Random(1), Deadlines(), list[tuple[int, int]]()
    for round_number in range(300):
        tick = chance.choice([round_number, 100, chance.randrange(400)])
        ids = [chance.randrange(50) for _ in range(chance.randrange(4))]
        if len(ids) == 1:
            deadlines.push(tick, ids[0])
        else:
            deadlines.push_all(tick, ids)
        expected = sorted([*expected, *((tick, message_id) for message_id in ids)])
        assert deadlines.first_tick() == (expected[0][0] if expected else None)
        assert len(deadlines) == len(expected)
        if round_number % 10 == 9:
            now = chance.randrange(round_number + 1)
            assert list(deadlines.pop_until(now)) == [each for each in expected if each[0] <= now]
            expected = [each for each in expected if each[0] > now]
        if round_number == 150:
            deadlines.rebuild(chance.sample(expected, len(expected)))


def test_a_queue_is_rebuilt_when_most_entries_are_outdated() -> None:
    assert not needs_rebuild(3_024, 1_000)
    assert needs_rebuild(3_025, 1_000)
    assert not needs_rebuild(1_024, 0)
