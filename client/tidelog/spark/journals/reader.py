"""Reading of a journal in a task: frames in, committed messages out. Imported in the task."""

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import cast

import pyarrow as pa

from tidelog import At, Batch, ChannelNotFoundError, Client
from tidelog.gazette import NIL_UUID, Envelope, FramingError, JournalSpec, StepSequencer, UnmarshalError
from tidelog.spark.journals.columns import Rows, to_record_batch
from tidelog.spark.journals.frames import Frame, uuid_reader
from tidelog.spark.journals.partition import JournalPartition
from tidelog.spark.payload_options import PayloadFormat
from tidelog.spark.read.payloads import Payloads
from tidelog.spark.read.reader import TARGET_BYTES, TARGET_ROWS, behind_trims, freeze_worker


def read_partition(
    partition: JournalPartition, schema: pa.Schema, payload_format: PayloadFormat
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a journal up to the cut, with the columns of ``schema``.

    Committed messages come in the order in which they were committed; those of one transaction in the order of their
    positions, then its acknowledgement. Uncommitted ones come in the order of their positions.

    Raises:
        UnmarshalError: The UUID of a frame cannot be read, so what is committed is unknown.
        TidelogError: The rest of the journal cannot be read.
        CorruptPayloadError: A payload cannot be decoded, and ``mode`` is failfast.
    """
    yield from _record_batches(partition, schema, Payloads(payload_format, schema))
    freeze_worker()


def _record_batches(partition: JournalPartition, schema: pa.Schema, payloads: Payloads) -> Iterator[pa.RecordBatch]:
    with partition.connection.client() as client:
        frames = _Frames(client, partition)
        # Spark closes the rows early if it needs no more of them: the scan ends before its client is closed.
        with closing(frames.committed() if partition.is_committed else frames.all()) as envelopes:
            for rows in _runs(partition.journal, envelopes):
                yield to_record_batch(rows, schema, payloads)


class _Frames:
    """The frames of a journal, read with one client."""

    def __init__(self, client: Client, partition: JournalPartition) -> None:
        self._client = client
        self._partition = partition
        self._spec = JournalSpec(partition.journal, channel=partition.channel)
        self._uuid_of = uuid_reader(partition.content_type, partition.uuid_field, partition.uuid_field_number)

    def all(self) -> Generator[Envelope, None, None]:
        """Return every frame up to the cut."""
        partition = self._partition
        return behind_trims(
            partition, f"the journal '{partition.journal}'", lambda begin: self._between(begin, partition.end_tick)
        )

    def committed(self) -> Generator[Envelope, None, None]:
        """Yield the committed messages up to the cut.

        Raises:
            ReplayReaderError: The messages of a transaction that are no longer held cannot be read a second time.
        """
        sequencer = StepSequencer(ring_size=self._partition.max_held_messages)
        is_complete = False
        with closing(self.all()) as envelopes:
            while not is_complete:
                yield from sequencer.committed(envelopes)
                is_complete = not sequencer.must_replay
                if not is_complete:
                    _, begin, end = sequencer.replay_range()
                    sequencer.start_replay(self._between(begin, end))

    def _between(self, begin: int, end: int) -> Iterator[Envelope]:
        """Yield the frames at the positions ``[begin, end)``."""
        if begin >= end:
            return
        vchannel = self._partition.vchannel
        try:
            with self._client.scan(
                vchannel,
                start=At.tick(begin),
                until=At.inside(end),
                max_response_bytes=self._partition.fetch_bytes,
                created_ticks={vchannel: self._partition.created_tick},
            ) as batches:
                for batch in batches:
                    yield from self._envelopes(batch)
        except ChannelNotFoundError as error:
            journal = self._partition.journal
            raise ChannelNotFoundError(
                f"the journal '{journal}' was deleted while it was read, even if it was created again: read again",
                values=error.values,
            ) from None

    def _envelopes(self, batch: Batch) -> Iterator[Envelope]:
        spec, uuid_of = self._spec, self._uuid_of
        for tick, payload in zip(batch.ticks, batch.payloads, strict=True):
            try:
                uuid = uuid_of(payload)
            except FramingError as error:
                if self._partition.is_committed:
                    raise _unreadable(spec.name, tick, error) from error
                uuid = NIL_UUID
            yield Envelope(spec, tick, tick + 1, Frame(uuid, payload))


def _runs(journal: str, envelopes: Iterator[Envelope]) -> Iterator[Rows]:
    """Yield runs of messages that are large enough for one record batch; the last may be shorter."""
    begins: list[int] = []
    frames: list[Frame] = []
    size_bytes = 0
    for envelope in envelopes:
        frame = cast("Frame", envelope.message)
        begins.append(envelope.begin)
        frames.append(frame)
        size_bytes += len(frame.payload)
        if len(frames) >= TARGET_ROWS or size_bytes >= TARGET_BYTES:
            yield Rows(journal, begins, frames)
            begins, frames, size_bytes = [], [], 0
    if frames:
        yield Rows(journal, begins, frames)


def _unreadable(journal: str, tick: int, error: FramingError) -> UnmarshalError:
    return UnmarshalError(
        f"framing.Unmarshal(offset {tick}): {error}. The UUID of this frame of the journal '{journal}' cannot be read, "
        "so its committed messages are unknown: correct the label content-type or the option of the UUID, or read "
        "with isolation=read_uncommitted, where uuid is NULL",
        values={"offset": str(tick)},
    )
