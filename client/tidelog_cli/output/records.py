"""Prints records: tables for people, JSON and YAML for programs, plain text for both.

Data is printed on stdout, notes about the run on stderr.
"""

import json
import math
import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidelog.json_text import json_text
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.output.escapes import say, shown


class Output(StrEnum):
    """Output formats."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    TEXT = "text"
    YAML = "yaml"
    WIDE = "wide"
    NAME = "name"


class MessageOutput(StrEnum):
    """Output formats of messages."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    TEXT = "text"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"
    YAML = "yaml"
    WIDE = "wide"


MessageOutputOption = Annotated[
    MessageOutput | None,
    typer.Option(
        "--output",
        "-o",
        envvar="TIDELOG_OUTPUT",
        help="Output format. Default: table on a terminal, otherwise jsonl. arrow is a stream of Arrow's IPC format; "
        "wide is a table of all fields, whole.",
    ),
]
OutputOption = Annotated[
    Output | None,
    typer.Option(
        "--output",
        "-o",
        envvar="TIDELOG_OUTPUT",
        help="Output format. Default: table on a terminal, otherwise jsonl. wide is a table with the columns, and the "
        "ends of texts, that table leaves out; name prints names only, one per line.",
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", envvar="TIDELOG_QUIET", help="Print only errors on stderr.")
]
NoProgressOption = Annotated[
    bool, typer.Option("--no-progress", envvar="TIDELOG_NO_PROGRESS", help="Do not show progress on stderr.")
]

Record = Mapping[str, object]


class Titled(NamedTuple):
    """Records that are one table, and its title."""

    records: Sequence[Record]
    title: str | None = None


# Spaces between two columns of Rich's tables.
_GAP: Final = 2
_ANY_WIDTH: Final = 1_000_000


def chosen_output(output: Output | None) -> Output:
    """Return ``output``; if None, ``table`` if stdout is a terminal and ``jsonl`` if not."""
    if output is not None:
        return output
    return Output.TABLE if sys.stdout.isatty() else Output.JSONL


def is_table(output: Output | None) -> bool:
    """Return whether ``chosen_output`` is a table for people, of either width."""
    return chosen_output(output) in (Output.TABLE, Output.WIDE)


def message_output(output: MessageOutput | Output | None) -> MessageOutput:
    """Return the format of messages; if ``output`` is None, that of ``chosen_output``.

    Raises:
        CommandError: It is ``name``, and messages have no names.
    """
    if output is Output.NAME:
        raise CommandError("-o name is for what has a name: messages have ticks, see -o jsonl", ExitCode.USAGE)
    return MessageOutput(chosen_output(None) if output is None else output)


def print_records(records: Sequence[Record], output: Output | None, *, title: str | None = None) -> None:
    """Print records, which must all have the same keys: the columns. JSON shows ticks and ids as strings.

    ``text`` prints one record per line, its values separated by tabs. JSON prints lists as lists; the other formats
    separate their values by spaces. A table omits columns that are empty in every record; a wide one has them. YAML has
    the values of JSON. ``name`` prints each name once: the field of that name, else the first one that has a value.
    """
    match format_ := chosen_output(output):
        case Output.TABLE | Output.WIDE:
            # A line of a wide table is whole: a terminal wraps it, and a pipe has no width.
            is_wide = format_ is Output.WIDE
            console = Console(width=_ANY_WIDTH if is_wide else None)
            console.print(drawn([Titled(records, title)], console.width, is_wide=is_wide))
        case Output.YAML:
            say(yaml_text(list(records)), end="")
        case Output.NAME:
            for name in dict.fromkeys(map(_name, records)):
                say(name)
        case Output.JSON:
            say(json_text(list(records), indent=2))
        case Output.JSONL:
            for record in records:
                say(json_text(record))
        case Output.TEXT:
            for record in records:
                say("\t".join(_cell(value) for value in record.values()))


def yaml_text(values: Sequence[object]) -> str:
    """Return a block sequence of YAML with the values that JSON has. The texts of two join to one sequence."""
    # Imported here: most commands need no YAML.
    import yaml

    return str(yaml.safe_dump(json.loads(json_text(values)), allow_unicode=True, sort_keys=False, width=math.inf))


def cut(text: str, columns: int) -> str:
    """Return a text that takes at most ``columns`` of a terminal; one that is longer ends with an ellipsis."""
    # Most texts are long and ASCII: measuring one of a MiB would take longer than printing it.
    if len(text) <= columns and cell_len(text) <= columns:
        return text
    return f"{set_cell_size(text[:columns], columns - 1).rstrip()}…"


def note(text: str, *, quiet: bool = False) -> None:
    """Print a note about the run on stderr, unless ``quiet``."""
    if not quiet:
        say(text, to=sys.stderr)


def iso_time(time: datetime) -> str:
    """Return a time in UTC, in seconds, which suffice for people: the tick in the same record is exact."""
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"


def iso_of_ms(time_ms: int) -> str:
    """Return a time in milliseconds since the epoch, in seconds with the offset of UTC."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC).isoformat(timespec="seconds")


def show_progress(*, no_progress: bool, quiet: bool) -> bool:
    """Return whether to show progress: only if stderr is a terminal, and no option forbids it."""
    return sys.stderr.isatty() and not no_progress and not quiet


def show_progress_beside_data(*, no_progress: bool, quiet: bool) -> bool:
    """Return whether to draw progress while data is printed.

    Progress is drawn only while stdout is a file. A line drawn between rows would tear them, and the reader of a pipe,
    such as ``head``, may write its rows to the same terminal.
    """
    return show_progress(no_progress=no_progress, quiet=quiet) and stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)


def drawn(tables: Sequence[Titled], width: int, *, is_wide: bool = False) -> RenderableType:
    """Return tables as a terminal of ``width`` characters shows them; a wide one has the empty columns too. Pure."""
    return Group(*(part for table in tables for part in _parts(table, width, is_wide=is_wide)))


def _parts(table: Titled, width: int, *, is_wide: bool) -> Sequence[RenderableType]:
    records, title = table
    if not records:
        return [Text("nothing to show", style="dim")]
    # Empty columns would take width from the others.
    names = [name for name in records[0] if is_wide or any(_cell(record[name]) for record in records)]
    if is_wide or _fits(records, names, width):
        return [_table(records, names, title)]
    upright = [upright_table(record, names, None if number else title) for number, record in enumerate(records)]
    return [part for each in upright for part in (Text(), each)][1:]


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


def upright_table(record: Record, names: Iterable[str], title: str | None = None) -> Table:
    """Return a vertical table, one line per column, for records that are wider than the terminal."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name in names:
        table.add_row(name.replace("_", " "), Text(_shown_cell(record[name])))
    return table


def _name(record: Record) -> str:
    return _cell(record["name"]) if "name" in record else next(filter(None, map(_cell, record.values())), "")


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
