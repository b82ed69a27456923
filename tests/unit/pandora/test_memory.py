"""Stores in memory keep to the microsecond what the rules say, and forget what they no longer need.

Method: the tables with times of the test, and the synchronous stores on threads.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from tidelog.pandora import (
    AckStatus,
    MemoryBlobStore,
    MemoryMessageStore,
    Message,
    NoMessagesError,
    Server,
    StaleLockError,
)
from tidelog.pandora.memory_tables import BlobTable, MessageTable

NOON = datetime(2014, 6, 30, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MICROSECOND = timedelta(microseconds=1)
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def message(number: int = 0, **header: timedelta | datetime) -> Message:
    body = {"sender": ["a@local"], "receiver": ["b@remote"], "number": [str(number)]}
    return Message(body=body, **header)  # type: ignore[arg-type]  # the fields are those of the test


def lid(number: int) -> bytes:
    return number.to_bytes(20, "big")


def mid_of(sent: Message) -> bytes:
    assert sent.mid is not None
    return bytes(sent.mid.bytes())


def leased_table(sent: Message) -> MessageTable:
    table = MessageTable()
    table.enqueue(sent, NOON)
    table.fetch("b@remote", MINUTE, NOON, lid(1))
    return table


def test_a_lease_is_valid_up_to_and_including_its_end() -> None:
    sent = message()
    leased_table(sent).ack(mid_of(sent), lid(1), AckStatus.CONFIRMED, NOON + MINUTE)
    table = leased_table(sent)
    with pytest.raises(NoMessagesError):
        table.fetch("b@remote", MINUTE, NOON + MINUTE, lid(2))
    with pytest.raises(StaleLockError):
        table.ack(mid_of(sent), lid(1), AckStatus.CONFIRMED, NOON + MINUTE + MICROSECOND)
    assert table.fetch("b@remote", MINUTE, NOON + MINUTE + MICROSECOND, lid(2)).status == AckStatus.TIMEOUT


def test_a_message_is_due_at_its_time() -> None:
    table = MessageTable()
    table.enqueue(message(delay=MINUTE), NOON)
    with pytest.raises(NoMessagesError):
        table.fetch("b@remote", MINUTE, NOON + MINUTE - MICROSECOND, lid(1))
    assert table.headers("b@remote", LONG_AGO, 1, NOON + MINUTE - MICROSECOND) == []
    assert len(table.headers("b@remote", LONG_AGO, 1, NOON + MINUTE)) == 1
    assert table.headers("b@remote", NOON, 1, NOON + MINUTE) == []
    assert len(table.headers("b@remote", NOON - MICROSECOND, 1, NOON + MINUTE)) == 1
    table.fetch("b@remote", MINUTE, NOON + MINUTE, lid(1))


def test_messages_that_are_due_at_one_time_are_fetched_in_the_order_of_their_receipt() -> None:
    table = MessageTable()
    sent = [message(number) for number in range(20)]
    for each in sent:
        table.enqueue(each, NOON)
    assert [table.fetch("b@remote", MINUTE, NOON, lid(1)).mid for _ in sent] == [each.mid for each in sent]
    # Also after their leases: the number of a message stays.
    later = NOON + MINUTE + MICROSECOND
    assert [table.fetch("b@remote", MINUTE, later, lid(2)).mid for _ in sent] == [each.mid for each in sent]


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
    table, kept, rejected = MessageTable(), message(0), message(1)
    table.enqueue(kept, NOON)
    table.fetch("b@remote", MINUTE, NOON, lid(0))
    table.enqueue(rejected, NOON)
    for number in range(1, 5_000):
        table.fetch("b@remote", timedelta(days=365), NOON, lid(number))
        table.ack(mid_of(rejected), lid(number), AckStatus.REJECTED, NOON)
    assert len(table._ends) < 1_100
    # The lease that is still valid ends in time.
    with pytest.raises(StaleLockError):
        table.ack(mid_of(kept), lid(0), AckStatus.CONFIRMED, NOON + 2 * MINUTE)
    headers = table.headers("b@remote", LONG_AGO, 3, NOON + 2 * MINUTE)
    assert {header.status for header in headers} == {AckStatus.TIMEOUT, AckStatus.REJECTED}


def test_a_blob_is_kept_up_to_and_including_the_end_of_its_grace_period() -> None:
    table = BlobTable(MINUTE)
    key = bytes(table.put(b"data", NOON))
    assert table.get(key, NOON + MINUTE) == b"data"
    table.put(b"data", NOON + MINUTE)
    assert table.get(key, NOON + 2 * MINUTE) == b"data"
    table.update(key, 1, NOON + 2 * MINUTE)
    assert table.get(key, NOON + 9 * MINUTE) == b"data"
    table.update(key, -1, NOON + 9 * MINUTE)
    # Further changes below one reference do not restart the period.
    table.update(key, -1, NOON + 10 * MINUTE)
    assert table.get(key, NOON + 10 * MINUTE) == b"data"
    assert table.get(key, NOON + 10 * MINUTE + MICROSECOND) is None


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
