"""Mailboxes and blobs in memory behave like plain lists under any sequence of operations, with time as an input.

Method: a hypothesis state machine sends, fetches, acknowledges, lists, lets time pass and sets the clock back; results
are compared with a model of a list of messages.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from tidelog.pandora import (
    AckStatus,
    BlobNotFoundError,
    DuplicateMessageError,
    MemoryBlobStore,
    MemoryMessageStore,
    Message,
    NoMessagesError,
    SenderNotFoundError,
    SHA1Key,
    StaleLockError,
    UnableToChangeStatusError,
)
from tidelog.pandora.keys import sha1_key

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
BOXES = st.sampled_from(["a", "b", "c"])
SECONDS = st.integers(-3, 5).map(lambda count: timedelta(seconds=count))
LEASES = st.integers(1, 5).map(lambda count: timedelta(seconds=count))


@dataclass
class Row:
    """A message of the model."""

    message: Message
    number: int
    received_at: datetime
    send_when: datetime
    status: AckStatus = AckStatus.NOT_DELIVERED
    deliveries: int = 0
    lid: bytes = b""
    leased_until: datetime = BEGIN

    @property
    def mid(self) -> bytes:
        return key_bytes(self.message.mid)


def key_bytes(key: Any) -> bytes:
    return bytes(key.bytes())


class MailboxMachine(RuleBasedStateMachine):
    """The store under test, and the list of all messages ever accepted."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryMessageStore(clock=lambda: self.now)
        self.rows: list[Row] = []
        self.boxes: set[str] = set()
        self.now = BEGIN

    def release(self) -> None:
        for row in sorted(self.rows, key=lambda row: (row.leased_until, row.mid)):
            if row.lid and row.leased_until < self.now:
                self.wait(row, AckStatus.TIMEOUT)

    def wait(self, row: Row, status: AckStatus) -> None:
        row.lid, row.status = b"", status

    def available(self, box: str) -> list[Row]:
        return [
            row for row in self.rows
            if row.message.receiver() == box and not row.lid and row.send_when <= self.now
            and row.status != AckStatus.CONFIRMED
        ]  # fmt: skip

    @rule(change=SECONDS)
    def pass_time(self, change: timedelta) -> None:
        self.now += change

    @rule(sender=BOXES, receiver=BOXES, delay=SECONDS, text=st.integers(0, 20))
    def send(self, sender: str, receiver: str, delay: timedelta, text: int) -> None:
        self.release()
        message = Message(body={"sender": [sender], "receiver": [receiver], "text": [str(text)]}, delay=delay)
        if any(row.message.body == message.body for row in self.rows):
            with pytest.raises(DuplicateMessageError):
                self.store.enqueue(message)
            return
        self.store.enqueue(message)
        self.boxes |= {sender, receiver}
        # Messages that are due at one time are fetched in the order in which they were sent.
        self.rows.append(Row(message, len(self.rows), self.now, self.now + delay))

    @rule(target=leases, box=BOXES, lease=LEASES)
    def fetch(self, box: str, lease: timedelta) -> tuple[bytes, bytes]:
        self.release()
        available = self.available(box)
        if not available:
            with pytest.raises(NoMessagesError if box in self.boxes else SenderNotFoundError):
                self.store.fetch_and_lock_latest(box, lease)
            return bytes(20), bytes(20)
        expected = min(available, key=lambda row: (row.send_when, row.number))
        fetched = self.store.fetch_and_lock_latest(box, lease)
        header = (fetched.status, fetched.delivery_count, fetched.leased_until, fetched.fetch_time, fetched.send_when)
        assert key_bytes(fetched.mid) == expected.mid
        assert header == (
            expected.status, expected.deliveries, self.now + lease, self.now, expected.send_when,
        )  # fmt: skip
        expected.lid, expected.leased_until = key_bytes(fetched.lid), self.now + lease
        expected.deliveries += 1
        return expected.mid, expected.lid

    @rule(lease=leases, status=st.sampled_from([0, 1, 1, 2, 2, 2, 4, 8]))
    def ack(self, lease: tuple[bytes, bytes], status: int) -> None:
        mid, lid = lease
        if status not in {1, 2}:
            # An invalid call changes nothing: no lease is released either.
            with pytest.raises(UnableToChangeStatusError):
                self.store.ack(SHA1Key(mid), SHA1Key(lid), status)
            return
        self.release()
        found = [row for row in self.rows if row.mid == mid and row.lid == lid]
        if not found:
            with pytest.raises(StaleLockError):
                self.store.ack(SHA1Key(mid), SHA1Key(lid), status)
        else:
            self.store.ack(SHA1Key(mid), SHA1Key(lid), status)
            self.wait(found[0], AckStatus(status))

    @rule(box=BOXES, age=SECONDS, limit=st.integers(0, 5))
    def headers(self, box: str, age: timedelta, limit: int) -> None:
        self.release()
        if box not in self.boxes:
            with pytest.raises(SenderNotFoundError):
                self.store.fetch_headers(box, self.now - age, limit)
            return
        listed = self.store.fetch_headers(box, self.now - age, limit)
        expected = [row for row in self.available(box) if row.received_at > self.now - age]
        expected.sort(key=lambda row: (row.received_at, row.send_when))
        times = [(each.received_at, each.send_when) for each in listed]
        assert times == [(row.received_at, row.send_when) for row in expected[:limit]]
        by_mid = {row.mid: (row.status, row.deliveries) for row in expected}
        assert all(by_mid[key_bytes(each.mid)] == (each.status, each.delivery_count) for each in listed)
        assert len({key_bytes(each.mid) for each in listed}) == len(listed)

    @rule()
    def reenqueue(self) -> None:
        self.release()
        self.store.reenqueue(self.now)

    @invariant()
    def the_store_has_the_messages_that_are_not_confirmed(self) -> None:
        waiting = {row.mid for row in self.rows if row.status != AckStatus.CONFIRMED}
        assert self.store._rows.keys() == waiting
        assert self.store._leased == sum(bool(row.lid) for row in self.store._rows.values())


