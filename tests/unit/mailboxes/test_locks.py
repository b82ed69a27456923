"""Locks, and a bounded number of ended ones. Method: small tables by hand."""

import pytest

from tidelog_server.core.limits import ENDED_LOCK_MEMORY_BYTES, LOCK_BYTES, MAX_ENDED_LOCKS
from tidelog_server.mailboxes.messages.locks import LEASE_MEMORY_BYTES, LockEnd, Locks


def lock(number: int) -> bytes:
    return number.to_bytes(LOCK_BYTES, "big")


def count_ended(locks: Locks) -> int:
    """Return the number of ended locks without a visit to each: the tests count thousands of times."""
    return len(locks._ended) + len(locks._ended_earlier)


def test_a_lock_is_found_until_it_ends() -> None:
    locks = Locks()
    locks.add(lock(1), 10)
    locks.add(lock(2), 20)
    assert (locks.message_of(lock(1)), locks.message_of(lock(2)), locks.message_of(lock(3))) == (10, 20, 0)
    assert locks.ended(lock(1)) is None
    locks.end(10, LockEnd.EXPIRED)
    locks.end(20, LockEnd.ACKNOWLEDGED)
    assert (len(locks), locks.message_of(lock(1)), list(locks.by_message.items())) == (0, 0, [])
    assert locks.ended(lock(1)) == (10, LockEnd.EXPIRED)
    assert locks.ended(lock(2)) == (20, LockEnd.ACKNOWLEDGED)
    locks.add(lock(3), 10)
    assert list(locks.by_message.items()) == [(10, lock(3))]


def test_a_message_has_one_lock_and_a_lock_one_message() -> None:
    for lock_id, message_id in ((lock(2), 10), (lock(1), 20)):
        locks = Locks()
        locks.add(lock(1), 10)
        with pytest.raises(AssertionError):
            locks.add(lock_id, message_id)
    with pytest.raises(KeyError):
        Locks().end(10, LockEnd.EXPIRED)


@pytest.mark.parametrize("batch", [1, 7, 1_000, 20_000])
def test_the_oldest_ended_locks_are_forgotten(batch: int) -> None:
    locks, total, half = Locks(), 3 * MAX_ENDED_LOCKS + 1_000, MAX_ENDED_LOCKS // 2
    for number in range(1, total + 1):
        locks.add(lock(number), number)
    for begin in range(1, total, batch):
        locks.end_all(range(begin, min(begin + batch, total)), LockEnd.ACKNOWLEDGED)
        assert half <= count_ended(locks) <= MAX_ENDED_LOCKS or begin < half
    locks.end(total, LockEnd.EXPIRED)
    remembered = list(locks.all_ended())
    assert len(remembered) == count_ended(locks)
    # However many of them end at a time: a replay ends more at a time than the live server did.
    oldest = (total // half - 1) * half + 1
    assert [message_id for _, message_id, _ in remembered] == list(range(oldest, total + 1))
    assert locks.ended(lock(oldest - 1)) is None
    assert locks.ended(lock(oldest)) == (oldest, LockEnd.ACKNOWLEDGED)
    assert locks.ended(lock(total - 1)) == (total - 1, LockEnd.ACKNOWLEDGED)
    assert remembered[-1] == (lock(total), total, LockEnd.EXPIRED)


def test_ended_locks_come_back_in_their_order() -> None:
    locks, restored = Locks(), Locks()
    for number in (3, 1, 2):
        locks.restore_ended(lock(number), number, LockEnd.EXPIRED)
    locks.restore_ended(lock(1), 1, LockEnd.ACKNOWLEDGED)
    for each in locks.all_ended():
        restored.restore_ended(*each)
    assert list(restored.all_ended()) == list(locks.all_ended())
    assert [message_id for _, message_id, _ in locks.all_ended()] == [3, 1, 2]
    assert locks.ended(lock(1)) == (1, LockEnd.ACKNOWLEDGED)
    for number in range(10, 10 + 2 * MAX_ENDED_LOCKS):
        locks.restore_ended(lock(number), number, LockEnd.EXPIRED)
        assert count_ended(locks) <= MAX_ENDED_LOCKS
    assert locks.ended(lock(number)) == (number, LockEnd.EXPIRED)


def test_ended_locks_take_memory_until_they_are_forgotten() -> None:
    locks = Locks()
    locks.add_all([lock(number) for number in range(1, 4)], [1, 2, 3])
    assert locks.memory_bytes == 3 * LEASE_MEMORY_BYTES
    locks.end_all([1, 2], LockEnd.ACKNOWLEDGED)
    assert locks.memory_bytes == LEASE_MEMORY_BYTES + 2 * ENDED_LOCK_MEMORY_BYTES
    locks.end(3, LockEnd.EXPIRED)
    locks.remember(2)
    assert locks.memory_bytes == ENDED_LOCK_MEMORY_BYTES
    assert list(locks.all_ended()) == [(lock(3), 3, LockEnd.EXPIRED)]


@pytest.mark.parametrize("ended", [0, 10, MAX_ENDED_LOCKS // 2 - 1, MAX_ENDED_LOCKS // 2, MAX_ENDED_LOCKS - 1, 10_000])
@pytest.mark.parametrize("maximum", [2, 64, 1_000])
def test_fewer_ended_locks_are_remembered_from_one_step_to_the_next(ended: int, maximum: int) -> None:
    locks = Locks()

    def end(begin: int, count: int) -> None:
        numbers = range(begin, begin + count)
        locks.add_all([lock(number) for number in numbers], numbers)
        locks.end_all(numbers, LockEnd.ACKNOWLEDGED)

    def check(last: int, maximum: int) -> None:
        remembered = [message_id for _, message_id, _ in locks.all_ended()]
        assert min(last, maximum // 2) <= len(remembered) <= maximum
        assert remembered == list(range(last - len(remembered) + 1, last + 1))

    end(1, ended)
    locks.remember(maximum)
    check(ended, maximum)
    for number in range(ended + 1, ended + 3 * maximum):
        end(number, 1)
        check(number, maximum)
    last = ended + 3 * maximum - 1
    locks.remember(MAX_ENDED_LOCKS)
    check(last, maximum)
    end(last + 1, 10_000)
    check(last + 10_000, MAX_ENDED_LOCKS)
    assert len(list(locks.all_ended())) >= MAX_ENDED_LOCKS // 2
