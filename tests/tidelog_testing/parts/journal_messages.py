"""Messages of journals, for tests: JSON objects with a UUID, and a mapping to one journal."""

from typing import Any, Self
from uuid import UUID

from tidelog.gazette.messages import Journal, MappingFunc, Message
from tidelog.gazette.uuids import NIL_UUID
from tidelog.journals.labels import LabelSet
from tidelog.journals.types import JournalSpec

JSON_LINES = "application/x-ndjson"


class Note(dict[str, Any]):
    """A JSON object with the fields ``uuid`` and ``text``."""

    def get_uuid(self) -> UUID:
        return UUID(self["uuid"]) if "uuid" in self else NIL_UUID

    def set_uuid(self, uuid: UUID) -> None:
        self["uuid"] = str(uuid)

    def new_acknowledgement(self, journal: Journal) -> Self:
        return type(self)()


def note(text: str) -> Note:
    """Return a message with ``text``."""
    return Note(text=text)


def new_note(spec: JournalSpec) -> Note:
    """Return an empty message, to decode into."""
    return Note()


def to(journal: Journal, content_type: str = JSON_LINES) -> MappingFunc:
    """Return a mapping of every message to ``journal``."""

    def mapped(message: object) -> tuple[Journal, str]:
        return journal, content_type

    return mapped


def spec_of(journal: Journal, channel: str) -> JournalSpec:
    """Return the specification of a journal of JSON lines whose frames are in ``channel``."""
    return JournalSpec(journal, LabelSet.of({"content-type": JSON_LINES}), channel=channel)


def text_of(message: Message) -> str:
    """Return the text of a message, empty for an acknowledgement."""
    assert isinstance(message, Note)
    return str(message.get("text", ""))
