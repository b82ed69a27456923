"""The state of a folded log as of a tick, for a restore up to it.

Its log is trimmed below the last snapshot and the oldest body. So the state at an earlier tick may be lost, or a body
that was deleted since.
"""

from collections.abc import Hashable, Iterable
from typing import Generic

from tidelog_server.core.ticks import MAX_TICK, NO_TICK
from tidelog_server.fold.events import Event
from tidelog_server.fold.loading import Fold, State
from tidelog_server.fold.pages import decode_page


def at_tick(fold: Fold[State], events: Iterable[Event], trim_tick: int, tick: int) -> tuple[int, int]:
    """Return where a restore up to a tick finds the state of a trimmed log. Raises DataLossError.

    Args:
        fold: How the state follows from the log.
        events: All events that are left.
        trim_tick: Tick of the first event that may be left.
        tick: The tick.

    Returns:
        The tick of the last complete snapshot up to the tick, NO_TICK without one; and the tick from which on the state
        and all bodies are there: 0 for the one that was asked for, MAX_TICK for none.
    """
    history = _History(fold, trim_tick)
    is_before = True
    for event in events:
        if is_before and event.tick > tick:
            is_before = False
            if history.is_whole:
                break
        history.add(event)
        if not is_before and history.is_whole:
            return NO_TICK, event.tick
    return history.snapshot_tick, 0 if history.is_whole else MAX_TICK


class _History(Generic[State]):
    """The state of a log that is trimmed, event by event.

    Attributes:
        snapshot_tick: Tick of the last complete snapshot; NO_TICK before the first one.
    """

    def __init__(self, fold: Fold[State], trim_tick: int) -> None:
        self._fold = fold
        self._trim_tick = trim_tick
        self._state: State | None = None
        self.snapshot_tick: int = NO_TICK
        # The snapshot that is being read: its pages so far, and the events between them.
        self._begin_tick: int = NO_TICK
        self._pages: list[bytes] = []
        self._between: list[Event] = []
        # Bodies that are trimmed, as far as something refers to them. None if the state is unknown.
        self._trimmed: set[Hashable] | None = None

    def add(self, event: Event) -> None:
        """Apply the next event. Raises DataLossError."""
        if event.kind == self._fold.snapshot_kind:
            self._add_page(event)
        elif self._state is not None:
            self._fold.replay(self._state, (event,))
        elif self._pages:
            self._between.append(event)

    @property
    def is_whole(self) -> bool:
        """True if the state is known, and the log has all bodies."""
        if self._state is None:
            return False
        # Nothing loses its body later: a copy, or another body, has a greater tick. So only these are looked at again.
        places = self._fold.places(self._state, self._trimmed)
        self._trimmed = {body for body, place in places if place < self._trim_tick}
        return not self._trimmed

    def _add_page(self, event: Event) -> None:
        page = decode_page(event.payload)
        if page.number == 0:
            self._begin_tick, self._pages, self._between = event.tick, [], []
        elif not self._pages or page.number != len(self._pages):
            return
        self._pages.append(page.content)
        if len(self._pages) < page.pages:
            return
        self.snapshot_tick = self._begin_tick
        if self._state is None:
            self._state = self._fold.decode(b"".join(self._pages))
            self._fold.replay(self._state, self._between)
        self._pages, self._between = [], []