class BlobMachine(RuleBasedStateMachine):
    """The store under test, and for each blob its references and the last time it may be read for sure."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryBlobStore(clock=lambda: self.now, grace_period=timedelta(seconds=4))
        self.now = BEGIN
        self.blobs: dict[bytes, tuple[int, datetime]] = {}

    def collect(self) -> None:
        self.blobs = {data: blob for data, blob in self.blobs.items() if blob[0] > 0 or blob[1] >= self.now}

    @rule(seconds=st.integers(0, 5))
    def pass_time(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(data=st.sampled_from([b"", b"a", b"b"]))
    def put(self, data: bytes) -> None:
        self.collect()
        assert self.store.put_data(data) == sha1_key(data)
        count, _ = self.blobs.get(data, (0, BEGIN))
        self.blobs[data] = (count, self.now + timedelta(seconds=4))

    @rule(data=st.sampled_from([b"", b"a", b"b"]), delta=st.integers(-2, 2))
    def update(self, data: bytes, delta: int) -> None:
        self.collect()
        if data not in self.blobs:
            with pytest.raises(BlobNotFoundError):
                self.store.update_ref_count(sha1_key(data), delta)
            return
        self.store.update_ref_count(sha1_key(data), delta)
        count, end = self.blobs[data]
        is_released = count > 0 and count + delta <= 0
        self.blobs[data] = (count + delta, self.now + timedelta(seconds=4) if is_released else end)

    @invariant()
    def the_blobs_are_those_of_the_model(self) -> None:
        self.collect()
        for data in (b"", b"a", b"b"):
            assert self.store.get_data(sha1_key(data)) == (data if data in self.blobs else None)


MailboxMachine.TestCase.settings = BlobMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=50, deadline=None
)
TestMailboxes = MailboxMachine.TestCase
TestBlobs = BlobMachine.TestCase
