"""Events of a folded log: one message of its entries each; a step collects them in an outbox."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from tidelog_server.core.entries import Entry
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import MIB
from tidelog_server.log.batch import Batch

_READ_BYTES: Final = 4 * MIB
Read = Callable[[int, int, int, int], Sequence[Entry]]
"""Returns entries of a vchannel; see ``LogStore.read``."""


class EventCodec(Protocol):
    """Converts events to batches of the log and back."""

    def encode(self, types: Sequence[int], payloads: Sequence[bytes]) -> Batch:
        """Return a batch with one message per event."""
        ...

    def decode(self, columns: bytes) -> tuple[Sequence[int], Sequence[bytes]]:
        """Return the types and the payloads of a batch. Raises DataLossError."""
        ...


class Event(NamedTuple):
    """A message of a folded log."""

    tick: int
    kind: int
    payload: bytes


class Outbox:
    """The events of one step. They have consecutive ticks.

    Attributes:
        base: Tick of the first event.
        types, payloads: The events.
        changes: What they change; a replay takes time for each.
    """

    __slots__ = ("base", "changes", "payloads", "types")

    def __init__(self, base: int) -> None:
        self.base = base
        self.types: list[int] = []
        self.payloads: list[bytes] = []
        self.changes = 0

    @property
    def next_tick(self) -> int:
        """Tick of the next event."""
        return self.base + len(self.payloads)

    def add(self, kind: int, payload: bytes) -> int:
        """Add an event; return its tick."""
        self.types.append(kind)
        self.payloads.append(payload)
        self.changes += 1
        return self.base + len(self.payloads) - 1


def events_between(read: Read, codec: EventCodec, vchannel_id: int, begin_tick: int, end_tick: int) -> Iterator[Event]:
    """Yield the events with ticks in [begin_tick, end_tick). Raises DataLossError if they are unreadable."""
    while begin_tick < end_tick and (entries := read(vchannel_id, begin_tick, end_tick, _READ_BYTES)):
        for entry in entries:
            for event in events_of(entry, codec):
                if begin_tick <= event.tick < end_tick:
                    yield event
        begin_tick = entries[-1].header.last_tick + 1


def events_of(entry: Entry, codec: EventCodec) -> Iterator[Event]:
    """Yield the events of an entry. Raises DataLossError if they are unreadable."""
    header = entry.header
    try:
        types, payloads = codec.decode(entry.columns)
        if len(payloads) != header.count or len(types) != header.count:
            raise ValueError(f"{len(payloads)} payloads and {len(types)} types for {header.count} events")
    except (DataLossError, ValueError) as error:
        raise DataLossError(
            f"the events at tick {header.base_tick} cannot be read ({error}): restore the server from a backup",
            tick=header.base_tick,
        ) from error
    return map(Event, range(header.base_tick, header.last_tick + 1), types, payloads)


def read_event(read: Read, codec: EventCodec, vchannel_id: int, tick: int) -> bytes | None:
    """Return the payload of the event at ``tick``; None if it was trimmed. Raises DataLossError."""
    for entry in read(vchannel_id, tick, tick + 1, 1):
        if entry.header.base_tick <= tick <= entry.header.last_tick:
            return codec.decode(entry.columns)[1][tick - entry.header.base_tick]
    return None
