"""Loads a state from its log: the last complete snapshot, then the events after it."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from tidelog_server.core.entries import Entry
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import MIB
from tidelog_server.core.mailboxes import MessageState
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.log.batch import Batch
from tidelog_server.mailboxes.events import EventType, replay_all
from tidelog_server.mailboxes.snapshot import decode_page, decode_snapshot
from tidelog_server.mailboxes.state import MailboxState
from tidelog_server.storage.log_store import LogStore

State = TypeVar("State")
_READ_BYTES: Final = 4 * MIB
# Events of several messages: a tick, and the number of messages.
_OF_SEVERAL: Final = frozenset(
    (
        EventType.LEASED, EventType.EXTENDED, EventType.CONFIRMED, EventType.REJECTED, EventType.LEASE_EXPIRED,
        EventType.MESSAGE_EXPIRED, EventType.EXHAUSTED_BY_REJECTION, EventType.EXHAUSTED_BY_TIMEOUT, EventType.BURIED,
        EventType.DEAD_LETTERED, EventType.REDRIVEN, EventType.MOVED,
    )
)  # fmt: skip


class EventCodec(Protocol):
    """Converts events to batches of the log and back."""

    def encode(self, types: Sequence[int], payloads: Sequence[bytes]) -> Batch:
        """Return a batch with one message per event."""
        ...

    def decode(self, columns: bytes) -> tuple[Sequence[int], Sequence[bytes]]:
        """Return the types and the payloads of a batch. Raises DataLossError."""
        ...


class Event(NamedTuple):
    """A message of the log of a mailbox."""

    tick: int
    kind: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Fold(Generic[State]):
    """How a state follows from a log.

    Attributes:
        what: What has the log, for errors.
        empty: Returns the state before the first event.
        decode: Returns the state in a snapshot. Raises DataLossError.
        replay: Applies events in order. Raises DataLossError.
        snapshot_kind: Kind of the events that are pages of snapshots.
    """

    what: str
    empty: Callable[[], State]
    decode: Callable[[bytes], State]
    replay: Callable[[State, Iterable[tuple[int, int, bytes]]], None]
    snapshot_kind: int


@dataclass(slots=True)
class Loaded:
    """A mailbox as its log has it.

    Attributes:
        state: Its state after the last event.
        snapshot_tick, snapshot_bytes: Tick and size of the snapshot from which it was loaded; 0 without one.
        changes, written_bytes: What was replayed after it: messages that events concern, and bytes of events.
    """

    state: MailboxState = field(default_factory=MailboxState)
    snapshot_tick: int = NO_TICK
    snapshot_bytes: int = 0
    changes: int = 0
    written_bytes: int = 0

    def decode(self, encoded: bytes) -> MailboxState:
        """Return the state in a snapshot. Raises DataLossError."""
        self.snapshot_bytes = len(encoded)
        return decode_snapshot(encoded)

    def replay(self, state: MailboxState, events: Iterable[tuple[int, int, bytes]]) -> None:
        """Apply events in order. Raises DataLossError."""
        replay_all(state, map(self._count, events))

    def _count(self, event: tuple[int, int, bytes]) -> tuple[int, int, bytes]:
        _, kind, payload = event
        if kind != EventType.SNAPSHOT:
            self.changes += int.from_bytes(payload[8:12], "little") if kind in _OF_SEVERAL else 1
            self.written_bytes += len(payload)
        return event


def load(store: LogStore, codec: EventCodec, vchannel_id: int, snapshot_tick: int) -> Loaded:
    """Return a mailbox after the last event in its log. See ``load_fold``."""
    loaded = Loaded()
    fold = Fold("a mailbox", MailboxState, loaded.decode, loaded.replay, EventType.SNAPSHOT)
    loaded.state = load_fold(store, codec, vchannel_id, snapshot_tick, fold)
    _check(loaded.state, vchannel_id)
    if loaded.snapshot_bytes:
        loaded.snapshot_tick = snapshot_tick
    return loaded


def load_fold(store: LogStore, codec: EventCodec, vchannel_id: int, snapshot_tick: int, fold: Fold[State]) -> State:
    """Return the state after the last event of a log.

    Args:
        store: The log store.
        codec: Codec of the events.
        vchannel_id: Vchannel of the log.
        snapshot_tick: Tick of the first page of the last complete snapshot; NO_TICK if none was ever completed.
        fold: How the state follows from the log.

    Raises:
        DataLossError: An event is damaged or missing; names the vchannel.
        KeyError: The vchannel was dropped meanwhile.
    """
    try:
        return _load_fold(store, codec, vchannel_id, snapshot_tick, fold)
    except DataLossError as error:
        if "vchannel_id" in error.values:
            raise
        values = {**error.values, "vchannel_id": vchannel_id}
        raise DataLossError(f"vchannel id {vchannel_id}: {error.message}", **values) from error


def _load_fold(store: LogStore, codec: EventCodec, vchannel_id: int, snapshot_tick: int, fold: Fold[State]) -> State:
    trim_tick, last_tick = store.tail(vchannel_id).trim_tick, store.tail(vchannel_id).last_tick
    if snapshot_tick == NO_TICK and trim_tick > NO_TICK:
        raise DataLossError(
            f"the log of {fold.what} (vchannel id {vchannel_id}) begins at tick {trim_tick}, and no snapshot of it is "
            "known: restore the server from a backup",
            vchannel_id=vchannel_id, trim_tick=trim_tick,
        )  # fmt: skip
    events = _events(store, codec, vchannel_id, max(snapshot_tick, trim_tick), last_tick + 1)
    if snapshot_tick == NO_TICK:
        state, later = fold.empty(), events
    elif (loaded := _load_snapshot(events, snapshot_tick, fold)) is not None:
        state, later = loaded
    elif trim_tick == NO_TICK:
        # A restore to an earlier tick has cut the snapshot. The whole log is there.
        return _load_fold(store, codec, vchannel_id, NO_TICK, fold)
    else:
        raise DataLossError(
            f"the snapshot of {fold.what} (vchannel id {vchannel_id}) at tick {snapshot_tick} is incomplete: restore "
            "the server from a backup",
            vchannel_id=vchannel_id, tick=snapshot_tick,
        )  # fmt: skip
    fold.replay(state, later)
    return state


def _events(store: LogStore, codec: EventCodec, vchannel_id: int, begin_tick: int, end_tick: int) -> Iterator[Event]:
    """Yield the events with ticks in [begin_tick, end_tick)."""
    while begin_tick < end_tick:
        entries = store.read(vchannel_id, begin_tick, end_tick, _READ_BYTES)
        if not entries:
            return
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
    for tick, kind, payload in zip(range(header.base_tick, header.last_tick + 1), types, payloads, strict=True):
        yield Event(tick, kind, payload)


def read_event(store: LogStore, codec: EventCodec, vchannel_id: int, tick: int) -> bytes | None:
    """Return the payload of the event at ``tick``; None if it was trimmed. Raises DataLossError."""
    for entry in store.read(vchannel_id, tick, tick + 1, 1):
        if entry.header.base_tick <= tick <= entry.header.last_tick:
            return codec.decode(entry.columns)[1][tick - entry.header.base_tick]
    return None


def _load_snapshot(
    events: Iterator[Event], snapshot_tick: int, fold: Fold[State]
) -> tuple[State, Iterator[Event]] | None:
    """Return the state in the snapshot that begins at ``snapshot_tick``, and the events after its first page.

    None if the snapshot is incomplete.
    """
    content: list[bytes] = []
    between: list[Event] = []
    for event in events:
        if event.kind != fold.snapshot_kind:
            between.append(event)
            continue
        page = decode_page(event.payload)
        # Pages of a later snapshot, which was not completed, are skipped.
        if page.number == len(content) and (content or event.tick == snapshot_tick):
            content.append(page.content)
            if page.number + 1 == page.pages:
                return fold.decode(b"".join(content)), chain(between, events)
    return None


def _check(state: MailboxState, vchannel_id: int) -> None:
    """Check the invariants that a replay must establish. Raises DataLossError."""
    leased = state.rows.states.count(MessageState.LEASED)
    if leased != len(state.locks):
        raise DataLossError(
            f"the mailbox of vchannel id {vchannel_id} has {leased} leased messages and {len(state.locks)} locks: "
            "restore the server from a backup",
            vchannel_id=vchannel_id,
        )
