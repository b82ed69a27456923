"""``--watch``: a command that shows a state shows it again after each interval, until Ctrl-C.

A terminal is redrawn in place; elsewhere what is seen is printed, one after the other.
"""

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final, TypeVar

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.numbers import seconds
from tidelog_cli.option_groups import OptionGroup
from tidelog_cli.output.escapes import say, shown
from tidelog_cli.output.records import Output, Record, Titled, chosen_output, drawn, is_table, note, print_records

MIN_INTERVAL_S: Final = 0.1
MAX_INTERVAL_S: Final = 86_400.0
# A server that restarts, or is out of reach.
_AWAY: Final = (ExitCode.UNAVAILABLE, ExitCode.TIMEOUT)

_Seen = TypeVar("_Seen")


@dataclass(frozen=True, slots=True)
class Watch(OptionGroup):
    """Whether a command shows a state once or until Ctrl-C."""

    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            "-w",
            help="Show it again after each interval, until Ctrl-C: on a terminal in place, otherwise one after the "
            "other, in JSON and YAML with the time. --timeout is that of each look.",
        ),
    ] = False
    watch_interval: Annotated[
        float,
        typer.Option(
            envvar="TIDELOG_WATCH_INTERVAL",
            min=MIN_INTERVAL_S,
            max=MAX_INTERVAL_S,
            callback=seconds,
            help="Seconds between two looks of --watch.",
        ),
    ] = 2.0

    def show(self, look: Callable[[], Sequence[Record]], output: Output | None, *, names_only: bool = False) -> None:
        """Print the records that ``look`` returns; with ``names_only`` only their names, one per line."""
        self.show_tables(lambda: [Titled(look())], Output.NAME if names_only else output)

    def show_tables(self, look: Callable[[], Sequence[Titled]], output: Output | None) -> None:
        """Print the tables that ``look`` returns."""
        chosen = chosen_output(output)

        def print_tables(tables: Sequence[Titled]) -> None:
            now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
            has_time = self.watch and chosen in (Output.JSON, Output.JSONL, Output.YAML)
            if self.watch and is_table(chosen):
                say(now)
            if self.watch and chosen is Output.YAML:
                # Each look is a document of its own: one sequence of all looks would have no end.
                say("---")
            for table in tables:
                records = [{"time": now, **record} for record in table.records] if has_time else table.records
                print_records(records, chosen, title=table.title)

        if not self.watch:
            print_tables(look())
        elif is_table(chosen):
            draw = partial(drawn, is_wide=chosen is Output.WIDE)
            watched(look, print_tables, self.watch_interval, draw=draw)
        else:
            watched(look, print_tables, self.watch_interval)


def watched(
    look: Callable[[], _Seen],
    tell: Callable[[_Seen], None],
    interval_s: float,
    *,
    draw: Callable[[_Seen, int], RenderableType] | None = None,
    count: int | None = None,
) -> None:
    """Show what ``look`` returns, again after each interval, until Ctrl-C or ``count`` times.

    A server that is away at the first look ends the command. Later its error is shown, and the next look follows.

    Args:
        look: Asks the server. Raises CommandError.
        tell: Prints what was seen.
        interval_s: Seconds between two looks.
        draw: Returns what a terminal of a width shows instead; None to print on a terminal, too.
        count: Number of looks; None for no limit.
    """
    console, later = Console(), _looks(look, interval_s, count)
    # Ordering: before the terminal is cleared, so that an error of the first look stays on it.
    looks = itertools.chain([next(later)], later)
    with suppress(KeyboardInterrupt):
        if draw is None or not console.is_terminal or console.is_dumb_terminal:
            for seen in looks:
                if isinstance(seen, CommandError):
                    note(seen.lines[0])
                else:
                    tell(seen)
                    sys.stdout.flush()
            return
        with Live(console=console, auto_refresh=False, screen=count is None) as live:
            last: RenderableType = ""
            for seen in looks:
                parts: list[RenderableType] = [
                    Text(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%SZ}, every {interval_s:g} s until Ctrl-C", style="dim")
                ]
                if isinstance(seen, CommandError):
                    parts.append(Text(shown(seen.lines[0]), style="red"))
                else:
                    last = draw(seen, console.width)
                live.update(Group(*parts, last), refresh=True)


def _looks(look: Callable[[], _Seen], interval_s: float, count: int | None) -> Iterator[_Seen | CommandError]:
    yield look()
    for _ in itertools.count() if count is None else range(count - 1):
        time.sleep(interval_s)
        try:
            yield look()
        except CommandError as error:
            if error.code not in _AWAY:
                raise
            yield error
