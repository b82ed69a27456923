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
    Message,
    NoMessagesError,
    SenderNotFoundError,
    StaleLockError,
    UnableToChangeStatusError,
)
from tidelog.pandora.memory_tables import BlobTable, MessageTable

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
    """The table under test, and the list of all messages ever accepted."""

    leases = Bundle("leases")

    def __init__(self) -> None:
        super().__init__()
        self.table = MessageTable()
        self.rows: list[Row] = []
        self.boxes: set[str] = set()
        self.now = BEGIN
        self.lids = 0

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
                self.table.enqueue(message, self.now)
            return
        self.table.enqueue(message, self.now)
        self.boxes |= {sender, receiver}
        # Messages that are due at one time are fetched in the order in which they were sent.
        self.rows.append(Row(message, len(self.rows), self.now, self.now + delay))

    @rule(target=leases, box=BOXES, lease=LEASES)
    def fetch(self, box: str, lease: timedelta) -> tuple[bytes, bytes]:
        self.release()
        self.lids += 1
        lid = self.lids.to_bytes(20, "big")
        available = self.available(box)
        if not available:
            with pytest.raises(NoMessagesError if box in self.boxes else SenderNotFoundError):
                self.table.fetch(box, lease, self.now, lid)
            return b"no message", lid
        expected = min(available, key=lambda row: (row.send_when, row.number))
        fetched = self.table.fetch(box, lease, self.now, lid)
        header = (fetched.status, fetched.delivery_count, fetched.leased_until, fetched.fetch_time, fetched.send_when)
        assert key_bytes(fetched.mid) == expected.mid
        assert header == (
            expected.status, expected.deliveries, self.now + lease, self.now, expected.send_when,
        )  # fmt: skip
        expected.lid, expected.leased_until = lid, self.now + lease
        expected.deliveries += 1
        return expected.mid, lid

    @rule(lease=leases, status=st.sampled_from([0, 1, 1, 2, 2, 2, 4, 8]))
    def ack(self, lease: tuple[bytes, bytes], status: int) -> None:
        mid, lid = lease
        if status not in {1, 2}:
            # An invalid call changes nothing: no lease is released either.
            with pytest.raises(UnableToChangeStatusError):
                self.table.ack(mid, lid, status, self.now)
            return
        self.release()
        found = [row for row in self.rows if row.mid == mid and row.lid == lid]
        if not found:
            with pytest.raises(StaleLockError):
                self.table.ack(mid, lid, status, self.now)
        else:
            self.table.ack(mid, lid, status, self.now)
            self.wait(found[0], AckStatus(status))

    @rule(box=BOXES, age=SECONDS, limit=st.integers(0, 5))
    def headers(self, box: str, age: timedelta, limit: int) -> None:
        self.release()
        if box not in self.boxes:
            with pytest.raises(SenderNotFoundError):
                self.table.headers(box, self.now - age, limit, self.now)
            return
        listed = self.table.headers(box, self.now - age, limit, self.now)
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
        self.table.release(self.now)

    @invariant()
    def the_table_has_the_messages_that_are_not_confirmed(self) -> None:
        waiting = {row.mid for row in self.rows if row.status != AckStatus.CONFIRMED}
        assert self.table._rows.keys() == waiting
        assert self.table._leased == sum(bool(row.lid) for row in self.table._rows.values())


class BlobMachine(RuleBasedStateMachine):
    """The table under test, and for each key its data, its references and the last time it may be read for sure."""

    def __init__(self) -> None:
        super().__init__()
        self.table = BlobTable(timedelta(seconds=4))
        self.now = BEGIN
        self.blobs: dict[bytes, tuple[bytes, int, datetime]] = {}

    def collect(self) -> None:
        self.blobs = {
            key: blob for key, blob in self.blobs.items() if blob[1] > 0 or blob[2] >= self.now
        }  # fmt: skip

    @rule(seconds=st.integers(0, 5))
    def pass_time(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule(data=st.sampled_from([b"", b"a", b"b"]))
    def put(self, data: bytes) -> None:
        self.collect()
        key = bytes(self.table.put(data, self.now))
        count = self.blobs[key][1] if key in self.blobs else 0
        self.blobs[key] = (data, count, self.now + timedelta(seconds=4))

    @rule(data=st.sampled_from([b"", b"a", b"b"]), delta=st.integers(-2, 2))
    def update(self, data: bytes, delta: int) -> None:
        self.collect()
        key = bytes(BlobTable(timedelta()).put(data, self.now))
        if key not in self.blobs:
            with pytest.raises(BlobNotFoundError):
                self.table.update(key, delta, self.now)
            return
        self.table.update(key, delta, self.now)
        data, count, end = self.blobs[key]
        is_released = count > 0 and count + delta <= 0
        self.blobs[key] = (data, count + delta, self.now + timedelta(seconds=4) if is_released else end)

    @invariant()
    def the_blobs_are_those_of_the_model(self) -> None:
        self.collect()
        for data in (b"", b"a", b"b"):
            key = bytes(BlobTable(timedelta()).put(data, self.now))
            assert self.table.get(key, self.now) == (data if key in self.blobs else None)


MailboxMachine.TestCase.settings = BlobMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=50, deadline=None
)
TestMailboxes = MailboxMachine.TestCase
TestBlobs = BlobMachine.TestCase
