"""Readers of journals: pages of frames, from any position, bounded or following."""

import logging
from dataclasses import dataclass, replace
from typing import Final

from tidelog.errors import PositionTrimmedError
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.gazette.errors import MissingJournalError, ReplayReaderError
from tidelog.gazette.messages import Journal, Offset
from tidelog.journals.types import JournalSpec
from tidelog.read.positions import EARLIEST, FOLLOW, LATEST, WATERMARK, At
from tidelog.read.scan import AsyncScan
from tidelog.wire.batch import Batch

FROM_END: Final = -1
"""Offset of a read of what is appended after it has begun."""
_META_SEPARATOR: Final = ";"
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A read of a journal.

    Attributes:
        journal: Name of the journal. A suffix that begins with ``;`` is not part of the name, and stays in the name
            that envelopes have: with it, one consumer can read a journal several times.
        offset: Position to begin at; 0 for the first frame, ``FROM_END`` for what is appended from now on.
        block: Whether the read waits for further frames at the end of the journal; otherwise it ends there.
        end_offset: Position before which the read ends; 0 for no such end.
    """

    journal: Journal
    offset: Offset = 0
    block: bool = False
    end_offset: Offset = 0

    def __post_init__(self) -> None:
        if self.offset < FROM_END or self.end_offset < 0:
            raise ValueError(f"the offsets are {self.offset} and {self.end_offset}, expected -1 or more, and 0 or more")


class AsyncRetryReader:
    """Reads a journal in pages, and survives the loss of its connection. ``RetryReader`` is its synchronous twin.

    It connects again for up to ``Retry.give_up_s`` of the client, and resumes after the last page. If frames at its
    position were trimmed, it logs a warning and continues with the first that is left.

    Attributes:
        journals: Client of the journals.
        request: The request.
        offset: Position of the next frame to read, at least; ``FROM_END`` before a read from the end has begun.
    """

    def __init__(self, journals: AsyncJournalClient, request: ReadRequest) -> None:
        """Create a reader; does no I/O. The first page opens the read."""
        self.journals = journals
        self.request = request
        self.offset = request.offset
        self._is_part = False
        self._spec: JournalSpec | None = None
        self._scan: AsyncScan | None = None

    async def spec(self) -> JournalSpec:
        """Return the specification of the journal, fetched once, with the name of the request.

        Raises:
            MissingJournalError: The journal does not exist.
        """
        if self._spec is None:
            name = self.request.journal.partition(_META_SEPARATOR)[0]
            try:
                found = await self.journals.find(name)
            except MissingJournalError as error:
                raise MissingJournalError(f"fetching journal spec: {error}", values=error.values) from error
            self._spec = replace(found, name=self.request.journal)
        return self._spec

    def part(self, begin: Offset, end: Offset) -> "AsyncRetryReader":
        """Return another reader of the same journal for the positions [begin, end); for replays.

        It never skips trimmed frames: a replay without them would deliver a part of a transaction.
        """
        reader = AsyncRetryReader(self.journals, replace(self.request, offset=begin, end_offset=end, block=False))
        reader._spec = self._spec
        reader._is_part = True
        return reader

    async def next_page(self) -> Batch | None:
        """Return the next frames, at least one; ``None`` at the end of the read. Cancelling the wait loses nothing.

        Raises:
            ReplayReaderError: The reader was made by ``part``, and frames at its position were trimmed.
            TidelogError: The journal cannot be read.
        """
        while True:
            try:
                return await self._next_page()
            except PositionTrimmedError as error:
                await self.aclose()
                if self._is_part:
                    raise self._trimmed(error.first_available_tick) from error
                self._skip(error.first_available_tick)

    async def aclose(self) -> None:
        """End the read; ``next_page`` opens it again at ``offset``."""
        scan, self._scan = self._scan, None
        if scan is not None:
            await scan.aclose()

    async def _next_page(self) -> Batch | None:
        if self._scan is None:
            self._scan = await self._open(await self.spec())
        batch = await anext(self._scan, None)
        if batch is None:
            return None
        self.offset = batch.ticks[-1] + 1
        return batch

    async def _open(self, spec: JournalSpec) -> AsyncScan:
        start = LATEST if self.offset == FROM_END else At.after(max(self.offset - 1, 0))
        if self.offset == 0 and not self._is_part:
            start = EARLIEST
        end = self.request.end_offset
        until = At.inside(end) if end else FOLLOW if self.request.block else WATERMARK
        owner = await self.journals.owner_of(spec.channel)
        return owner.scan(f"{spec.channel}/0", start=start, until=until)

    def _trimmed(self, first: Offset) -> ReplayReaderError:
        journal, begin, end = self.request.journal, self.request.offset, self.request.end_offset
        return ReplayReaderError(
            f"replay reader: the frames of journal {journal} from position {self.offset} to {first} were trimmed, and "
            f"the replay of [{begin}, {end}) needs them, as they may belong to a committed transaction: restore them "
            f"from a backup, or give the transaction up and read from position {first} with a new sequencer",
            values={"journal": journal, "begin": str(begin), "end": str(end), "first_available": str(first)},
        )

    def _skip(self, first: Offset) -> None:
        _log.warning(
            "journal %s: the frames from position %d to %d were trimmed and are not read", self.request.journal,
            self.offset, first,
        )  # fmt: skip
        self.offset = first
