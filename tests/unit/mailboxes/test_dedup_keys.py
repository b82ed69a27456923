"""Deduplication keys are remembered until their tick, in little memory. Method: keys by hand, and random ones."""

from random import Random
from sys import getsizeof

from tidelog_server.core.dedup_keys import DedupKeys, hash_of
from tidelog_server.core.limits import DEDUP_HASH_BYTES, DEDUP_KEY_MEMORY_BYTES


def remembered(keys: DedupKeys, now: int) -> dict[int, int]:
    """Let time pass; return the id under each hash."""
    for _ in range(1 + len(keys) // 1_000):
        keys.advance(now)
    return {hashed: message_id for hashed, message_id, _ in keys.all()}


def test_a_key_is_found_until_its_tick() -> None:
    keys = DedupKeys()
    keys.add(hash_of("k"), 5, 100)
    assert (keys.find("k", 99), keys.find("k", 100), keys.find("l", 0), len(keys)) == (5, 0, 0, 1)
    keys.advance(99)
    assert (len(keys), keys.next_until()) == (1, 100)
    keys.advance(100)
    assert (len(keys), keys.next_until(), keys.memory_bytes) == (0, None, 0)


def test_a_shorter_window_does_not_wait_for_longer_ones() -> None:
    keys = DedupKeys()
    for number in range(10):
        keys.add(number, number, 1_000_000)
    for number in range(10, 20):
        keys.add(number, number, 100 + number)
    assert (keys.next_until(), remembered(keys, 114)) == (110, {n: n for n in (*range(10), *range(15, 20))})
    assert remembered(keys, 999_999).keys() == set(range(10))


def test_a_key_that_is_added_again_has_its_later_end() -> None:
    keys = DedupKeys()
    for until in (10, 30, 20):
        keys.add(1, until, until)
    assert (keys.find("", 0), remembered(keys, 19)) == (0, {1: 20})
    assert remembered(keys, 20) == remembered(keys, 30) == {}
    assert keys.next_until() is None


def test_random_keys_are_those_of_a_dictionary() -> None:
    chance = Random(1)
    for _ in range(200):
        keys, expected, now = DedupKeys(), dict[int, tuple[int, int]](), 0
        for number in range(1, chance.choice([3, 30, 300])):
            hashed, until = chance.randrange(1_000), now + chance.choice([1, 5, 5, 5, 50])
            if hashed not in expected:
                keys.add(hashed, number, until)
                expected[hashed] = number, until
            now += chance.choice([0, 0, 1, 7])
            expected = {key: found for key, found in expected.items() if found[1] > now}
            assert remembered(keys, now) == {key: found[0] for key, found in expected.items()}
            assert keys.next_until() == min((found[1] for found in expected.values()), default=None)


def test_one_call_forgets_a_thousand_and_the_memory_of_many_is_released() -> None:
    keys = DedupKeys()
    for number in range(100_000):
        keys.add(number, number + 1, 10)
    full = getsizeof(keys._found)
    keys.advance(10)
    assert (len(keys), keys.next_until(), keys.find("", 10)) == (99_000, 10, 0)
    assert remembered(keys, 10) == {}
    assert getsizeof(keys._found) < full / 50


def test_a_hash_has_sixteen_bytes_whatever_the_key() -> None:
    hashes = {hash_of(key) for key in ("", "a", "b", "x" * 256, "x" * 255, "\U0001f30a" * 64)}
    assert len(hashes) == 6
    assert max(hashes) < 1 << 8 * DEDUP_HASH_BYTES
    # Known bytes: snapshots have them.
    assert hash_of("k1").to_bytes(DEDUP_HASH_BYTES, "little").hex() == "b2a8bbbb0d226965cb3fd9a44c5883e5"
    assert 2 * getsizeof(max(hashes)) < DEDUP_KEY_MEMORY_BYTES
