"""A server keeps messages and bodies consistent when a store fails.

Method: stores in memory, of which one raises an error at the call that the test chooses; one vector of an id.
"""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from tidelog import UnavailableError
from tidelog.pandora import (
    AckStatus,
    Key,
    MemoryBlobStore,
    MemoryMessageStore,
    Message,
    MessageTooBigError,
    NoMessagesError,
    Server,
    Values,
    print_key_string,
)

NOON = datetime(2014, 6, 30, 12, tzinfo=UTC)
LEASE = timedelta(hours=1)
GRACE = timedelta(minutes=10)
NO_DELAY = timedelta()


class Clock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


class FailingBlobStore(MemoryBlobStore):
    """A blob store whose calls raise the error that the test sets."""

    error: Exception | None = None
    data: bytes | None = None

    def get_data(self, key: Key) -> bytes | None:
        if self.error:
            raise self.error
        return self.data or super().get_data(key)

    def update_ref_count(self, key: Key, delta: int) -> None:
        if self.error:
            raise self.error
        super().update_ref_count(key, delta)


class FailingMessageStore(MemoryMessageStore):
    """A message store whose ``enqueue`` raises the error that the test sets, before or after it has the message."""

    error: Exception | None = None
    is_enqueued = False

    def enqueue(self, message: Message) -> None:
        if self.is_enqueued or not self.error:
            super().enqueue(message)
        if self.error:
            raise self.error


class Parts:
    """A server, its stores and their clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.blobs = FailingBlobStore(clock=self.clock, grace_period=GRACE)
        self.messages = FailingMessageStore(clock=self.clock)
        self.server = Server(self.blobs, self.messages)

    def send(self) -> Message:
        return self.server.send("a@local", "b@remote", NO_DELAY, NOON, {"topic": "text"})

    def confirm(self, message: Message) -> None:
        assert message.mid is not None
        assert message.lid is not None
        self.server.ack(message.mid, message.lid, AckStatus.CONFIRMED)

    def pass_grace_period(self) -> None:
        self.clock.now += GRACE + timedelta(microseconds=1)


@pytest.fixture
def parts() -> Parts:
    return Parts()


def key_of(message: Message) -> Key:
    assert message.mid is not None
    return message.mid


def test_the_stores_of_a_server_are_public(parts: Parts) -> None:
    assert parts.server.blob_store is parts.blobs
    assert parts.server.message_store is parts.messages


def test_a_sent_message_has_the_id_of_the_vector(parts: Parts) -> None:
    assert print_key_string(parts.send().mid) == "995e5df1ea6c7a2b84fc92a83a0dc400ce0ffa54"


def test_a_body_that_is_sent_again_gets_the_servers_field_again(parts: Parts) -> None:
    again = parts.server.send("a@local", "b@remote", NO_DELAY, NOON, parts.send().body)
    assert print_key_string(again.mid) == "12d2b0c57d1f9ba7967f3f6e5aeda7511a784816"


def test_the_nanoseconds_of_the_clients_time_count(parts: Parts) -> None:
    time = "2014-06-30T12:00:00.123456789Z"
    message = parts.server.send("a@local", "b@remote", NO_DELAY, time, {"topic": ["text"]})
    assert print_key_string(message.mid) == "6cfa1763c6ea925de1ff181de05f887e54c10187"


@pytest.mark.parametrize("time", ["", "noon", NOON.replace(tzinfo=None)])
def test_an_invalid_time_of_the_client_is_refused(parts: Parts, time: datetime | str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parts.server.send("a@local", "b@remote", NO_DELAY, time, {})


def test_the_clients_time_is_now_if_it_is_not_given(parts: Parts) -> None:
    before = datetime.now(UTC)
    sent_at = parts.server.send("a@local", "b@remote", NO_DELAY, None, {}).client_time()
    assert sent_at is not None
    assert before <= sent_at <= datetime.now(UTC)


def test_the_body_of_the_caller_is_not_changed(parts: Parts) -> None:
    body: Mapping[str, str | list[str]] = {"topic": "text", "p-server": ["first"], "sender": "forged@local"}
    message = parts.server.send("a@local", "b@remote", NO_DELAY, NOON, body)
    assert body == {"topic": "text", "p-server": ["first"], "sender": "forged@local"}
    assert message.body["p-server"] == ["first", "Pandora-Default-Server"]
    assert message.body["sender"] == ["a@local"]


def test_the_maximum_size_can_be_set() -> None:
    server = Server(MemoryBlobStore(), MemoryMessageStore(), max_size=115)
    server.send("a@local", "b@remote", NO_DELAY, NOON, {"topic": "text"})
    with pytest.raises(MessageTooBigError, match="max size is 115"):
        server.send("a@local", "b@remote", NO_DELAY, NOON, {"topic": "text."})


def test_a_refused_message_does_not_refer_to_its_body(parts: Parts) -> None:
    mid = key_of(Parts().send())
    parts.messages.error = UnavailableError("any", effect="none")
    with pytest.raises(UnavailableError):
        parts.send()
    assert parts.blobs.get_data(mid) is not None
    parts.pass_grace_period()
    assert parts.blobs.get_data(mid) is None


@pytest.mark.parametrize("error", [UnavailableError("any", effect="unknown"), RuntimeError("any")])
def test_a_message_whose_fate_is_unknown_refers_to_its_body(parts: Parts, error: Exception) -> None:
    parts.messages.error, parts.messages.is_enqueued = error, True
    with pytest.raises(type(error)):
        parts.send()
    parts.pass_grace_period()
    assert parts.server.fetch_latest("b@remote", LEASE).valid_body()


@pytest.mark.parametrize("error", [UnavailableError("any"), OSError("any")])
def test_a_message_is_returned_when_the_blob_store_fails_and_stays_leased(parts: Parts, error: Exception) -> None:
    parts.send()
    parts.blobs.error = error
    fetched = parts.server.fetch_latest("b@remote", LEASE)
    assert (fetched.valid_body(), fetched.body, fetched.body_error) == (False, {}, error)
    with pytest.raises(NoMessagesError):
        parts.server.fetch_latest("b@remote", LEASE)
    out: Values = {}
    fetched.write_to(out)
    assert out["validBody"] == ["false"]


def test_a_body_that_cannot_be_decoded_is_invalid(parts: Parts) -> None:
    parts.send()
    parts.blobs.data = b"a=%zz"
    fetched = parts.server.fetch_latest("b@remote", LEASE)
    assert (fetched.valid_body(), fetched.body) == (False, {})
    assert isinstance(fetched.body_error, ValueError)


def test_an_acknowledgement_counts_when_the_blob_store_fails(parts: Parts, caplog: pytest.LogCaptureFixture) -> None:
    sent = parts.send()
    fetched = parts.server.fetch_latest("b@remote", LEASE)
    parts.blobs.error = UnavailableError("the blob store stops")
    with caplog.at_level(logging.WARNING):
        parts.confirm(fetched)
    assert f"body {print_key_string(sent.mid)} keeps one reference too many: the blob store stops" in caplog.text
    parts.blobs.error = None
    with pytest.raises(NoMessagesError):
        parts.server.fetch_latest("b@remote", LEASE)


def test_a_rejected_message_still_refers_to_its_body(parts: Parts) -> None:
    parts.send()
    fetched = parts.server.fetch_latest("b@remote", LEASE)
    assert fetched.lid is not None
    parts.server.ack(key_of(fetched), fetched.lid, AckStatus.REJECTED)
    parts.pass_grace_period()
    assert parts.server.fetch_latest("b@remote", LEASE).valid_body()
