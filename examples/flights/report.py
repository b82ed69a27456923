"""The final report of the demonstration: a table, a chart and measurements."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.table import Table

from examples.flights.summary import CarrierFigures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DEPARTURE_COLOUR: Final = "#2f6f9f"
_ARRIVAL_COLOUR: Final = "#e08e45"
_TEXT_COLOUR: Final = "#333333"
_BAR_HEIGHT: Final = 0.38
_DPI: Final = 150


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measurements of the demonstration, taken in its own process on this machine.

    Attributes:
        messages: Number of messages appended and read back.
        append_s: Seconds from the first append to the last acknowledgement, every batch synced.
        restart_s: Seconds from restarting the killed server until it was ready.
        read_s: Seconds for one read of all columns in Spark.
        total_s: Seconds for the whole demonstration.
    """

    messages: int
    append_s: float
    restart_s: float
    read_s: float
    total_s: float

    def lines(self) -> list[str]:
        """Return one line per figure."""
        return [
            f"appended  {self.messages:,} messages in {self.append_s:.1f} s, "
            f"{self.messages / self.append_s:,.0f} messages/s, each one on disk",
            f"restart   {self.restart_s:.2f} s to ready after SIGKILL",
            f"Spark     {self.messages / self.read_s:,.0f} rows/s, all columns, warm",
            f"total     {self.total_s:.0f} s",
        ]


def carrier_table(carriers: Mapping[str, CarrierFigures], names: Mapping[str, str]) -> Table:
    """Return the flights and mean delays of each carrier, by descending number of flights."""
    title = "Flights out of New York in 2013; mean delays in minutes"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("carrier")
    table.add_column("name", no_wrap=True)
    for heading in ("flights", "departure", "arrival"):
        table.add_column(heading, justify="right")
    for carrier, figures in sorted(carriers.items(), key=lambda item: -item[1].flights):
        table.add_row(
            carrier,
            names.get(carrier, ""),
            f"{figures.flights:,}",
            f"{figures.mean_departure_delay:.1f}",
            f"{figures.mean_arrival_delay:.1f}",
        )
    return table


def draw_chart(carriers: Mapping[str, CarrierFigures], names: Mapping[str, str], path: Path) -> None:
    """Write a PNG with the mean delays of each carrier, the greatest mean departure delay on top."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    ordered = sorted(carriers.items(), key=lambda item: item[1].mean_departure_delay)
    figure = Figure(figsize=(9, 1.6 + 0.42 * len(ordered)), layout="constrained", facecolor="white")
    axes = figure.add_subplot()
    _draw_bars(axes, [figures for _, figures in ordered])
    axes.set_yticks(range(len(ordered)), [names.get(carrier, carrier) for carrier, _ in ordered])
    flights = sum(figures.flights for figures in carriers.values())
    axes.set_title("Mean delay by carrier\n", loc="left", fontsize=14, fontweight="bold", color=_TEXT_COLOUR)
    axes.text(
        0, 1.015, f"{flights:,} flights out of New York, 2013; negative: early",
        transform=axes.transAxes, fontsize=10, color=_TEXT_COLOUR,
    )  # fmt: skip
    _strip(axes)
    FigureCanvasAgg(figure).print_figure(str(path), dpi=_DPI)


def _draw_bars(axes: "Axes", figures: list[CarrierFigures]) -> None:
    places = range(len(figures))
    departures = axes.barh(
        [place + _BAR_HEIGHT / 2 for place in places],
        [entry.mean_departure_delay for entry in figures],
        _BAR_HEIGHT, color=_DEPARTURE_COLOUR, label="departure",
    )  # fmt: skip
    arrivals = axes.barh(
        [place - _BAR_HEIGHT / 2 for place in places],
        [entry.mean_arrival_delay for entry in figures],
        _BAR_HEIGHT, color=_ARRIVAL_COLOUR, label="arrival",
    )  # fmt: skip
    for bars in (departures, arrivals):
        axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=8, color=_TEXT_COLOUR)


def _strip(axes: "Axes") -> None:
    """Remove decoration that carries no information, and emphasise zero."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#bbbbbb")
    axes.axvline(0, color="#888888", linewidth=0.8)
    axes.xaxis.grid(visible=True, color="#e5e5e5")
    axes.set_axisbelow(True)
    axes.margins(x=0.08, y=0.02)
    axes.tick_params(length=0, colors=_TEXT_COLOUR)
    axes.set_xlabel("minutes", color=_TEXT_COLOUR)
    axes.legend(loc="lower right", frameon=False, labelcolor=_TEXT_COLOUR)
