"""Prints messages as they arrive, in each format of ``--output``."""

import json
import shutil
import sys
from collections.abc import Iterable
from typing import Final, Protocol

from tidelog import StoredMessage
from tidelog_cli.output.escapes import say, say_bytes, shown
from tidelog_cli.output.framing import Framing, encode_payload, json_of_message
from tidelog_cli.output.records import Output

_MIN_PAYLOAD_COLUMNS: Final = 20


class MessagePrinter(Protocol):
    """Prints messages to stdout."""

    def print(self, messages: Iterable[StoredMessage]) -> None:
        """Print messages and flush stdout, so that its reader sees them immediately."""
        ...

    def finish(self) -> None:
        """Print the end of the output, if the format has one."""
        ...


def printer_of(output: Output, framing: Framing) -> MessagePrinter:
    """Return a printer; ``framing`` applies to payloads in ``text``."""
    match output:
        case Output.TABLE:
            return _Table()
        case Output.JSON:
            return _Json()
        case Output.JSONL:
            return _JsonLines()
        case Output.TEXT:
            return _Text(framing)


class _JsonLines:
    """One object per line."""

    def print(self, messages: Iterable[StoredMessage]) -> None:
        lines = [json.dumps(json_of_message(message), ensure_ascii=False) for message in messages]
        if lines:
            say("\n".join(lines))
        sys.stdout.flush()

    def finish(self) -> None:
        """No-op."""


class _Json:
    """One array."""

    def __init__(self) -> None:
        self._separator = "[\n"

    def print(self, messages: Iterable[StoredMessage]) -> None:
        for message in messages:
            say(self._separator + json.dumps(json_of_message(message), ensure_ascii=False), end="")
            self._separator = ",\n"
        sys.stdout.flush()

    def finish(self) -> None:
        print("[]" if self._separator == "[\n" else "\n]")


class _Text:
    """Framed payloads only."""

    def __init__(self, framing: Framing) -> None:
        self._framing = framing

    def print(self, messages: Iterable[StoredMessage]) -> None:
        say_bytes(b"".join(encode_payload(message.payload, self._framing) for message in messages))

    def finish(self) -> None:
        """No-op."""


class _Table:
    """One line per message, truncated to the terminal. Why not a Rich table: it could not be printed incrementally."""

    def __init__(self) -> None:
        self._width = shutil.get_terminal_size().columns
        self._is_first = True

    def print(self, messages: Iterable[StoredMessage]) -> None:
        if self._is_first:
            print(f"{'TICK':<19} {'TIME':<23} {'VCHANNEL':<16} {'TYPE':>4} {'KEY':<12} PAYLOAD")
            self._is_first = False
        for message in messages:
            time = message.tick.time.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
            key = shown(message.key) if message.key is not None else ""
            head = f"{message.tick:<19} {time} {shown(message.vchannel):<16} {message.type:>4} {key:<12} "
            print(head + shown(message.payload)[: max(_MIN_PAYLOAD_COLUMNS, self._width - len(head))])
        sys.stdout.flush()

    def finish(self) -> None:
        """No-op."""
