"""Reports as one self-contained HTML file: tables, and charts as inline SVG."""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import metadata
from typing import Final

from tidelog.spark.options import parse_options
from tidelog.spark.pipelines.reports import VerifyReport
from tidelog.spark.pipelines.statistics import StatsReport
from tidelog.spark.pipelines.tasks import SourceOptions
from tidelog.spark.ticks import iso_time

_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 68rem; padding: 0 1rem; color: #1b1f24; }
table { border-collapse: collapse; margin: 0.5rem 0 1.5rem; }
th, td { padding: 0.2rem 0.8rem 0.2rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid #d8dee4; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.ok { color: #1a7f37; } .bad { color: #cf222e; }
svg { display: block; margin: 0.5rem 0 1.5rem; max-width: 100%; }
svg text { font: 12px system-ui, sans-serif; fill: #57606a; }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3; } th, td { border-color: #30363d; } svg text { fill: #9198a1; }
}
"""
_COLOURS: Final = ("#0969da", "#bf8700", "#1a7f37", "#8250df", "#cf222e", "#57606a")
_WIDTH: Final = 960
_BAR_HEIGHT: Final = 20
_LABEL_WIDTH: Final = 240
_PLOT_HEIGHT: Final = 180
_MAX_BARS: Final = 60
_MAX_LINES: Final = len(_COLOURS)
_MAX_ROWS: Final = 1_000
_MAX_TICKS: Final = 5
_LEFT: Final = 100
_ROUNDING: Final = 1e-9
# Column heads that mark approximate numbers.
_HEADS: Final = {"distinct_keys": "distinct keys (approximate)"}
_PARTIAL: Final = (
    "<p>Circles: first and last windows, which may have been read only in part: their rates may be too low.</p>"
)

Record = Mapping[str, object]


def verify_page(report: VerifyReport, options: SourceOptions | None = None) -> str:
    """Return the page of an audit; with ``options`` it includes what was read."""
    verdict = '<p class="ok">No findings.</p>'
    if not report.ok:
        verdict = f'<p class="bad">{len(report.findings)} findings.</p>'
    record = report.as_record()
    summary = {name: record[name] for name in record if name not in {"findings", "undecided", "lanes", "ok"}}
    undecided = "".join(f"<li>{escape(text)}</li>" for text in report.undecided)
    return _page(
        f"Audit of {_what(options)}",
        _origin(options, {"last tick read": max((each.last_tick for each in report.vchannels), default=None)}),
        verdict,
        _table([summary]),
        _section("Findings", _table(record["findings"])) if report.findings else "",
        _section("Undecided", f"<ul>{undecided}</ul>") if undecided else "",
        _section("Messages per each", bars([(each.vchannel, each.messages) for each in report.vchannels])),
        _section("Vchannels", _table(record["lanes"])),
    )


def stats_page(report: StatsReport, options: SourceOptions | None = None) -> str:
    """Return the page of statistics; with ``options`` it includes what was read."""
    names = [str(channel["channel"]) for channel in report.channels]
    charts = []
    for field, title in (("messages_per_second", "Messages per second"), ("bytes_per_second", "Bytes per second")):
        series = {
            name: [(str(each["start"]), float(each[field])) for each in report.windows if each["channel"] == name]
            for name in names[:_MAX_LINES]
        }
        charts.append(_section(f"{title}, windows of {report.window_s:,} s", lines(series) + _PARTIAL))
    for name in names:
        sizes = [(f"≤ {each['at_most_bytes']:,}", each["messages"]) for each in report.sizes if each["channel"] == name]
        charts.append(_section(f"Bytes per message, {name}", bars(sizes)))
        keys = [(str(each["key"]), each["messages"]) for each in report.top_keys if each["channel"] == name]
        if keys:
            charts.append(_section(f"Most frequent keys, {name}", bars(keys)))
    return _page(
        f"Statistics of {_what(options)}",
        _origin(options, {"as of tick": report.tick}),
        _table(report.channels),
        *charts,
        _section("Types", _table(report.types)),
    )


def bars(values: Sequence[tuple[str, int]]) -> str:
    """Return an SVG bar chart with a label and a number per bar."""
    shown = values[:_MAX_BARS]
    greatest = max((value for _, value in shown), default=0) or 1
    room = _WIDTH - _LABEL_WIDTH - 120
    parts = []
    for place, (label, value) in enumerate(shown):
        top = place * (_BAR_HEIGHT + 4)
        length = max(1, round(room * value / greatest)) if value else 0
        middle = top + _BAR_HEIGHT - 6
        parts.append(
            f'<text x="{_LABEL_WIDTH - 8}" y="{middle}" text-anchor="end">{escape(label[:36])}</text>'
            f'<rect x="{_LABEL_WIDTH}" y="{top}" width="{length}" height="{_BAR_HEIGHT}" fill="{_COLOURS[0]}"/>'
            f'<text x="{_LABEL_WIDTH + length + 6}" y="{middle}">{value:,}</text>'
        )
    height = len(shown) * (_BAR_HEIGHT + 4)
    more = f"<p>{len(values) - len(shown)} more are not shown.</p>" if len(values) > len(shown) else ""
    return f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">{"".join(parts)}</svg>{more}'


def lines(series: Mapping[str, Sequence[tuple[str, float]]]) -> str:
    """Return an SVG line chart over time; the points of a line are (ISO 8601 time, value), in order.

    Points at the first and the last time are drawn as circles.
    """
    times = sorted({time for points in series.values() for time, _ in points})
    greatest = max((value for points in series.values() for _, value in points), default=0.0) or 1.0
    width = _WIDTH - _LEFT - 20
    place = {time: _LEFT + width * index / max(1, len(times) - 1) for index, time in enumerate(times)}
    parts = []
    for value in axis_values(greatest):
        y = _height_of(value, greatest)
        parts.append(f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - 20}" y2="{y}" stroke="#8c959f" stroke-opacity="0.3"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{float(y) + 4:.1f}" text-anchor="end">{_short(value)}</text>')
    for number, (name, points) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        spots = [(time, f"{place[time]:.1f}", _height_of(value, greatest)) for time, value in points]
        path = " ".join(f"{x},{y}" for _, x, y in spots)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        # A polyline of a single point is invisible.
        for time, x, y in spots:
            is_end = time in (times[0], times[-1])
            shape = f'r="3.5" fill="none" stroke="{colour}"' if is_end else f'r="2" fill="{colour}"'
            parts.append(f'<circle cx="{x}" cy="{y}" {shape}/>')
        top = _PLOT_HEIGHT + 50 + number * 18
        parts.append(f'<rect x="{_LEFT}" y="{top - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + 18}" y="{top}">{escape(name)}</text>')
    if times:
        below = _PLOT_HEIGHT + 28
        parts.append(f'<text x="{_LEFT}" y="{below}">{escape(times[0])}</text>')
        parts.append(f'<text x="{_WIDTH - 20}" y="{below}" text-anchor="end">{escape(times[-1])}</text>')
    height = _PLOT_HEIGHT + 50 + len(series) * 18
    return f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">{"".join(parts)}</svg>'


def axis_values(greatest: float) -> list[float]:
    """Return 3 to 6 values from 0 up to ``greatest``, a positive number, in steps of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(greatest / _MAX_TICKS))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if greatest <= factor * power * _MAX_TICKS)
    return [step * number for number in range(int(greatest / step + _ROUNDING) + 1)]


