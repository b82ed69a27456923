"""What the package requires of messages, the envelope in which it delivers them, and acknowledgements to persist.

A position of a journal is an integer: a frame begins at its tick and ends at ``tick + 1``, so ranges are half-open and
comparable. ``NO_BEGIN`` states that there is no position.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, runtime_checkable
from uuid import UUID

from tidelog.journals.types import JournalSpec

Journal: TypeAlias = str
Offset: TypeAlias = int
Offsets: TypeAlias = Mapping[Journal, Offset]
NO_BEGIN: Final = -1


class Message(Protocol):
    """A message with a place for its UUID.

    A type that cannot hold a UUID returns the nil UUID and ignores sets: its messages are delivered at least once.
    """

    def get_uuid(self) -> UUID:
        """Return the UUID that was set last, or the nil UUID."""
        ...

    def set_uuid(self, uuid: UUID) -> None:
        """Set the UUID."""
        ...

    def new_acknowledgement(self, journal: Journal) -> "Message":
        """Return a new, empty message of the same type, which acknowledges messages of ``journal``."""
        ...


@runtime_checkable
class Validator(Protocol):
    """A message that can check itself; a publisher calls ``validate`` before it maps the message."""

    def validate(self) -> None:
        """Return if the message is valid.

        Raises:
            Exception: The message is invalid; the publisher raises it unchanged.
        """
        ...


Frameable: TypeAlias = object
Mappable: TypeAlias = object
NewMessageFunc: TypeAlias = Callable[[JournalSpec], Message]
MappingFunc: TypeAlias = Callable[[Mappable], tuple[Journal, str]]
"""Returns the journal of a message, and the content type of that journal."""


@dataclass(slots=True)
class Envelope:
    """A message that was read, with its place.

    Attributes:
        journal: Specification of the journal.
        begin: Position of the frame.
        end: Position after the frame.
        message: The message.
    """

    journal: JournalSpec
    begin: Offset
    end: Offset
    message: Message


@dataclass(frozen=True, slots=True)
class AckIntent:
    """A framed acknowledgement and its journal.

    Appending ``intent`` to ``journal`` acknowledges the messages that a publisher appended to it with
    ``publish_uncommitted``. Persist all intents of a transaction before the first is appended, and append all of them
    again after a crash.

    Attributes:
        journal: Name of the journal to acknowledge.
        intent: The framed message.
    """

    journal: Journal
    intent: bytes
