"""Prints messages as they arrive, in each format of ``--output``."""

import csv
import io
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from rich.cells import cell_len
from rich.console import Console

from tidelog import StoredMessage
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.output.escapes import say, say_bytes, shown
from tidelog_cli.output.framing import Framing, MessagePrinter, encode_payload, json_of_message
from tidelog_cli.output.message_format import compiled
from tidelog_cli.output.records import MessageOutput, cut, upright_table, yaml_text

_MIN_PAYLOAD_COLUMNS: Final = 12
_MAX_KEY_COLUMNS: Final = 24
_CSV_COLUMNS: Final = (
    "vchannel", "tick", "time", "txn_id", "broadcast_id", "key", "key_base64", "type", "properties", "event_time_ms",
    "payload", "payload_base64",
)  # fmt: skip


def printer_of(output: MessageOutput, framing: Framing) -> MessagePrinter:
    """Return a printer; ``framing`` applies to payloads in ``text``.

    Raises:
        CommandError: The format is not for terminals, and stdout is one.
        ModuleNotFoundError: The format needs pyarrow, which is not installed.
    """
    match output:
        case MessageOutput.TABLE | MessageOutput.WIDE:
            return _Table(is_wide=output is MessageOutput.WIDE)
        case MessageOutput.YAML:
            return _Yaml()
        case MessageOutput.JSON:
            return _Json()
        case MessageOutput.JSONL:
            return _JsonLines()
        case MessageOutput.TEXT:
            return _Bytes(lambda message: encode_payload(message.payload, framing))
        case MessageOutput.CSV:
            return _Csv()
        case MessageOutput.ARROW | MessageOutput.PARQUET:
            return _binary(output)


def format_printer(template: str) -> MessagePrinter:
    """Return a printer of ``--format``. Raises CommandError for a template that is invalid."""
    return _Bytes(compiled(template))


def _binary(output: MessageOutput) -> MessagePrinter:
    if sys.stdout.isatty():
        raise CommandError(f"-o {output} is not for terminals: redirect it to a file or to a program", ExitCode.USAGE)
    from tidelog_cli.output.arrow_files import arrow_printer

    return arrow_printer(output)


class _JsonLines(MessagePrinter):
    """One object per line."""

    def print(self, messages: Sequence[StoredMessage], count: int) -> None:
        lines = [json.dumps(json_of_message(message), ensure_ascii=False) for message in islice(messages, count)]
        if lines:
            say("\n".join(lines))
        sys.stdout.flush()


class _Json(MessagePrinter):
    """One array."""

    def __init__(self) -> None:
        self._separator = "[\n"

    def print(self, messages: Sequence[StoredMessage], count: int) -> None:
        for message in islice(messages, count):
            say(self._separator + json.dumps(json_of_message(message), ensure_ascii=False), end="")
            self._separator = ",\n"
        sys.stdout.flush()

    def finish(self) -> None:
        print("[]" if self._separator == "[\n" else "\n]")


class _Yaml(MessagePrinter):
    """One sequence: those of the batches join."""

    def __init__(self) -> None:
        self._is_empty = True

    def print(self, messages: Sequence[StoredMessage], count: int) -> None:
        if objects := [json_of_message(message) for message in islice(messages, count)]:
            say(yaml_text(objects), end="", flush=True)
            self._is_empty = False

    def finish(self) -> None:
        if self._is_empty:
            print("[]")


class _Bytes(MessagePrinter):
    """What a function makes of each message."""

    def __init__(self, encode: Callable[[StoredMessage], bytes]) -> None:
        self._encode = encode

    def print(self, messages: Sequence[StoredMessage], count: int) -> None:
        say_bytes(b"".join(map(self._encode, islice(messages, count))))


class _Csv(MessagePrinter):
    """A line for each message, after one with the names; the fields are those of JSON, properties are an object."""

    def __init__(self) -> None:
        say(",".join(_CSV_COLUMNS))

    def print(self, messages: Sequence[StoredMessage], count: int) -> None:
        lines = io.StringIO()
        writer = csv.DictWriter(lines, _CSV_COLUMNS, lineterminator="\n")
        for message in islice(messages, count):
            fields = json_of_message(message)
            if "properties" in fields:
                fields["properties"] = json.dumps(fields["properties"], ensure_ascii=False)
            writer.writerow(fields)
        say(lines.getvalue(), end="", flush=True)


class _Table(MessagePrinter):
    """One line per message, cut to the terminal. Why not a Rich table: it could not be printed incrementally.

    The columns are as wide as the first batch needs. If they leave too little for payloads, messages stand upright, one
    after the other, as records do. A wide table has all fields, cuts nothing, and never stands upright.
    """

    def __init__(self, *, is_wide: bool) -> None:
        self._is_wide = is_wide
        self._width = shutil.get_terminal_size().columns
        self._widths: dict[str, int] = {}
        self._upright: Console | None = None

    def print(self, messages: Sequence[StoredMessage], count: int) -> None:
        cells = [self._cells(message) for message in islice(messages, count)]
        if cells and not self._widths:
            self._begin(cells)
        for each in cells:
            if self._upright is None:
                self._print_line(each)
            else:
                room = max(_MIN_PAYLOAD_COLUMNS, self._width - len("vchannel  "))
                self._upright.print(upright_table({**each, "payload": cut(each["payload"], room)}, each))
                self._upright.print()
        sys.stdout.flush()

    def _cells(self, message: StoredMessage) -> dict[str, str]:
        key = "" if message.key is None else shown(message.key)
        cells = {
            "tick": str(message.tick),
            "time": message.tick.time.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3],
            "vchannel": shown(message.vchannel),
            "type": str(message.type),
            "key": key if self._is_wide else cut(key, _MAX_KEY_COLUMNS),
        }
        if self._is_wide:
            cells |= {
                "txn_id": str(message.txn_id or ""),
                "broadcast_id": str(message.broadcast_id or ""),
                "event_time_ms": "" if message.event_time_ms is None else str(message.event_time_ms),
                "properties": shown(json.dumps(dict(message.properties), ensure_ascii=False)),
            }
        return {**cells, "payload": shown(message.payload)}

    def _begin(self, cells: Sequence[Mapping[str, str]]) -> None:
        names = list(cells[0])
        self._widths = {name: max(len(name), *(cell_len(each[name]) for each in cells)) for name in names[:-1]}
        if not self._is_wide and sum(self._widths.values()) + len(self._widths) + _MIN_PAYLOAD_COLUMNS > self._width:
            self._upright = Console()
        else:
            self._print_line({name: name.upper() for name in names})

    def _print_line(self, cells: Mapping[str, str]) -> None:
        padded = (cells[name] + " " * (width - cell_len(cells[name])) for name, width in self._widths.items())
        head = " ".join((*padded, ""))
        payload = cells["payload"]
        print(
            head + (payload if self._is_wide else cut(payload, max(_MIN_PAYLOAD_COLUMNS, self._width - cell_len(head))))
        )