def _height_of(value: float, greatest: float) -> str:
    return f"{_PLOT_HEIGHT * (1 - value / greatest) + 8:.1f}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 or not value else f"{value:.3g}"


def _what(options: SourceOptions | None) -> str:
    """Return the channels or vchannels that the options name."""
    if options is None:
        return "a log"
    read = parse_options(options)
    return read.pattern.text if read.pattern else ", ".join(read.channels or read.vchannels)


def _origin(options: SourceOptions | None, ticks: Mapping[str, int | None]) -> str:
    """Return a table with the source of the figures, their tick, and the time and version of tidelog of the page."""
    facts = {"made": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "tidelog": metadata.version("tidelog")}
    if options is not None:
        read = parse_options(options)
        facts |= {} if read.archive_only else {"server": read.connection.endpoint}
        facts |= {"archive": read.archive} if read.archive else {}
        facts |= {"as of tick": _tick(read.end_tick - 1)} if read.end_tick else {}
    facts |= {name: _tick(tick) for name, tick in ticks.items() if tick is not None}
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts.items())
    return f"<table>{rows}</table>"


def _tick(tick: int) -> str:
    """Return a tick with its time."""
    return f"{tick} ({iso_time(tick)})"


def _page(title: str, *parts: str) -> str:
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def _section(title: str, body: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{body}"


def _table(records: Sequence[Record]) -> str:
    if not records:
        return "<p>None.</p>"
    kinds = {
        name: "number" if any(type(each[name]) in (int, float) for each in records) else "text" for name in records[0]
    }
    heads = {name: _HEADS.get(name, name.replace("_", " ")) for name in kinds}
    head = "".join(f'<th class="{kind}">{escape(heads[name])}</th>' for name, kind in kinds.items())
    rows = "".join(
        "<tr>" + "".join(f'<td class="{kinds[name]}">{_cell(record[name])}</td>' for name in kinds) + "</tr>"
        for record in records[:_MAX_ROWS]
    )
    more = f"<p>{len(records) - _MAX_ROWS} more are not shown.</p>" if len(records) > _MAX_ROWS else ""
    return f"<table><tr>{head}</tr>{rows}</table>{more}"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        # Ticks are shown without separators, so that they can be copied.
        return str(value) if value >= 1 << 40 else f"{value:,}"
    return escape(f"{value:,.1f}" if isinstance(value, float) else str(value))
