"""Loads a state from its log: the last complete snapshot, then the events after it."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.fold.events import Event, EventCodec, events_between
from tidelog_server.fold.pages import Frozen, decode_page
from tidelog_server.storage.log_store import LogStore

State = TypeVar("State")
Places = Iterable[tuple[Hashable, int]]
"""Bodies, and the ticks at which they lie."""


@dataclass(frozen=True, slots=True)
class Fold(Generic[State]):
    """How a state follows from a log. Pure.

    Attributes:
        what: What has the log, for errors.
        empty: Returns the state before the first event.
        freeze: Returns the snapshot of a state.
        decode: Returns the state in a snapshot. Raises DataLossError.
        replay: Applies events in order. Raises DataLossError.
        snapshot_kind: Kind of the events that are pages of snapshots.
        places: Returns the given bodies in the log to which a state refers, or all for None.
        changes_of: Returns what an event of a kind changes; see ``Outbox.changes``.
        check: Checks the invariants that a replay must establish, and names the vchannel. Raises DataLossError.
    """

    what: str
    empty: Callable[[], State]
    freeze: Callable[[State], Frozen]
    decode: Callable[[bytes], State]
    replay: Callable[[State, Iterable[tuple[int, int, bytes]]], None]
    snapshot_kind: int
    places: Callable[[State, Collection[Hashable] | None], Places]
    changes_of: Callable[[int, bytes], int] = lambda _kind, _payload: 1
    check: Callable[[State, int], None] = lambda _state, _vchannel_id: None


@dataclass(slots=True)
class Loaded(Generic[State]):
    """A state as its log has it.

    Attributes:
        state: The state after the last event.
        snapshot_tick, snapshot_bytes: Tick and size of the snapshot from which it was loaded; 0 without one.
        changes, written_bytes: What was replayed after it: changes, and bytes of events.
    """

    state: State
    snapshot_tick: int = NO_TICK
    snapshot_bytes: int = 0
    changes: int = 0
    written_bytes: int = 0


def load(store: LogStore, codec: EventCodec, vchannel_id: int, snapshot_tick: int, fold: Fold[State]) -> Loaded[State]:
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
        loaded = _load(store, codec, vchannel_id, snapshot_tick, fold)
        fold.check(loaded.state, vchannel_id)
    except DataLossError as error:
        if "vchannel_id" in error.values:
            raise
        values = {**error.values, "vchannel_id": vchannel_id}
        raise DataLossError(f"vchannel id {vchannel_id}: {error.message}", **values) from error
    return loaded


def _load(store: LogStore, codec: EventCodec, vchannel_id: int, snapshot_tick: int, fold: Fold[State]) -> Loaded[State]:
    trim_tick, last_tick = store.tail(vchannel_id).trim_tick, store.tail(vchannel_id).last_tick
    if snapshot_tick == NO_TICK and trim_tick > NO_TICK:
        raise DataLossError(
            f"the log of {fold.what} (vchannel id {vchannel_id}) begins at tick {trim_tick}, and no snapshot of it is "
            "known: restore the server from a backup",
            vchannel_id=vchannel_id, trim_tick=trim_tick,
        )  # fmt: skip
    events = events_between(store.read, codec, vchannel_id, max(snapshot_tick, trim_tick), last_tick + 1)
    if snapshot_tick == NO_TICK:
        loaded, later = Loaded(fold.empty()), events
    elif (found := _load_snapshot(events, snapshot_tick, fold)) is not None:
        loaded, later = found
    elif trim_tick == NO_TICK:
        # A restore to an earlier tick has cut the snapshot. The whole log is there.
        return _load(store, codec, vchannel_id, NO_TICK, fold)
    else:
        raise DataLossError(
            f"the snapshot of {fold.what} (vchannel id {vchannel_id}) at tick {snapshot_tick} is incomplete: restore "
            "the server from a backup",
            vchannel_id=vchannel_id, tick=snapshot_tick,
        )  # fmt: skip

    def counted(event: Event) -> Event:
        if event.kind != fold.snapshot_kind:
            loaded.changes += fold.changes_of(event.kind, event.payload)
            loaded.written_bytes += len(event.payload)
        return event

    fold.replay(loaded.state, map(counted, later))
    return loaded


def _load_snapshot(
    events: Iterator[Event], snapshot_tick: int, fold: Fold[State]
) -> tuple[Loaded[State], Iterator[Event]] | None:
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
                encoded = b"".join(content)
                return Loaded(fold.decode(encoded), snapshot_tick, len(encoded)), chain(between, events)
    return None
