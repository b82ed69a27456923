"""Exports the figures of the client's open objects as OpenTelemetry metrics."""

from collections.abc import Iterable

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from tidelog.transport.measures import INSTRUMENTS, Instrument, measures


def observe(meter: Meter) -> None:
    """Create the instruments; the reader of the meter's provider decides when they are read."""
    for each in INSTRUMENTS:
        create = meter.create_observable_counter if each.is_total else meter.create_observable_gauge
        create(each.name, [_Callback(each)], each.unit, each.description)


class _Callback:
    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument

    def __call__(self, _: CallbackOptions) -> Iterable[Observation]:
        return [Observation(each.value, dict(each.attributes)) for each in measures.now(self._instrument)]
