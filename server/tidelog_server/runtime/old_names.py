"""Metrics under the names of the version before: beside the present ones for one version, unless a setting omits them.

The values are those of the present metrics, under other names and labels.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from tidelog_server.runtime.engine_figures import EngineFigures
from tidelog_server.runtime.grpc_labels import GRPC_CODES

Labels = tuple[tuple[str, str], ...]
Relabel = Callable[[dict[str, str]], dict[str, str]]
_PYTHON_CODES: Final = {label: name for name, label in GRPC_CODES.items()}
_NEXT_VERSION: Final = "Old name of {}: the next version does not have it."


class OldName(Collector):
    """A metric under an old name.

    Attributes:
        name: The old name.
    """

    def __init__(
        self,
        name: str,
        source: MetricWrapperBase,
        registry: CollectorRegistry,
        *,
        kind: str = "",
        relabel: Relabel = lambda labels: labels,
    ) -> None:
        """Export ``source`` under ``name``, which has no ``_total``; ``kind`` is its old type if it had another one."""
        self.name: Final = name
        self._source = source
        self._kind = kind
        self._relabel = relabel
        registry.register(self)

    def describe(self) -> list[Metric]:
        """Return nothing: its name is known to be free."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metric; samples that now have the same labels are added."""
        for present in self._source.collect():
            kind = self._kind or present.type
            family = Metric(self.name, _NEXT_VERSION.format(present.name), kind)
            values: Counter[tuple[str, Labels]] = Counter()
            for sample in present.samples:
                ending = "" if self._kind else sample.name.removeprefix(present.name)
                values[ending, tuple(self._relabel(sample.labels).items())] += sample.value  # type: ignore[assignment]  # a float
            for (ending, labels), value in values.items():
                family.add_sample(self.name + ending, dict(labels), value)
            yield family


class OldEngineFigures(Collector):
    """All figures of the engine in one metric, as before."""

    def __init__(self, engine: EngineFigures, registry: CollectorRegistry) -> None:
        self._engine = engine
        registry.register(self)

    def describe(self) -> list[Metric]:
        """Return nothing: its name is known to be free."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        family = Metric("tidelog_engine", _NEXT_VERSION.format("tidelog_engine_…"), "gauge")
        for (name, column_family), value in self._engine.now().items():
            figure = f"{column_family}_{name}" if column_family else name
            family.add_sample("tidelog_engine", {"figure": figure}, value)
        yield family


def of_method(labels: dict[str, str]) -> dict[str, str]:
    """Return the old labels of a metric of calls."""
    old = {"method": labels["grpc_method"]}
    if "grpc_code" in labels:
        old["code"] = _PYTHON_CODES[labels["grpc_code"]]
    return old | {name: value for name, value in labels.items() if name == "le"}
