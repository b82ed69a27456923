"""Iterators over the messages of a journal: all of them as they were written, or the committed ones, each once."""

from collections.abc import AsyncIterator, Iterable, Sequence
from collections.abc import Iterator as PythonIterator
from typing import Final, Protocol

from tidelog.errors import TidelogError
from tidelog.gazette.errors import ReplayReaderError, UnmarshalError
from tidelog.gazette.framings.framing import FrameDecoder, frame_decoder, framing_by_content_type
from tidelog.gazette.messages import Envelope, NewMessageFunc
from tidelog.gazette.readers import AsyncRetryReader
from tidelog.gazette.sequencer import Sequencer, StepSequencer
from tidelog.journals.types import JournalSpec

# Messages that are decoded at a time. Why not the whole page: Python's garbage collector visits all objects that live
# when 700 more have been created, and reading the messages of a page of 1 MiB takes 3 times as long.
_CHUNK_MESSAGES: Final = 64
_UNCOMMITTED: Final = "reading uncommitted message"
_COMMITTED: Final = "reading committed message"


class AsyncIteratorOfMessages(Protocol):
    """What both iterators of a kind have. ``Iterator`` is its synchronous twin."""

    async def next(self) -> Envelope:
        """Return the next message; raise EOFError at the end."""
        ...


class UncommittedCore:
    """An iteration over the messages of pages, without the wait for pages.

    Attributes:
        reader: Reader of the pages.
        readers: All readers, to close.
        new_message: Returns an empty message.
    """

    def __init__(self, reader: AsyncRetryReader, new_message: NewMessageFunc) -> None:
        self.reader = reader
        self.readers = [reader]
        self.new_message = new_message
        self._spec: JournalSpec | None = None
        self._decode: FrameDecoder | None = None
        self._frames: Sequence[bytes] = ()
        self._ticks: Sequence[int] = ()
        # The next frame of the page to decode.
        self._at = 0
        self._ready: Iterable[Envelope] = iter(())
        self._failure: Exception | None = None

    def take(self) -> Envelope | None:
        """Return the next message; ``None`` if ``fetch`` must be called first. Raises as ``chunk``."""
        for envelope in self._ready:
            return envelope
        chunk = self.chunk()
        if chunk is None:
            return None
        self._ready = chunk
        return next(chunk, None) or self.take()

    def chunk(self) -> PythonIterator[Envelope] | None:
        """Return further messages, in order; ``None`` if ``fetch`` must be called first.

        Raises:
            UnmarshalError: A frame could not be decoded, or its message not be created. The next call continues behind
                it.
        """
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._at == len(self._frames):
            return None
        return iter(self._unpack())

    async def fetch(self) -> bool:
        """Read the next page; return whether there is one.

        Raises:
            MissingJournalError, UnknownContentTypeError: The journal does not exist, or its content type is not
                registered.
            TidelogError: The journal cannot be read.
        """
        if self._decode is None:
            self._spec = await self.reader.spec()
            self._decode = _decoder_of(self._spec)
        page = await self.reader.next_page()
        if page is None:
            return False
        self._frames, self._ticks, self._at = page.payloads, page.ticks, 0
        return True

    def _unpack(self) -> list[Envelope]:
        """Decode the next frames of the page, up to the first one that cannot be decoded."""
        spec, decode, new_message = self._spec, self._decode, self.new_message
        assert spec is not None
        assert decode is not None
        ready: list[Envelope] = []
        begin, end = self._at, min(self._at + _CHUNK_MESSAGES, len(self._frames))
        add = ready.append
        tick = 0
        try:
            for tick, frame in zip(self._ticks[begin:end], self._frames[begin:end], strict=True):
                message = new_message(spec)
                decode(frame, message)
                add(Envelope(spec, tick, tick + 1, message))
        except Exception as error:  # noqa: BLE001 - of the caller's message or function; raised after what was decoded
            self._failure = _unmarshal_error(tick, error)
            end = begin + len(ready) + 1
        self._at = end
        return ready


