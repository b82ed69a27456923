"""The synchronous readers and iterators, on a real server."""

from collections.abc import Iterator

import pytest

from tidelog import Client
from tidelog.gazette.errors import MustStartReplayError, UnmarshalError
from tidelog.gazette.generated.iterators import ReadCommittedIter, ReadUncommittedIter
from tidelog.gazette.generated.reader import RetryReader
from tidelog.gazette.publisher import Publisher
from tidelog.gazette.readers import ReadRequest
from tidelog.gazette.sequencer import Sequencer, StepSequencer
from tidelog.gazette.sync_append import JournalClient
from tidelog.journals.labels import LabelSet
from tidelog.journals.types import JournalUpsert
from tidelog.testing import start_server
from tidelog_testing.parts.journal_messages import JSON_LINES, new_note, note, text_of, to

A = "a/journal"


@pytest.fixture
def journals() -> Iterator[JournalClient]:
    with start_server() as running, Client(running.endpoint) as client:
        client.journals.apply([JournalUpsert(A, LabelSet.of({"content-type": JSON_LINES}), 0)])
        with JournalClient(client) as journals:
            yield journals


def transaction(journals: JournalClient, publisher: Publisher, *texts: str) -> None:
    for text in texts:
        publisher.publish_uncommitted(to(A), note(text))
    journals.flush()
    journals.write_ack_intents(publisher.build_ack_intents())


def test_messages_as_written_and_committed(journals: JournalClient) -> None:
    publisher, outside = Publisher(journals), Publisher(journals)
    publisher.publish_uncommitted(to(A), note("1"))
    outside.publish_committed(to(A), note("x"))
    transaction(journals, publisher, "2")

    reader = RetryReader(journals, ReadRequest(A))
    assert reader.offset == 0
    written = [text_of(each.message) for each in ReadUncommittedIter(reader, new_note)]
    committed = ReadCommittedIter(RetryReader(journals, ReadRequest(A)), new_note, StepSequencer(ring_size=1))

    assert written == ["1", "x", "2", ""]
    assert [text_of(each.message) for each in committed] == ["x", "1", "2", ""]
    assert (reader.spec().name, reader.next_page(), reader.request.journal) == (A, None, A)
    with pytest.raises(EOFError, match="is at its end"):
        committed.next()
    committed.close()
    reader.close()


def test_a_broken_frame_is_survived(journals: JournalClient) -> None:
    journals.append(A, b"garbage\n")
    journals.append(A, b'{"text":"one"}\n').result()
    iterator = ReadUncommittedIter(RetryReader(journals, ReadRequest(A)), new_note)

    with pytest.raises(UnmarshalError):
        next(iterator)
    assert text_of(iterator.next().message) == "one"
    with pytest.raises(EOFError):
        iterator.next()
    iterator.close()


def test_the_older_interface_replays_with_an_iterator(journals: JournalClient) -> None:
    """As in the documents of Gazette's package: queue, dequeue, and replay exactly the range asked for."""
    publisher = Publisher(journals)
    transaction(journals, publisher, "1", "2", "3")
    sequencer = Sequencer(buffer=1)
    found = []
    for envelope in ReadUncommittedIter(RetryReader(journals, ReadRequest(A)), new_note):
        sequencer.queue_uncommitted(envelope)
        while True:
            try:
                found.append(text_of(sequencer.deque_committed().message))
            except EOFError:
                break
            except MustStartReplayError:
                begin, end = sequencer.replay_range()
                request = ReadRequest(A, begin, end_offset=end)
                sequencer.start_replay(ReadUncommittedIter(RetryReader(journals, request), new_note))

    assert found == ["1", "2", "3", ""]
