"""Reading journals of a real server: messages as written, committed messages, replays, errors, positions."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from tidelog import Tick
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.gazette.errors import MissingJournalError, ReplayReaderError, UnknownContentTypeError, UnmarshalError
from tidelog.gazette.iterators import AsyncReadCommittedIter, AsyncReadUncommittedIter
from tidelog.gazette.messages import Envelope
from tidelog.gazette.publisher import AsyncPublisher
from tidelog.gazette.readers import FROM_END, AsyncRetryReader, ReadRequest
from tidelog.gazette.sequencer import Sequencer, StepSequencer
from tidelog.gazette.uuids import Flags, get_flags
from tidelog.journals.labels import LabelSet
from tidelog.journals.types import JournalSpec, JournalUpsert
from tidelog.testing import server
from tidelog_testing.parts.journal_messages import JSON_LINES, Note, new_note, note, text_of, to

A, B = "a/journal", "b/journal"


@pytest.fixture
async def journals() -> AsyncIterator[AsyncJournalClient]:
    labels = LabelSet.of({"content-type": JSON_LINES})
    async with server() as client:
        await client.journals.apply([JournalUpsert(name, labels, 0) for name in (A, B)])
        async with AsyncJournalClient(client) as journals:
            yield journals


def uncommitted(
    journals: AsyncJournalClient, journal: str = A, *, offset: int = 0, end: int = 0, block: bool = False
) -> AsyncReadUncommittedIter:
    reader = AsyncRetryReader(journals, ReadRequest(journal, offset, block=block, end_offset=end))
    return AsyncReadUncommittedIter(reader, new_note)


def committed(
    journals: AsyncJournalClient, sequencer: StepSequencer | Sequencer, journal: str = A, *, offset: int = 0
) -> AsyncReadCommittedIter:
    return AsyncReadCommittedIter(AsyncRetryReader(journals, ReadRequest(journal, offset)), new_note, sequencer)


def text(envelope: Envelope) -> str:
    return text_of(envelope.message)


async def publish(journals: AsyncJournalClient, *texts: str, journal: str = A) -> list[int]:
    """Publish committed messages, each in a batch of its own, and return their positions."""
    publisher = AsyncPublisher(journals)
    return [(await publisher.publish_committed(to(journal), note(each))).first_tick for each in texts]


# ---------------------------------------------------------------------------------------------------- as written


async def test_an_envelope_has_the_specification_and_the_place_of_its_message(journals: AsyncJournalClient) -> None:
    positions = await publish(journals, "one", "two")

    envelopes = [envelope async for envelope in uncommitted(journals)]

    assert [(text(each), each.begin, each.end) for each in envelopes] == [
        ("one", positions[0], positions[0] + 1),
        ("two", positions[1], positions[1] + 1),
    ]
    assert envelopes[0].journal == await journals.find(A)
    assert envelopes[0].journal is envelopes[1].journal


async def test_next_raises_eof_error_at_the_end(journals: AsyncJournalClient) -> None:
    await publish(journals, "one")
    for iterator in (uncommitted(journals), committed(journals, StepSequencer())):
        assert text(await iterator.next()) == "one"
        for _ in range(2):
            with pytest.raises(EOFError, match="the read of journal a/journal is at its end"):
                await iterator.next()
        await iterator.aclose()


async def test_a_read_is_limited_to_its_positions(journals: AsyncJournalClient) -> None:
    positions = await publish(journals, *"abcde")

    part = [text(each) async for each in uncommitted(journals, offset=positions[1], end=positions[3])]
    rest = [text(each) async for each in uncommitted(journals, offset=positions[-1])]
    nothing = [text(each) async for each in uncommitted(journals, offset=positions[-1] + 1)]

    assert (part, rest, nothing) == (["b", "c"], ["e"], [])


@pytest.mark.parametrize(("offset", "end"), [(-2, 0), (0, -1)])
def test_positions_are_checked(offset: int, end: int) -> None:
    with pytest.raises(ValueError, match="expected -1 or more, and 0 or more"):
        ReadRequest(A, offset, end_offset=end)


async def test_a_blocking_read_follows_and_a_cancelled_wait_loses_nothing(journals: AsyncJournalClient) -> None:
    await publish(journals, "one")
    iterator = uncommitted(journals, block=True)
    assert text(await iterator.next()) == "one"
    waiting = asyncio.ensure_future(iterator.next())
    assert await asyncio.wait([waiting], timeout=0) == (set(), {waiting})
    waiting.cancel()
    await publish(journals, "two")

    assert text(await iterator.next()) == "two"
    await iterator.aclose()


async def test_a_read_from_the_end_has_only_what_follows(journals: AsyncJournalClient) -> None:
    await publish(journals, "before")
    iterator = uncommitted(journals, offset=FROM_END, block=True)
    waiting = asyncio.ensure_future(iterator.next())
    # The read has begun when it delivers a message; those before it may be missed, but none of those after it.
    while not waiting.done():
        await publish(journals, "after")

    assert text(await waiting) == "after"
    await iterator.aclose()


async def test_a_suffix_of_the_name_stays_in_the_envelopes(journals: AsyncJournalClient) -> None:
    await publish(journals, "one")

    (envelope,) = [each async for each in uncommitted(journals, f"{A};second/reader")]

    assert (envelope.journal.name, text(envelope)) == (f"{A};second/reader", "one")


async def test_a_missing_journal_and_an_unknown_framing_are_reported(journals: AsyncJournalClient) -> None:
    with pytest.raises(MissingJournalError) as missing:
        await uncommitted(journals, "no/journal").next()
    assert str(missing.value) == "fetching journal spec: named journal does not exist (no/journal)"
    assert missing.value.journal == "no/journal"

    await journals.client.journals.apply([JournalUpsert("no/framing", LabelSet(), 0)])
    with pytest.raises(UnknownContentTypeError) as unknown:
        await uncommitted(journals, "no/framing").next()
    assert str(unknown.value) == "determining framing: unrecognized content-type ()"


async def test_one_frame_that_cannot_be_decoded_is_survived(journals: AsyncJournalClient) -> None:
    journals.append(A, b'{"text":"one"}\n')
    journals.append(A, b"garbage\n")
    journals.append(A, b'{"text":"two"}\n')
    result = await journals.append(A, b'{"text":"open')

    iterator = uncommitted(journals)
    assert text(await iterator.next()) == "one"
    with pytest.raises(UnmarshalError, match=rf"^framing\.Unmarshal\(offset {result.first_tick + 1}\): ") as caught:
        await iterator.next()
    assert caught.value.offset == result.first_tick + 1
    assert text(await iterator.next()) == "two"
    with pytest.raises(UnmarshalError, match="unexpected EOF"):
        await iterator.next()
    with pytest.raises(EOFError):
        await iterator.next()


async def test_the_error_of_a_message_function_is_reported_for_its_frame(journals: AsyncJournalClient) -> None:
    await publish(journals, "one", "two")
    made = 0

    def fails_first(_: JournalSpec) -> Note:
        nonlocal made
        made += 1
        if made == 1:
            raise LookupError("no type for this journal")
        return Note()

    iterator = AsyncReadUncommittedIter(AsyncRetryReader(journals, ReadRequest(A)), fails_first)
    with pytest.raises(UnmarshalError, match="no type for this journal"):
        await iterator.next()
    assert text(await iterator.next()) == "two"


async def test_trimmed_positions_are_skipped_with_a_warning(
    journals: AsyncJournalClient, caplog: pytest.LogCaptureFixture
) -> None:
    positions = await publish(journals, *"abc")
    channel = (await journals.find(A)).channel
    await (await journals.owner_of(channel)).trim(f"{channel}/0", before=Tick(positions[2]))

    with caplog.at_level(logging.WARNING):
        found = [(text(each), each.begin) async for each in uncommitted(journals, offset=positions[0])]

    assert found == [("c", positions[2])]
    assert (
        f"journal a/journal: the frames from position {positions[0]} to {positions[1] + 1} were trimmed" in caplog.text
    )


# ---------------------------------------------------------------------------------------------------- committed


async def transaction(journals: AsyncJournalClient, publisher: AsyncPublisher, *texts: str, journal: str = A) -> None:
    """Publish a transaction and acknowledge it."""
    for each in texts:
        await publisher.publish_uncommitted(to(journal), note(each))
    await journals.write_ack_intents(publisher.build_ack_intents())


async def interleaved(journals: AsyncJournalClient) -> None:
    """Write two transactions that overlap, and one that stays open, with committed messages in between."""
    one, two, never, outside = (AsyncPublisher(journals) for _ in range(4))
    await one.publish_uncommitted(to(A), note("1a"))
    await two.publish_uncommitted(to(A), note("2a"))
    await never.publish_uncommitted(to(A), note("never"))
    await outside.publish_committed(to(A), note("x"))
    await transaction(journals, two, "2b")
    await outside.publish_committed(to(A), note("y"))
    await transaction(journals, one, "1b", "1c")


IN_ORDER = ["x", "2a", "2b", "", "y", "1a", "1b", "1c", ""]


@pytest.mark.parametrize("ring", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("kind", [StepSequencer, Sequencer])
async def test_committed_messages_come_at_their_acknowledgement_for_any_ring(
    journals: AsyncJournalClient, ring: int, kind: type[StepSequencer | Sequencer]
) -> None:
    await interleaved(journals)
    sequencer = StepSequencer(ring_size=ring) if kind is StepSequencer else Sequencer(buffer=ring)

    found = [each async for each in committed(journals, sequencer)]

    assert [text(each) for each in found] == IN_ORDER
    assert [get_flags(each.message.get_uuid()) for each in found if not text(each)] == [Flags.ACK_TXN] * 2


async def test_a_page_that_a_replay_interrupts_is_continued(journals: AsyncJournalClient) -> None:
    """All frames are in one batch, so the messages behind each acknowledgement are decoded before its replay."""
    await interleaved(journals)
    channel = (await journals.find(A)).channel
    owner = await journals.owner_of(channel)
    frames = [frame async for batch in owner.scan(channel) for frame in batch.payloads]
    for frame in frames:
        journals.append(B, frame)
    await journals.flush()

    found = [text(each) async for each in committed(journals, StepSequencer(ring_size=2), B)]

    assert found == IN_ORDER


async def test_a_reader_resumes_from_a_checkpoint_after_any_message(journals: AsyncJournalClient) -> None:
    await interleaved(journals)
    for ring in (1, 3, 100):
        found, sequencer, offset = [], StepSequencer(ring_size=ring), 0
        while True:
            iterator = committed(journals, sequencer, offset=offset)
            try:
                found.append(text(await iterator.next()))
            except EOFError:
                break
            finally:
                await iterator.aclose()
            sequencer.consume()
            checkpoint = sequencer.checkpoint()
            sequencer = StepSequencer(checkpoint.offsets, checkpoint.states, ring)
            offset = checkpoint.offsets.get(A, 0)

        assert found == IN_ORDER


async def test_a_message_counts_as_consumed_when_the_next_one_is_asked_for(journals: AsyncJournalClient) -> None:
    positions = await publish(journals, "one", "two")
    sequencer = StepSequencer()
    iterator = committed(journals, sequencer)
    await iterator.next()
    assert sequencer.checkpoint().offsets == {}
    await iterator.next()
    assert sequencer.checkpoint().offsets == {A: positions[0] + 1}
    with pytest.raises(EOFError):
        await iterator.next()
    assert sequencer.checkpoint().offsets == {A: positions[1] + 1}


@pytest.mark.parametrize("ring", [1, 100])
async def test_two_journals_may_share_a_sequencer(journals: AsyncJournalClient, ring: int) -> None:
    one, two = AsyncPublisher(journals), AsyncPublisher(journals)
    for number in "12":
        await transaction(journals, one, f"a{number}", f"b{number}")
        await transaction(journals, two, f"c{number}", f"d{number}", journal=B)
    sequencer = StepSequencer(ring_size=ring)
    iterators = [committed(journals, sequencer, journal) for journal in (A, B)]

    found = [[text(await iterator.next()) for _ in range(3)] for _ in range(2) for iterator in iterators]

    assert found == [["a1", "b1", ""], ["c1", "d1", ""], ["a2", "b2", ""], ["c2", "d2", ""]]


@pytest.mark.parametrize("ring", [1, 100])
async def test_a_transaction_is_not_interrupted_by_another_iterator(journals: AsyncJournalClient, ring: int) -> None:
    await transaction(journals, AsyncPublisher(journals), "a", "b")
    sequencer = StepSequencer(ring_size=ring)
    iterator, other = (committed(journals, sequencer, journal) for journal in (A, B))
    await iterator.next()

    with pytest.raises(RuntimeError, match="another iterator is within a transaction"):
        await other.next()
    assert [text(each) async for each in iterator] == ["b", ""]
    assert [text(each) async for each in other] == []


async def test_a_broken_frame_in_a_replay_is_reported_and_survived(journals: AsyncJournalClient) -> None:
    publisher = AsyncPublisher(journals)
    await publisher.publish_uncommitted(to(A), note("1"))
    await journals.append(A, b"garbage\n")
    await transaction(journals, publisher, "2")

    iterator = committed(journals, StepSequencer(ring_size=1))
    with pytest.raises(UnmarshalError, match=r"^reading uncommitted message: framing\.Unmarshal\(offset \d+\): "):
        await iterator.next()
    assert text(await iterator.next()) == "1"
    with pytest.raises(ReplayReaderError, match=r"^reading committed message: replay reader: framing\.Unmarshal"):
        await iterator.next()
    assert [text(each) async for each in iterator] == ["2", ""]


async def test_a_replay_of_trimmed_frames_fails_and_delivers_no_part_of_a_transaction(
    journals: AsyncJournalClient,
) -> None:
    publisher = AsyncPublisher(journals)
    first = [(await publisher.publish_uncommitted(to(A), note(each))).first_tick for each in "ab"]
    (outside,) = await publish(journals, "x")
    reader = AsyncRetryReader(journals, ReadRequest(A, block=True))
    iterator = AsyncReadCommittedIter(reader, new_note, StepSequencer(ring_size=1))
    assert text(await iterator.next()) == "x"

    channel = (await journals.find(A)).channel
    await (await journals.owner_of(channel)).trim(f"{channel}/0", before=Tick(outside))
    await transaction(journals, publisher, "c")

    for _ in range(2):
        with pytest.raises(ReplayReaderError, match=r"^reading committed message: replay reader: the frames") as caught:
            await iterator.next()
        assert caught.value.journal == A
        assert (caught.value.begin, caught.value.first_available) == (first[0], first[1] + 1)
        assert f"from position {first[0]} to {first[1] + 1} were trimmed" in str(caught.value)
    await iterator.aclose()


async def test_a_part_from_the_first_position_does_not_skip_either(journals: AsyncJournalClient) -> None:
    positions = await publish(journals, *"abc")
    reader = AsyncRetryReader(journals, ReadRequest(A))
    part = reader.part(0, positions[1])
    page = await part.next_page()
    assert page is not None
    assert list(page.ticks) == positions[:1]
    await part.aclose()
    channel = (await journals.find(A)).channel
    await (await journals.owner_of(channel)).trim(f"{channel}/0", before=Tick(positions[1]))

    with pytest.raises(ReplayReaderError, match=rf"to {positions[0] + 1} were trimmed"):
        await reader.part(0, positions[2]).next_page()


async def test_what_a_read_fails_with_says_what_was_read(journals: AsyncJournalClient) -> None:
    with pytest.raises(
        MissingJournalError, match=r"^reading uncommitted message: fetching journal spec: named journal"
    ):
        await committed(journals, StepSequencer(), "no/journal").next()
