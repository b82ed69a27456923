"""Messages of journals for tests of sequencers: one UUID each, at positions of the caller's choice."""

from dataclasses import dataclass
from uuid import UUID

from tidelog.gazette import NIL_UUID, Envelope, Flags, JournalSpec, ProducerID, build_uuid, get_clock

OUTSIDE, CONTINUE, ACK = Flags.OUTSIDE_TXN, Flags.CONTINUE_TXN, Flags.ACK_TXN


@dataclass(slots=True)
class Note:
    """A message that is only a UUID."""

    uuid: UUID = NIL_UUID

    def get_uuid(self) -> UUID:
        return self.uuid

    def set_uuid(self, uuid: UUID) -> None:
        self.uuid = uuid

    def new_acknowledgement(self, journal: str) -> "Note":
        assert journal
        return Note()


def producer_id(number: int) -> ProducerID:
    """Return the producer id with a number."""
    return ProducerID(b"\x01" + number.to_bytes(5, "big"))


def envelope(begin: int, producer: int, clock: int, flags: int, journal: JournalSpec | str = "my/journal") -> Envelope:
    """Return a message at a position."""
    spec = JournalSpec(journal) if isinstance(journal, str) else journal
    return Envelope(spec, begin, begin + 1, Note(build_uuid(producer_id(producer), clock, flags)))


def clocks(envelopes: list[Envelope]) -> list[int]:
    """Return the clock of each message."""
    return [get_clock(each.message.get_uuid()) for each in envelopes]
