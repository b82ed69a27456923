"""Reports as one HTML file that needs nothing else: tables, and charts as inline SVG."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

from tidelog.spark.pipelines.reports import VerifyReport
from tidelog.spark.pipelines.statistics import StatsReport

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

Record = Mapping[str, object]


def verify_page(report: VerifyReport) -> str:
    """Return the page of an audit."""
    verdict = '<p class="ok">Nothing was found.</p>'
    if not report.ok:
        verdict = f'<p class="bad">{len(report.findings)} findings.</p>'
    record = report.as_record()
    summary = {name: record[name] for name in record if name not in {"findings", "undecided", "lanes", "ok"}}
    undecided = "".join(f"<li>{escape(text)}</li>" for text in report.undecided)
    return _page(
        "Audit of a log",
        verdict,
        _table([summary]),
        _section("Findings", _table(_records(record["findings"]))) if report.findings else "",
        _section("Not decided", f"<ul>{undecided}</ul>") if undecided else "",
        _section("Messages of each vchannel", bars([(lane.vchannel, lane.messages) for lane in report.lanes])),
        _section("Vchannels", _table(_records(record["lanes"]))),
    )


def stats_page(report: StatsReport) -> str:
    """Return the page of statistics."""
    names = [str(channel["channel"]) for channel in report.channels]
    charts = []
    for field, title in (("messages_per_second", "Messages per second"), ("bytes_per_second", "Bytes per second")):
        series = {
            name: [(str(each["start"]), float(each[field])) for each in report.windows if each["channel"] == name]
            for name in names[:_MAX_LINES]
        }
        charts.append(_section(f"{title}, windows of {report.window_s} s", lines(series)))
    for name in names:
        sizes = [(f"≤ {each['at_most_bytes']}", each["messages"]) for each in report.sizes if each["channel"] == name]
        charts.append(_section(f"Bytes of a message, {name}", bars(sizes)))
        keys = [(str(each["key"]), each["messages"]) for each in report.top_keys if each["channel"] == name]
        if keys:
            charts.append(_section(f"Keys with most messages, {name}", bars(keys)))
    return _page("Statistics of a log", _table(report.channels), *charts, _section("Types", _table(report.types)))


def bars(values: Sequence[tuple[str, int]]) -> str:
    """Return horizontal bars as SVG, each with its label and number."""
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
    """Return lines over time as SVG; the points of a line are (time as ISO 8601, value), in order."""
    times = sorted({time for points in series.values() for time, _ in points})
    greatest = max((value for points in series.values() for _, value in points), default=0.0) or 1.0
    place = {time: 60 + (_WIDTH - 80) * index / max(1, len(times) - 1) for index, time in enumerate(times)}
    parts = [f'<text x="0" y="14">{greatest:,.0f}</text><text x="0" y="{_PLOT_HEIGHT}">0</text>']
    for number, (name, points) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        spots = [(f"{place[time]:.1f}", f"{_PLOT_HEIGHT * (1 - value / greatest) + 2:.1f}") for time, value in points]
        path = " ".join(f"{x},{y}" for x, y in spots)
        # A point alone is no line.
        parts += [f'<circle cx="{x}" cy="{y}" r="2" fill="{colour}"/>' for x, y in spots]
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        top = _PLOT_HEIGHT + 40 + number * 18
        parts.append(f'<rect x="60" y="{top - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="78" y="{top}">{escape(name)}</text>')
    if times:
        parts.append(f'<text x="60" y="{_PLOT_HEIGHT + 20}">{escape(times[0])}</text>')
        parts.append(f'<text x="{_WIDTH - 20}" y="{_PLOT_HEIGHT + 20}" text-anchor="end">{escape(times[-1])}</text>')
    height = _PLOT_HEIGHT + 40 + len(series) * 18
    return f'<svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img">{"".join(parts)}</svg>'


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
    kinds = {name: "number" if _is_number(value) else "text" for name, value in records[0].items()}
    head = "".join(f'<th class="{kind}">{escape(name.replace("_", " "))}</th>' for name, kind in kinds.items())
    rows = "".join(
        "<tr>" + "".join(f'<td class="{kinds[name]}">{_cell(record[name])}</td>' for name in kinds) + "</tr>"
        for record in records[:_MAX_ROWS]
    )
    more = f"<p>{len(records) - _MAX_ROWS} more are not shown.</p>" if len(records) > _MAX_ROWS else ""
    return f"<table><tr>{head}</tr>{rows}</table>{more}"


def _records(value: object) -> Sequence[Record]:
    assert isinstance(value, list)
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        # Ticks are copied, and stay as they are.
        return str(value) if value >= 1 << 40 else f"{value:,}"
    return escape(f"{value:,.1f}" if isinstance(value, float) else str(value))
