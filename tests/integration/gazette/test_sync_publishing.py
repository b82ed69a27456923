"""The synchronous twins of the journal client and the publisher, on a real server."""

import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from uuid import UUID

import pytest

from tidelog import Client
from tidelog.errors import ClosedError, ProducerStoppedError
from tidelog.gazette.publisher import Publisher
from tidelog.gazette.sync_append import Append, JournalClient
from tidelog.gazette.uuids import Flags, get_clock, get_flags
from tidelog.journals.labels import LabelSet
from tidelog.journals.types import JournalDelete, JournalSpec, JournalUpsert
from tidelog.testing import start_server
from tidelog_testing.parts.journal_messages import JSON_LINES, Note, note, to

A, B = "a/journal", "b/journal"


@pytest.fixture
def client() -> Iterator[Client]:
    with start_server() as running, Client(running.endpoint) as client:
        for channel in ("one", "two"):
            client.create_channel(channel)
        yield client


def find(journal: str) -> JournalSpec:
    return JournalSpec(journal, channel={A: "one", B: "two"}[journal])


def frames(client: Client, channel: str) -> list[bytes]:
    return [payload for batch in client.scan(channel) for payload in batch.payloads]


def test_clocks_are_written_in_rising_order_by_many_threads(client: Client) -> None:
    """Invariant I1: without the lock, a thread adds its frame after one with a larger clock."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with JournalClient(client, find=find) as journals:
            publisher = Publisher(journals)
            mapping = to(A)

            def publish() -> None:
                for number in range(500):
                    publisher.publish_committed(mapping, note(str(number)))

            threads = [threading.Thread(target=publish) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval_s)

    clocks = [get_clock(UUID(json.loads(frame)["uuid"])) for frame in frames(client, "one")]
    assert len(clocks) == 2_000
    assert clocks == sorted(clocks)


def test_a_message_that_publishes_while_it_is_encoded_is_refused(client: Client) -> None:
    with JournalClient(client, find=find) as journals:
        publisher = Publisher(journals)

        class Nested(Note):
            def marshal_json_to(self, writer: object) -> None:
                publisher.publish_committed(to(A), note("inside"))

        with pytest.raises(RuntimeError, match="while another one is encoded"):
            publisher.publish_committed(to(A), Nested())


def test_a_transaction_is_acknowledged_after_the_store_has_committed(client: Client) -> None:
    committed: Future[None] = Future()
    with JournalClient(client, find=find) as journals:
        publisher = Publisher(journals)
        for journal in (A, B):
            publisher.publish_uncommitted(to(journal), note("1"))
        journals.flush()
        acks = journals.append_ack_intents(publisher.build_ack_intents(), [committed])
        publisher.publish_uncommitted(to(A), note("2"))
        with pytest.raises(TimeoutError):
            acks[0].result(timeout_s=0)
        assert journals.pending_except(B) == acks[:1]
        committed.set_result(None)
        acks[1].result()

    flags = [[get_flags(UUID(json.loads(frame)["uuid"])) for frame in frames(client, each)] for each in ("one", "two")]
    assert flags == [[Flags.CONTINUE_TXN, Flags.ACK_TXN, Flags.CONTINUE_TXN], [Flags.CONTINUE_TXN, Flags.ACK_TXN]]


def test_intents_are_written_again_after_a_crash(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    labels = LabelSet.of({"content-type": JSON_LINES})
    client.journals.apply([JournalUpsert(name, labels, 0) for name in (A, B)])
    with JournalClient(client) as journals:
        publisher = Publisher(journals)
        for journal in (A, B):
            publisher.publish_uncommitted(to(journal), note("1"))
        journals.flush()
        intents = publisher.build_ack_intents()

    client.journals.apply([JournalDelete(B)])
    with JournalClient(client) as journals:
        journals.write_ack_intents(intents)

    assert "journal b/journal does not exist" in caplog.text


def test_the_failure_of_a_journal_is_dropped_with_its_intent(client: Client) -> None:
    client.journals.apply([JournalUpsert(A, LabelSet.of({"content-type": JSON_LINES}), 0)])
    with JournalClient(client) as journals:
        publisher = Publisher(journals)
        publisher.publish_uncommitted(to(A), note("1"))
        journals.flush()
        client.journals.apply([JournalDelete(A)])
        journals.write_ack_intents(publisher.build_ack_intents())
        journals.flush()


def test_a_failure_stops_the_journal(client: Client) -> None:
    failed: Future[None] = Future()
    journals = JournalClient(client, find=find)
    ack = journals.append(A, b"ack", dependencies=[failed])
    failed.set_exception(ValueError("the store refused"))
    with pytest.raises(ProducerStoppedError, match="the store refused"):
        ack.result()
    with pytest.raises(ProducerStoppedError, match="create another journal client"):
        journals.append(A, b"next")
    with pytest.raises(ProducerStoppedError):
        journals.close()
    with pytest.raises(ClosedError):
        journals.append(B, b"late")


def test_what_was_not_sent_when_the_block_raised_is_dropped(client: Client) -> None:
    gate: Future[None] = Future()
    append: Append | None = None
    with pytest.raises(ValueError, match="of the caller"), JournalClient(client, find=find) as journals:
        append = journals.append(A, b"frame", dependencies=[gate])
        raise ValueError("of the caller")
    assert append is not None
    with pytest.raises(ClosedError, match="was closed before it appended"):
        append.result()