class CommittedCore:
    """An iteration over committed messages, without the wait for pages: a sequencer between pages and the caller.

    Attributes:
        uncommitted: The messages as they were written.
        sequencer: Sequences them.
    """

    def __init__(self, uncommitted: UncommittedCore, sequencer: StepSequencer | Sequencer) -> None:
        self.uncommitted = uncommitted
        self.sequencer = sequencer if isinstance(sequencer, StepSequencer) else sequencer._core  # noqa: SLF001 - what the older interface wraps
        self._committed: PythonIterator[Envelope] = iter(())
        # Messages that are decoded and not queued, if a replay interrupted them.
        self._chunk: PythonIterator[Envelope] = iter(())
        self._delivered: Envelope | None = None
        # The replay that the transaction being delivered requires.
        self._replay: UncommittedCore | None = None

    def take(self) -> Envelope | None:
        """Return the next committed message; ``None`` if ``fetch`` must be called first.

        Raises:
            TidelogError: A message could not be decoded, or a replay went wrong; the text tells which. The next call
                continues.
        """
        sequencer = self.sequencer
        if sequencer.dequeued is not self._delivered and sequencer.dequeued is not None:
            # Another iterator delivered a message with this sequencer since then.
            if sequencer.is_draining:
                raise RuntimeError(
                    "another iterator is within a transaction: take its messages up to the acknowledgement first"
                )
            sequencer.consume()
        while True:
            for envelope in self._committed:
                self._delivered = envelope
                return envelope
            if self._replay is not None:
                return self._take_replayed(self._replay)
            if sequencer.must_replay:
                return None
            if not self._next_chunk():
                return None
            self._committed = sequencer.committed(self._chunk)

    async def fetch(self) -> bool:
        """Read the next page, of the journal or of a replay; return False at the end of the read.

        Raises:
            TidelogError: As ``UncommittedCore.fetch``; the text tells what was read.
        """
        if self._replay is None and self.sequencer.must_replay:
            _, begin, end = self.sequencer.replay_range()
            # Exactly this range: it ends before the first message of the run that is still in the ring.
            self._replay = UncommittedCore(self.uncommitted.reader.part(begin, end), self.uncommitted.new_message)
        if self._replay is None:
            try:
                return await self.uncommitted.fetch()
            except TidelogError as error:
                raise prefixed(_UNCOMMITTED, error) from error
        try:
            if await self._replay.fetch():
                return True
        except ReplayReaderError as error:
            raise prefixed(_COMMITTED, error) from error
        except TidelogError as error:
            raise prefixed(_COMMITTED, ReplayReaderError(f"replay reader: {error}")) from error
        self._replay = None
        self.sequencer.end_replay()
        # First the rest of the transaction, from the ring, then what was decoded behind it.
        self._committed = self.sequencer.committed(self._chunk)
        return True

    @property
    def reader(self) -> AsyncRetryReader:
        """Reader of the pages."""
        return self.uncommitted.reader

    @property
    def readers(self) -> list[AsyncRetryReader]:
        """All readers, to close."""
        return [self.reader] if self._replay is None else [self._replay.reader, self.reader]

    def _next_chunk(self) -> bool:
        try:
            chunk = self.uncommitted.chunk()
        except TidelogError as error:
            raise prefixed(_UNCOMMITTED, error) from error
        self._chunk = chunk or iter(())
        return chunk is not None

    def _take_replayed(self, replay: UncommittedCore) -> Envelope | None:
        sequencer = self.sequencer
        while True:
            try:
                envelope = replay.take()
            except TidelogError as error:
                raise prefixed(_COMMITTED, ReplayReaderError(f"replay reader: {error}")) from error
            if envelope is None:
                return None
            if sequencer.step_replay(envelope):
                self._delivered = sequencer.dequeued
                return sequencer.dequeued


