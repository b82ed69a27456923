"""The ring of held messages, which all journals and producers of a sequencer share, and their states.

The entries of a producer form a chain, in the order in which they were added. The ring evicts in the same order, so an
evicted entry is the first of its chain.
"""

from typing import Final

from tidelog.gazette.messages import NO_BEGIN, Envelope, Journal, Offset

NO_ENTRY: Final = -1


class JournalState:
    """What a sequencer knows of a journal.

    Attributes:
        name: Name of the journal.
        read_through: Position at which reading resumes, or ``NO_BEGIN`` before the first message.
        producers: Its producers by the node of their UUIDs, an integer of 48 bits.
        known: The producer, the clock without its varying bits, and the flags of recent UUIDs, by their other bits.
    """

    __slots__ = ("known", "name", "producers", "read_through")

    def __init__(self, name: Journal, read_through: Offset = NO_BEGIN) -> None:
        self.name = name
        self.read_through = read_through
        self.producers: dict[int, Producer] = {}
        self.known: dict[int, tuple[Producer, int, int]] = {}


class Producer:
    """What a sequencer knows of a producer in one journal.

    Attributes:
        journal: The journal.
        node: The producer's id as an integer of 48 bits.
        min_clock: Clock of the last acknowledged and consumed message; messages up to it are duplicates.
        max_clock: Largest queued clock; messages of the span up to it are duplicates.
        begin: Position of the first message of the open span, or ``NO_BEGIN`` if no span is open.
        first: Index of the span's first entry in the ring, or ``NO_ENTRY``.
        last: Index of the span's last entry in the ring, or ``NO_ENTRY``.
        restored_clock: Largest clock that was read of an open span before the checkpoint from which the producer was
            restored; 0 if it was not restored with one, or if the checkpoint does not have the clock.
    """

    __slots__ = ("begin", "first", "journal", "last", "max_clock", "min_clock", "node", "restored_clock")

    def __init__(
        self, journal: JournalState, node: int, acked: int, begin: Offset = NO_BEGIN, restored_clock: int = 0
    ) -> None:
        self.journal = journal
        self.node = node
        self.min_clock = self.max_clock = acked
        self.begin = begin
        self.first = self.last = NO_ENTRY
        self.restored_clock = restored_clock

    @property
    def newest_clock(self) -> int:
        """Largest clock that was read, also before the checkpoint from which the producer was restored."""
        return max(self.max_clock, self.restored_clock)

    @property
    def is_age_unknown(self) -> bool:
        """Whether the producer was restored with an open span from a checkpoint without the clocks of its messages."""
        is_unread = self.begin != NO_BEGIN and self.max_clock == self.min_clock
        return is_unread and not self.restored_clock


class Ring:
    """A ring of entries, each the entry of a producer or empty.

    Attributes:
        head: Index of the next entry to write.
        owners: Producer of each entry; ``None`` if the entry is empty.
        envelopes: Message of each entry.
        clocks: Clock of each entry.
        chain: Index of the next entry of the same producer, or ``NO_ENTRY``.
    """

    __slots__ = ("chain", "clocks", "envelopes", "head", "owners")

    def __init__(self, size: int) -> None:
        size = max(size, 1)
        self.head = 0
        self.owners: list[Producer | None] = [None] * size
        self.envelopes: list[Envelope | None] = [None] * size
        self.clocks = [0] * size
        self.chain = [NO_ENTRY] * size

    def add(self, owner: Producer, envelope: Envelope, clock: int) -> None:
        """Fill the entry at the head, which is empty, and advance the head."""
        head = self.head
        self.owners[head] = owner
        self.envelopes[head] = envelope
        self.clocks[head] = clock
        self.chain[head] = NO_ENTRY
        last, owner.last = owner.last, head
        if last == NO_ENTRY:
            owner.first = head
        else:
            self.chain[last] = head
        head += 1
        self.head = head if head < len(self.owners) else 0

    def take(self, owner: Producer) -> tuple[Envelope, int]:
        """Empty the first entry of ``owner``, which has one, and return its message and clock."""
        index = owner.first
        envelope = self.envelopes[index]
        assert envelope is not None
        self.owners[index] = self.envelopes[index] = None
        owner.first = self.chain[index]
        if owner.first == NO_ENTRY:
            owner.last = NO_ENTRY
        return envelope, self.clocks[index]

    def drop(self, owner: Producer) -> None:
        """Empty all entries of ``owner``."""
        index = owner.first
        while index != NO_ENTRY:
            self.owners[index] = self.envelopes[index] = None
            index = self.chain[index]
        owner.first = owner.last = NO_ENTRY

    def first_begin(self, owner: Producer) -> Offset:
        """Return the position of the first entry of ``owner``, or ``NO_BEGIN``."""
        if owner.first == NO_ENTRY:
            return NO_BEGIN
        envelope = self.envelopes[owner.first]
        assert envelope is not None
        return envelope.begin
