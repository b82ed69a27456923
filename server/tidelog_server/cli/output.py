"""How records leave the program: a table for people, JSON for programs, plain text for both.

Data goes to stdout, everything about the run to stderr.
"""

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from tidelog.json_text import json_text


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

# Between two columns of rich's tables.
_GAP = 2


def chosen_output(output: Output | None) -> Output:
    """Return the way to print: the one asked for, or what suits stdout."""
    if output is not None:
        return output
    return Output.TABLE if sys.stdout.isatty() else Output.JSONL


def print_records(records: Sequence[Record], output: Output | None, *, title: str | None = None) -> None:
    """Print records that all have the same keys, which are the columns. In JSON ticks and ids are texts.

    ``text`` prints the values of a record on one line, with tabs between them. Lists stay lists in JSON; elsewhere
    their values stand beside each other. A table leaves out columns in which no record has anything.
    """
    match chosen_output(output):
        case Output.TABLE:
            _print_table(records, title)
        case Output.JSON:
            print(json_text(list(records), indent=2))
        case Output.JSONL:
            for record in records:
                print(json_text(record))
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


def show_progress_beside_data(*, no_progress: bool, quiet: bool) -> bool:
    """Return whether to draw progress while data is printed.

    Progress is drawn only while stdout is a file. A line drawn between rows would tear them, and the reader of a pipe,
    such as ``head``, may write its rows to the same terminal.
    """
    return show_progress(no_progress=no_progress, quiet=quiet) and stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)


def _print_table(records: Sequence[Record], title: str | None) -> None:
    console = Console()
    if not records:
        console.print("nothing to show", style="dim")
        return
    # A column in which nobody has anything takes the room of others.
    names = [name for name in records[0] if any(_cell(record[name]) for record in records)]
    if _fits(records, names, console.width):
        console.print(_table(records, names, title))
        return
    for number, record in enumerate(records):
        if number:
            console.print()
        console.print(_upright_table(record, names, title if number == 0 else None))


def _fits(records: Sequence[Record], names: Sequence[str], width: int) -> bool:
    """Tell whether a table of ``width`` columns has everything: numbers and names whole, texts in several lines.

    Of a lone record texts too must fit on one line, for standing upright it is easier to read.
    """
    needed = [
        _widest(records, name) if len(records) == 1 or not _is_text(records, name) else _longest_word(records, name)
        for name in names
    ]
    return sum(needed) + (len(needed) - 1) * _GAP <= width


def _is_text(records: Sequence[Record], name: str) -> bool:
    """Tell whether a column has words, which may go on in the next line; numbers and names people copy."""
    return any(" " in _cell(record[name]) for record in records)


def _widest(records: Sequence[Record], name: str) -> int:
    return max(len(name), *(cell_len(line) for record in records for line in _cell(record[name]).splitlines()), 0)


def _longest_word(records: Sequence[Record], name: str) -> int:
    words = [*name.split("_"), *(word for record in records for word in _cell(record[name]).split())]
    return max(map(cell_len, words))


def _table(records: Sequence[Record], names: Sequence[str], title: str | None) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in names:
        value = records[0][name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # Rich makes columns narrower that may wrap, and without a word crops the others where that is not enough.
        table.add_column(
            name.replace("_", " "),
            justify="right" if is_number else "left",
            no_wrap=not _is_text(records, name),
            overflow="fold",
        )
    for record in records:
        table.add_row(*(_cell(record[name]) for name in names))
    return table


def _upright_table(record: Record, names: Sequence[str], title: str | None) -> Table:
    """Return a table with a line for each column, for records that are wider than the terminal."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
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
