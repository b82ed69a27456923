"""The acknowledgement of a transaction in one journal, as bytes to persist before they are appended."""

from dataclasses import dataclass

from tidelog.gazette.messages import Journal


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
