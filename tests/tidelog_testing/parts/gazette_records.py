"""Messages and journals for tests of consumers: numbers as JSON lines."""

from collections.abc import Callable, Iterable
from contextlib import aclosing
from typing import Any, Self
from uuid import UUID

from tidelog import AsyncClient
from tidelog.gazette.append_service import AsyncJournalClient
from tidelog.gazette.iterators import AsyncReadCommittedIter
from tidelog.gazette.readers import AsyncRetryReader, ReadRequest
from tidelog.gazette.sequencer.core import StepSequencer
from tidelog.gazette.uuids import NIL_UUID, Flags, get_flags
from tidelog.journals.labels import CONTENT_TYPE_LABEL, LabelSet
from tidelog.journals.types import JournalSpec, JournalUpsert

CONTENT_TYPE = "application/x-ndjson"


class Record:
    """A number, with a UUID."""

    __slots__ = ("number", "uuid")

    def __init__(self, number: int = -1) -> None:
        self.number = number
        self.uuid: UUID = NIL_UUID

    def get_uuid(self) -> UUID:
        return self.uuid

    def set_uuid(self, uuid: UUID) -> None:
        self.uuid = uuid

    def new_acknowledgement(self, _journal: str) -> Self:
        return type(self)()

    def to_json(self) -> object:
        return {"uuid": str(self.uuid), "number": self.number}

    def from_json(self, value: Any) -> None:
        self.uuid, self.number = UUID(value["uuid"]), value["number"]


def new_record(_spec: JournalSpec) -> Record:
    return Record()


def to_journal(journal: str) -> Callable[[object], tuple[str, str]]:
    """Return a mapping of every message to one journal."""
    return lambda _: (journal, CONTENT_TYPE)


def by_number(journals: list[str]) -> Callable[[Any], tuple[str, str]]:
    """Return a mapping that spreads numbers over journals."""
    return lambda record: (journals[record.number % len(journals)], CONTENT_TYPE)


async def create_journals(client: AsyncClient, names: Iterable[str]) -> None:
    """Create journals of JSON lines."""
    labels = LabelSet.of({CONTENT_TYPE_LABEL: CONTENT_TYPE})
    await client.journals.apply([JournalUpsert(name, labels) for name in names])


async def committed(client: AsyncClient, journals: Iterable[str]) -> tuple[list[int], bool]:
    """Return the committed numbers of journals, and whether a transaction is open in one."""
    found, is_open = [], False
    async with AsyncJournalClient(client) as reading:
        for journal in journals:
            sequencer = StepSequencer()
            reader = AsyncRetryReader(reading, ReadRequest(journal))
            async with aclosing(AsyncReadCommittedIter(reader, new_record, sequencer)) as messages:
                async for envelope in messages:
                    if get_flags(envelope.message.get_uuid()) != Flags.ACK_TXN:
                        assert isinstance(envelope.message, Record)
                        found.append(envelope.message.number)
            sequencer.consume()
            is_open = is_open or sequencer.has_pending()
    return sorted(found), is_open
