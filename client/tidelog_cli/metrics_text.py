"""Reads and writes the text of metrics with Prometheus' own library: names of users are in its labels."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True)
class Figure:
    """A gauge with one sample.

    Attributes:
        name: Name of the metric.
        text: What it measures.
        labels: Labels of the sample.
        value: Value of the sample.
    """

    name: str
    text: str
    labels: Mapping[str, str]
    value: float


def samples(text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield the name, the labels and the value of each sample.

    Raises:
        ValueError: The text is not that of a server's metrics.
    """
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                yield sample.name, sample.labels, sample.value
    except (ValueError, IndexError) as error:
        # The parser raises IndexError for some texts that end too early.
        raise ValueError(f"the response is not in the format of Prometheus ({error})") from error


def without_labels(text: str) -> dict[str, float]:
    """Return the values of the samples that have no labels, by name. Raises ValueError as ``samples``."""
    return {name: value for name, labels, value in samples(text) if not labels}


def text_of(figures: Iterable[Figure]) -> str:
    """Return gauges, whose names differ, as text."""
    registry = CollectorRegistry()
    for figure in figures:
        gauge = Gauge(figure.name, figure.text, tuple(figure.labels), registry=registry)
        (gauge.labels(**figure.labels) if figure.labels else gauge).set(figure.value)
    return generate_latest(registry).decode()
