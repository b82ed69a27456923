"""Writes the table of all metrics into docs/operate/metrics.md, from what the server has: run it as a script.

A test compares the page with what this would write.
"""

from collections.abc import Iterator
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric

from tidelog_server.runtime.metrics import Metrics

PAGE = Path(__file__).resolve().parents[2] / "docs/operate/metrics.md"
HEAD = "| metric | type | labels | what it tells |\n|---|---|---|---|\n"


def table() -> str:
    """Return the table, a row for each metric, in order of name."""
    return HEAD + "".join(sorted(set(rows())))


def rows() -> Iterator[str]:
    """Yield a row for each metric of a server."""
    registry = Metrics().registry
    for collector in list(registry._collector_to_names):  # noqa: SLF001 - it has no other way to list them
        labels = collector._labelnames if isinstance(collector, MetricWrapperBase) else ()  # noqa: SLF001 - nor its labels
        describe = getattr(collector, "describe", None)
        families = list(collector.collect()) or list(describe() if describe else ())
        yield from (row_of(family, tuple(labels) or labels_of(family)) for family in families)


def row_of(family: Metric, labels: tuple[str, ...]) -> str:
    """Return one row."""
    name = f"{family.name}_total" if family.type == "counter" else family.name
    shown = ", ".join(f"`{label}`" for label in labels)
    return f"| `{name}` | {family.type} | {shown} | {family.documentation} |\n"


def labels_of(family: Metric) -> tuple[str, ...]:
    """Return the labels of a family that a collector of its own makes."""
    return tuple(getattr(family, "_labelnames", ()))


def written(page: str) -> str:
    """Return the page with its table replaced."""
    before, _, rest = page.partition(HEAD)
    after = rest[rest.index("\n\n") + 1 :] if "\n\n" in rest else ""
    return before + table() + after


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
