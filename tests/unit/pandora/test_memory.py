"""Stores in memory keep to the microsecond what the rules say, and forget what they no longer need.

Method: the synchronous stores with times of the test, and on threads.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from tidelog.pandora import (
    AckStatus,
    Key,
    MemoryBlobStore,
    MemoryMessageStore,
    Message,
    NoMessagesError,
    Server,
    StaleLockError,
)

NOON = datetime(2014, 6, 30, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MICROSECOND = timedelta(microseconds=1)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def message(number: int = 0, **header: timedelta | datetime) -> Message:
    body = {"sender": ["a@local"], "receiver": ["b@remote"], "number": [str(number)]}
    return Message(body=body, **header)  # type: ignore[arg-type]  # the fields are those of the test


def mid_of(sent: Message) -> Key:
    assert sent.mid is not None
    return sent.mid


def leased(store: MemoryMessageStore, lease: timedelta = MINUTE) -> Key:
    """Lease the next message, and return its lock."""
    lid = store.fetch_and_lock_latest("b@remote", lease).lid
    assert lid is not None
    return lid


def store_with(*sent: Message) -> tuple[MemoryMessageStore, list[datetime]]:
    """Return a store with messages, and its time."""
    clock = [NOON]
    store = MemoryMessageStore(clock=lambda: clock[0])
    for each in sent:
        store.enqueue(each)
    return store, clock


def test_a_lease_is_valid_up_to_and_including_its_end() -> None:
    sent = message()
    store, clock = store_with(sent)
    lid, clock[0] = leased(store), NOON + MINUTE
    store.ack(mid_of(sent), lid, AckStatus.CONFIRMED)
    store, clock = store_with(sent)
    lid, clock[0] = leased(store), NOON + MINUTE
    with pytest.raises(NoMessagesError):
        store.fetch_and_lock_latest("b@remote", MINUTE)
    clock[0] = NOON + MINUTE + MICROSECOND
    with pytest.raises(StaleLockError):
        store.ack(mid_of(sent), lid, AckStatus.CONFIRMED)
    assert store.fetch_and_lock_latest("b@remote", MINUTE).status == AckStatus.TIMEOUT


def test_a_message_is_due_at_its_time() -> None:
    store, clock = store_with(message(delay=MINUTE))
    clock[0] = NOON + MINUTE - MICROSECOND
    with pytest.raises(NoMessagesError):
        store.fetch_and_lock_latest("b@remote", MINUTE)
    assert store.fetch_headers("b@remote", LONG_AGO, 1) == []
    clock[0] = NOON + MINUTE
    assert len(store.fetch_headers("b@remote", LONG_AGO, 1)) == 1
    assert store.fetch_headers("b@remote", NOON, 1) == []
    assert len(store.fetch_headers("b@remote", NOON - MICROSECOND, 1)) == 1
    store.fetch_and_lock_latest("b@remote", MINUTE)


def test_messages_that_are_due_at_one_time_are_fetched_in_the_order_of_their_receipt() -> None:
    sent = [message(number) for number in range(20)]
    store, clock = store_with(*sent)
    assert [store.fetch_and_lock_latest("b@remote", MINUTE).mid for _ in sent] == [each.mid for each in sent]
    # Also after their leases: the number of a message stays.
    clock[0] = NOON + MINUTE + MICROSECOND
    assert [store.fetch_and_lock_latest("b@remote", MINUTE).mid for _ in sent] == [each.mid for each in sent]


@pytest.mark.parametrize("lease", [timedelta(), -MINUTE])
def test_a_store_needs_a_lease_above_zero(lease: timedelta) -> None:
    store = MemoryMessageStore()
    store.enqueue(message())
    with pytest.raises(ValueError, match="expected more than zero"):
        store.fetch_and_lock_latest("b@remote", lease)
    assert store.fetch_and_lock_latest("b@remote", MINUTE).delivery_count == 0


def test_a_lease_or_delay_without_an_end_changes_nothing() -> None:
    store = MemoryMessageStore()
    with pytest.raises(OverflowError):
        store.enqueue(message(delay=timedelta.max))
    store.enqueue(message())
    with pytest.raises(OverflowError):
        store.fetch_and_lock_latest("b@remote", timedelta.max)
    assert store.fetch_and_lock_latest("b@remote", MINUTE).delivery_count == 0


def test_times_need_a_time_zone_and_a_limit_is_not_negative() -> None:
    store, naive = MemoryMessageStore(), datetime(2014, 6, 30)  # noqa: DTZ001 - the subject of the test
    for call in (
        lambda: store.enqueue(message(send_when=naive)),
        lambda: store.fetch_headers("b@remote", naive),
        lambda: store.reenqueue(naive),
    ):
        with pytest.raises(ValueError, match="has no time zone"):
            call()
    store.enqueue(message())
    with pytest.raises(ValueError, match="the limit is -1, expected zero or more"):
        store.fetch_headers("b@remote", LONG_AGO, -1)


def test_leases_that_were_acknowledged_take_no_memory_until_they_end() -> None:
    kept, rejected = message(0), message(1)
    store, clock = store_with(kept)
    lid = leased(store)
    store.enqueue(rejected)
    for _ in range(1, 5_000):
        store.ack(mid_of(rejected), leased(store, timedelta(days=365)), AckStatus.REJECTED)
    assert len(store._ends) < 1_100
    # The lease that is still valid ends in time.
    clock[0] = NOON + 2 * MINUTE
    with pytest.raises(StaleLockError):
        store.ack(mid_of(kept), lid, AckStatus.CONFIRMED)
    headers = store.fetch_headers("b@remote", LONG_AGO, 3)
    assert {header.status for header in headers} == {AckStatus.TIMEOUT, AckStatus.REJECTED}


def test_a_blob_is_kept_up_to_and_including_the_end_of_its_grace_period() -> None:
    clock = [NOON]
    store = MemoryBlobStore(clock=lambda: clock[0], grace_period=MINUTE)
    key = store.put_data(b"data")
    clock[0] = NOON + MINUTE
    assert store.get_data(key) == b"data"
    store.put_data(b"data")
    clock[0] = NOON + 2 * MINUTE
    assert store.get_data(key) == b"data"
    store.update_ref_count(key, 1)
    clock[0] = NOON + 9 * MINUTE
    assert store.get_data(key) == b"data"
    store.update_ref_count(key, -1)
    # Further changes below one reference do not restart the period.
    clock[0] = NOON + 10 * MINUTE
    store.update_ref_count(key, -1)
    assert store.get_data(key) == b"data"
    clock[0] += MICROSECOND
    assert store.get_data(key) is None


def test_a_blob_that_others_changed_after_it_was_put_is_a_copy() -> None:
    store, data = MemoryBlobStore(), bytearray(b"data")
    key = store.put_data(data)  # type: ignore[arg-type]  # as a caller without types may do
    data[:] = b"else"
    assert store.get_data(key) == b"data"


def test_stores_in_memory_can_be_used_on_threads() -> None:
    server, fetched, lock = Server(MemoryBlobStore(), MemoryMessageStore()), [], threading.Lock()

    def work(worker: int) -> None:
        for number in range(50):
            server.send("a@local", "b@remote", timedelta(), None, {"text": f"{worker} {number}"})
            delivery = server.fetch_latest("b@remote", timedelta(hours=1))
            assert delivery.mid is not None
            assert delivery.lid is not None
            server.ack(delivery.mid, delivery.lid, AckStatus.CONFIRMED)
            with lock:
                fetched.append(delivery.get("text"))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert sorted(fetched) == sorted(f"{worker} {number}" for worker in range(8) for number in range(50))
