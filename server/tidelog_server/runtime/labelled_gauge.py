"""A gauge whose labels appear and disappear with the objects that they name: channels, groups."""

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class LabelledGauge(Collector):
    """A gauge with one label. All values are replaced together, so deleted objects are not exported."""

    def __init__(self, name: str, text: str, label: str, registry: CollectorRegistry) -> None:
        self._name: Final = name
        self._text: Final = text
        self._label: Final = label
        self._values: Sequence[tuple[str, float]] = ()
        registry.register(self)

    def replace(self, values: Sequence[tuple[str, float]]) -> None:
        """Set all (label, value) pairs. The sequence is stored, not copied: do not modify it afterwards."""
        self._values = values

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauge without values, for its registration."""
        yield GaugeMetricFamily(self._name, self._text, labels=(self._label,))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauge with its values."""
        family = GaugeMetricFamily(self._name, self._text, labels=(self._label,))
        for label, value in self._values:
            family.add_metric((label,), value)
        yield family
