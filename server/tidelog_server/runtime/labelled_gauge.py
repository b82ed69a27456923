"""A gauge whose labels come and go with what they name: channels, groups."""

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class LabelledGauge(Collector):
    """A gauge with one label, all of whose values are replaced together: what is gone leaves nothing behind."""

    def __init__(self, name: str, text: str, label: str, registry: CollectorRegistry) -> None:
        self._name: Final = name
        self._text: Final = text
        self._label: Final = label
        self._values: Sequence[tuple[str, float]] = ()
        registry.register(self)

    def replace(self, values: Sequence[tuple[str, float]]) -> None:
        """Set (label, value) of everything there is; the sequence is kept, and not changed by anybody."""
        self._values = values

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Tell the registry the name, without asking for values."""
        yield GaugeMetricFamily(self._name, self._text, labels=(self._label,))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauge with its values."""
        family = GaugeMetricFamily(self._name, self._text, labels=(self._label,))
        for label, value in self._values:
            family.add_metric((label,), value)
        yield family
