"""Figures of the client's open objects, for metrics. This module does not depend on OpenTelemetry.

``tidelog.tracing.enable_metrics`` exports them. Otherwise nothing reads them.
"""

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol
from weakref import WeakSet


class Instrument(NamedTuple):
    """A kind of figure.

    Attributes:
        name: Its name in metrics.
        unit: Its unit, as OpenTelemetry writes it.
        description: What it is.
        is_total: Whether it only grows.
    """

    name: str
    unit: str
    description: str
    is_total: bool = False


class Measure(NamedTuple):
    """A figure.

    Attributes:
        instrument: Its kind.
        value: Its value.
        attributes: What it belongs to, as names and values.
    """

    instrument: Instrument
    value: float
    attributes: tuple[tuple[str, str], ...]


class Measured(Protocol):
    """An object with figures."""

    def measures(self) -> Iterable[Measure]:
        """Return its figures now. Any thread may call it."""
        ...


TICK_WAIT: Final = Instrument(
    "tidelog.msgstream.tick_wait", "s", "Time for which a topic without a tick has held packs back."
)
LATE_MESSAGES: Final = Instrument(
    "tidelog.msgstream.late_messages", "{message}", "Messages that broke the promise of a tick.", is_total=True
)
INSTRUMENTS: Final = (TICK_WAIT, LATE_MESSAGES)


class Measures:
    """The figures of a process; any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: WeakSet[Measured] = WeakSet()
        self._totals: Counter[tuple[Instrument, tuple[tuple[str, str], ...]]] = Counter()

    def add(self, measured: Measured) -> None:
        """Include an object for as long as it exists. Idempotent."""
        with self._lock:
            self._objects.add(measured)

    def count(self, instrument: Instrument, attributes: tuple[tuple[str, str], ...], number: int) -> None:
        """Add to a total, which outlives the object that counts."""
        with self._lock:
            self._totals[instrument, attributes] += number

    def now(self, instrument: Instrument) -> list[Measure]:
        """Return the figures of this kind."""
        with self._lock:
            objects = list(self._objects)
            totals = [Measure(kind, value, attributes) for (kind, attributes), value in self._totals.items()]
        found = [*totals, *(measure for each in objects for measure in each.measures())]
        return [each for each in found if each.instrument == instrument]


measures: Final = Measures()
