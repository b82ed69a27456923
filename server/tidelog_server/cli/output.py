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


def chosen_output(output: Output | None) -> Output:
    """Return the way to print: the one asked for, or what suits stdout."""
    if output is not None:
        return output
    return Output.TABLE if sys.stdout.isatty() else Output.JSONL


def print_records(records: Sequence[Record], output: Output | None, *, title: str | None = None) -> None:
    """Print records that all have the same keys, which are the columns.

    ``text`` prints the values of a record on one line, with tabs between them.
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
    table = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for name, value in records[0].items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        table.add_column(name.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for record in records:
        table.add_row(*(_cell(value) for value in record.values()))
    console.print(table)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)