class AsyncMessages(AsyncIterator[Envelope]):
    """What both iterators of a kind have: the wait for pages."""

    def __init__(self, core: UncommittedCore | CommittedCore) -> None:
        self._core = core
        self._take = core.take

    async def next(self) -> Envelope:
        """Return the next message.

        Raises:
            EOFError: The read is at its end. Of committed messages, those of open transactions were not delivered.
            MissingJournalError, UnknownContentTypeError: The journal does not exist, or its content type has no
                framing.
            UnmarshalError: A frame could not be decoded; the next call continues behind it.
            TidelogError: The journal cannot be read. Of committed messages, the text of each of these begins with what
                was read; ReplayReaderError if a replay failed.
        """
        while (envelope := self._take()) is None:
            if not await self._core.fetch():
                raise end_of(self._core.reader)
        return envelope

    async def __anext__(self) -> Envelope:
        """Return the next message. Raises as ``next``, and StopAsyncIteration at the end."""
        # Why not `next`: a coroutine in a coroutine takes a tenth of reading a message.
        while (envelope := self._take()) is None:
            if not await self._core.fetch():
                raise StopAsyncIteration
        return envelope

    async def aclose(self) -> None:
        """End the read."""
        for reader in self._core.readers:
            await reader.aclose()


class AsyncReadUncommittedIter(AsyncMessages):
    """The messages of a journal as they were written: ``async for envelope in iterator``.

    They include duplicates, and messages of transactions that are open or rolled back. The label ``content-type`` of
    the journal selects the framing. After an UnmarshalError the iteration may continue behind the frame. Cancelling a
    wait loses nothing. ``ReadUncommittedIter`` is its synchronous twin.
    """

    def __init__(self, reader: AsyncRetryReader, new_message: NewMessageFunc) -> None:
        """Create an iterator; does no I/O.

        Args:
            reader: What to read.
            new_message: Returns an empty message for the specification of the journal.
        """
        super().__init__(UncommittedCore(reader, new_message))


class AsyncReadCommittedIter(AsyncMessages):
    """The committed messages of a journal, each once: ``async for envelope in iterator``.

    A message counts as consumed when the next one is asked for: a checkpoint of the sequencer before that delivers it
    again, unless the sequencer's ``consume`` was called. Acknowledgements are delivered as well, as empty messages
    with the flag ``ACK_TXN``. Replays are read as needed. Errors and cancelling are as in ``AsyncReadUncommittedIter``.
    ``ReadCommittedIter`` is its synchronous twin.
    """

    def __init__(
        self, reader: AsyncRetryReader, new_message: NewMessageFunc, sequencer: StepSequencer | Sequencer
    ) -> None:
        """Create an iterator; does no I/O. Several iterators may share one sequencer, if one of them runs at a time.

        Args:
            reader: What to read.
            new_message: Returns an empty message for the specification of the journal.
            sequencer: Decides what is committed.
        """
        super().__init__(CommittedCore(UncommittedCore(reader, new_message), sequencer))


def end_of(reader: AsyncRetryReader) -> EOFError:
    """Return the error at the end of a read."""
    return EOFError(f"the read of journal {reader.request.journal} is at its end: no message follows")


def prefixed(what: str, error: TidelogError) -> TidelogError:
    """Return a copy of ``error`` whose text begins with what was done."""
    return type(error)(f"{what}: {error}", effect=error.effect, values=error.values)


def _decoder_of(spec: JournalSpec) -> FrameDecoder:
    try:
        return frame_decoder(framing_by_content_type(spec.content_type))
    except TidelogError as error:
        raise prefixed("determining framing", error) from error


def _unmarshal_error(offset: int, cause: Exception) -> UnmarshalError:
    error = UnmarshalError(f"framing.Unmarshal(offset {offset}): {cause}", values={"offset": str(offset)})
    error.__cause__ = cause
    return error
