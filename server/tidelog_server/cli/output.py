"""How records leave the program: a table for people, JSON for programs, plain text for both.

Data goes to stdout, everything about the run to stderr.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


class Output(StrEnum):
    """Ways to print records."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    TEXT = "text"


OutputOption = Annotated[
    Output | None,
    typer.Option("--output", "-o", envvar="TIDELOG_OUTPUT", help="Default: table on a terminal, JSON lines elsewhere."),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", envvar="TIDELOG_QUIET", help="Say nothing on stderr but errors.")
]
NoProgressOption = Annotated[
    bool, typer.Option("--no-progress", envvar="TIDELOG_NO_PROGRESS", help="Show no progress on stderr.")
]

Record = Mapping[str, object]

# No table is wider: rich measures one no wider than it may become.
_WIDEST = 100_000


def chosen_output(output: Output | None) -> Output:
    """Return the way to print: the one asked for, or what suits stdout."""
    if output is not None:
        return output
    return Output.TABLE if sys.stdout.isatty() else Output.JSONL


def print_records(records: Sequence[Record], output: Output | None, *, title: str | None = None) -> None:
    """Print records that all have the same keys, which are the columns.

    ``text`` prints the values of a record on one line, with tabs between them. Lists stay lists in JSON; elsewhere
    their values stand beside each other. A table leaves out columns in which no record has anything.
    """
    match chosen_output(output):
        case Output.TABLE:
            _print_table(records, title)
        case Output.JSON:
            print(json.dumps(list(records), indent=2, ensure_ascii=False))
        case Output.JSONL:
            for record in records:
                print(json.dumps(record, ensure_ascii=False))
        case Output.TEXT:
            for record in records:
                print("\t".join(_cell(value) for value in record.values()))


def note(text: str, *, quiet: bool = False) -> None:
    """Say something about the run on stderr."""
    if not quiet:
        print(text, file=sys.stderr)


def show_progress(*, no_progress: bool, quiet: bool) -> bool:
    """Tell whether progress should be drawn: on a terminal, unless the caller refused."""
    return sys.stderr.isatty() and not no_progress and not quiet


def _print_table(records: Sequence[Record], title: str | None) -> None:
    console = Console()
    if not records:
        console.print("nothing to show", style="dim")
        return
    # A column in which nobody has anything takes the room of others.
    names = [name for name in records[0] if any(_cell(record[name]) for record in records)]
    table = _table(records, names, title)
    wide = console.options.update(max_width=_WIDEST)
    if len(records) == 1 and console.width < console.measure(table, options=wide).maximum:
        table = _upright_table(records[0], names, title)
    console.print(table)


def _table(records: Sequence[Record], names: Sequence[str], title: str | None) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in names:
        value = records[0][name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # Numbers stay whole where a terminal is narrow, for people copy them; texts go on in the next line.
        table.add_column(
            name.replace("_", " "), justify="right" if is_number else "left", no_wrap=is_number, overflow="fold"
        )
    for record in records:
        table.add_row(*(_cell(record[name]) for name in names))
    return table


def _upright_table(record: Record, names: Sequence[str], title: str | None) -> Table:
    """Return a table with a line for each column, for a record that is wider than the terminal."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name in names:
        table.add_row(name.replace("_", " "), _cell(record[name]))
    return table


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)
