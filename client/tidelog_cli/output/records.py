"""Prints records: tables for people, JSON for programs, plain text for both.

Data is printed on stdout, notes about the run on stderr.
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
from rich.text import Text

from tidelog.json_text import json_text
from tidelog_cli.output.escapes import say, shown


class Output(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    TEXT = "text"


OutputOption = Annotated[
    Output | None,
    typer.Option(
        "--output", "-o", envvar="TIDELOG_OUTPUT", help="Output format. Default: table on a terminal, otherwise jsonl."
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", envvar="TIDELOG_QUIET", help="Print only errors on stderr.")
]
NoProgressOption = Annotated[
    bool, typer.Option("--no-progress", envvar="TIDELOG_NO_PROGRESS", help="Do not show progress on stderr.")
]

Record = Mapping[str, object]

# Spaces between two columns of Rich's tables.
_GAP = 2


def chosen_output(output: Output | None) -> Output:
    """Return ``output``; if None, ``table`` if stdout is a terminal and ``jsonl`` if not."""
    if output is not None:
        return output
    return Output.TABLE if sys.stdout.isatty() else Output.JSONL


def print_records(records: Sequence[Record], output: Output | None, *, title: str | None = None) -> None:
    """Print records, which must all have the same keys: the columns. JSON shows ticks and ids as strings.

    ``text`` prints one record per line, its values separated by tabs. JSON prints lists as lists; the other formats
    separate their values by spaces. A table omits columns that are empty in every record.
    """
    match chosen_output(output):
        case Output.TABLE:
            _print_table(records, title)
        case Output.JSON:
            say(json_text(list(records), indent=2))
        case Output.JSONL:
            for record in records:
                say(json_text(record))
        case Output.TEXT:
            for record in records:
                say("\t".join(_cell(value) for value in record.values()))


def print_listed(records: Sequence[Record], output: Output | None, *, names_only: bool) -> None:
    """Print the records of a listing; with ``names_only`` only their names, one per line."""
    if names_only:
        for record in records:
            say(str(record["name"]))
    else:
        print_records(records, output)


def note(text: str, *, quiet: bool = False) -> None:
    """Print a note about the run on stderr, unless ``quiet``."""
    if not quiet:
        say(text, to=sys.stderr)


def show_progress(*, no_progress: bool, quiet: bool) -> bool:
    """Return whether to show progress: only if stderr is a terminal, and no option forbids it."""
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
    # Empty columns would take width from the others.
    names = [name for name in records[0] if any(_cell(record[name]) for record in records)]
    if _fits(records, names, console.width):
        console.print(_table(records, names, title))
        return
    for number, record in enumerate(records):
        if number:
            console.print()
        console.print(_upright_table(record, names, title if number == 0 else None))


def _fits(records: Sequence[Record], names: Sequence[str], width: int) -> bool:
    """Return whether a table fits into ``width`` characters: numbers and names unbroken, texts wrapped.

    The texts of a single record must fit on one line too: otherwise the vertical table is easier to read.
    """
    needed = [
        _widest(records, name) if len(records) == 1 or not _is_text(records, name) else _longest_word(records, name)
        for name in names
    ]
    return sum(needed) + (len(needed) - 1) * _GAP <= width


def _is_text(records: Sequence[Record], name: str) -> bool:
    """Return whether a column holds text, which may wrap; numbers and names may not, because people copy them."""
    return any(" " in _shown_cell(record[name]) for record in records)


def _widest(records: Sequence[Record], name: str) -> int:
    return max(len(name), *(cell_len(_shown_cell(record[name])) for record in records))


def _longest_word(records: Sequence[Record], name: str) -> int:
    words = [*name.split("_"), *(word for record in records for word in _shown_cell(record[name]).split())]
    return max(map(cell_len, words))


def _table(records: Sequence[Record], names: Sequence[str], title: str | None) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name in names:
        value = records[0][name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # Rich narrows the columns that may wrap; if that does not suffice, it silently crops the others.
        table.add_column(
            name.replace("_", " "),
            justify="right" if is_number else "left",
            no_wrap=not _is_text(records, name),
            overflow="fold",
        )
    for record in records:
        table.add_row(*(Text(_shown_cell(record[name])) for name in names))
    return table


def _upright_table(record: Record, names: Sequence[str], title: str | None) -> Table:
    """Return a vertical table, one line per column, for records that are wider than the terminal."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name in names:
        table.add_row(name.replace("_", " "), Text(_shown_cell(record[name])))
    return table


def _shown_cell(value: object) -> str:
    """Return a value for a cell of a table. Why the callers make it a Text: Rich reads a str as markup."""
    return shown(_cell(value))


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
