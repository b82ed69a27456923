"""The report of a benchmark, as JSON or as a table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidelog_cli.output.escapes import shown

PERCENTILES: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


@dataclass(frozen=True, slots=True)
class Floor:
    """A measurement of the same work without Tidelog, on the same machine in the same run.

    Attributes:
        name: Description of the measurement.
        unit: Key of the report's figure that it is compared with.
        figure: Result in that unit.
    """

    name: str
    unit: str
    figure: float


@dataclass(frozen=True, slots=True)
class Report:
    """The result of one benchmark. Absent figures are None.

    Attributes:
        name: Name of the benchmark.
        settings: Settings of the run.
        latency_us: ``p50``, ``p99`` and ``p999``, in microseconds.
        server_rss_bytes: Peak resident memory of the server; None if the benchmark did not start it.
        ratio: Ratio to the floor; smaller is better for latencies, greater for rates.
        details: Further figures, by name with unit.
    """

    name: str
    settings: Mapping[str, object]
    messages_per_second: float | None = None
    megabytes_per_second: float | None = None
    latency_us: Mapping[str, float] | None = None
    server_rss_bytes: int | None = None
    floor: Floor | None = None
    ratio: float | None = None
    details: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the report as one JSON object. Keys without a figure are omitted, except in the floor."""
        figures: dict[str, object] = {
            "name": self.name,
            "settings": dict(self.settings),
            "messages_per_second": _rounded(self.messages_per_second),
            "megabytes_per_second": _rounded(self.megabytes_per_second),
            "latency_us": {key: _rounded(value) for key, value in (self.latency_us or {}).items()} or None,
            "server_rss_bytes": self.server_rss_bytes,
            "details": {key: _rounded(value) for key, value in self.details.items()} or None,
        }
        present = {key: value for key, value in figures.items() if value is not None}
        if self.floor is not None:
            present["floor"] = {"name": self.floor.name, self.floor.unit: _rounded(self.floor.figure)}
            present["ratio"] = _rounded(self.ratio)
        return json.dumps(present)


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Return the percentiles of durations, in microseconds. ``seconds`` must not be empty."""
    ordered = sorted(seconds)
    return {
        name: ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e6 for name, share in PERCENTILES.items()
    }


def print_report(report: Report, *, as_json: bool) -> None:
    """Print a report: a JSON object on one line, or a table."""
    if as_json:
        print(report.to_json())
    else:
        _print_table(report)


def _print_table(report: Report) -> None:
    console = Console()
    settings = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in report.settings.items())
    # Why Text: Rich reads a str as markup, and a setting may be the name of a channel or an address.
    console.print(Text.assemble((report.name, "bold"), f"  {shown(settings)}"), soft_wrap=True)
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    for name, text in _lines(report):
        table.add_row(name, text)
    console.print(table)


def _lines(report: Report) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    if report.messages_per_second is not None:
        lines.append(("messages/s", f"{report.messages_per_second:,.0f}"))
    if report.megabytes_per_second is not None:
        lines.append(("MB/s", f"{report.megabytes_per_second:,.1f}"))
    lines += [(f"latency {name}", f"{value:,.0f} µs") for name, value in (report.latency_us or {}).items()]
    lines += [(name.replace("_", " "), f"{value:,.3f}") for name, value in report.details.items()]
    if report.server_rss_bytes is not None:
        lines.append(("server memory", f"{report.server_rss_bytes / 1e6:,.0f} MB"))
    if report.floor is not None:
        unit = {"messages_per_second": "/s", "megabytes_per_second": " MB/s", "latency_us": " µs"}[report.floor.unit]
        lines.append((f"floor: {report.floor.name}", f"{report.floor.figure:,.0f}{unit}"))
    if report.ratio is not None:
        lines.append(("ratio to the floor", f"{report.ratio:.3f}"))
    return lines


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
