"""Metrics of the storage engine: one for each figure, with the column family as a label where there is one."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

ENGINE_FIGURES: Final = {
    "background_errors": "Errors of RocksDB's background work.",
    "blob_bytes": "Size of the blob files.",
    "blob_files": "Number of blob files.",
    "blob_garbage_bytes": "Bytes in blob files that are not used any more.",
    "block_cache_bytes": "Memory of the block cache.",
    "columns_bytes": "Bytes of columns of a log in memory.",
    "immutable_memtables": "Buffers that wait to be flushed.",
    "log_bytes": "Size of the log in its engine, such as Kafka.",
    "log_live_bytes": "Bytes of it that are used, by the newest snapshot.",
    "log_snapshot_bytes": "Size of the newest snapshot in the log.",
    "log_snapshots": "Snapshots that this process wrote into the log.",
    "memtable_bytes": "Memory of buffers, also of those that wait to be flushed.",
    "running_compactions": "Compactions that run now.",
    "running_flushes": "Flushes that run now.",
    "sst_bytes": "Size of the table files in use.",
}
"""The text of each figure; it is exported as ``tidelog_engine_NAME``."""

_OF_FAMILIES: Final = frozenset(
    {"blob_bytes", "blob_files", "blob_garbage_bytes", "immutable_memtables", "memtable_bytes", "sst_bytes"}
)


class Figure(NamedTuple):
    """What a gauge measures.

    Attributes:
        name: Its name in ENGINE_FIGURES, which ends with its unit.
        family: The column family that it is of; empty if it is of the whole engine.
    """

    name: str
    family: str = ""


class EngineFigures(Collector):
    """Gauges of the engine, which are all replaced together."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._values: Mapping[Figure, float] = {}
        registry.register(self)

    def replace(self, values: Mapping[Figure, float]) -> None:
        """Set all values, by name and column family. The mapping is stored, not copied: do not modify it afterwards."""
        assert all(figure.name in ENGINE_FIGURES for figure in values)
        self._values = values

    def now(self) -> Mapping[Figure, float]:
        """Return the values, by name and column family."""
        return self._values

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield all gauges without values, for their registration."""
        for name, text in ENGINE_FIGURES.items():
            yield GaugeMetricFamily(f"tidelog_engine_{name}", text, labels=("family",) if name in _OF_FAMILIES else ())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges that have values."""
        values = sorted(self._values.items())
        for family in self.describe():
            for (name, column_family), value in values:
                if family.name == f"tidelog_engine_{name}":
                    family.add_metric((column_family,) if column_family else (), value)
            if family.samples:
                yield family
