"""Text, numbers and files that a caller can pass by mistake or on purpose, and the tree of commands to pass them to."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from tidelog_cli.root import app

TEXTS: Final[Mapping[str, str]] = {
    "empty": "",
    "blank": " ",
    "blanks around": " orders ",
    "tab": "a\tb",
    "line end": "a\nb",
    "carriage return": "a\rb",
    "dash": "-",
    "two dashes": "--",
    "an option": "--no-such-option",
    "URL of an object store": "s3://bucket/x",
    "URL of a file": "file:///etc/hostname",
    "scheme with one slash": "gs:/bucket/x",
    "markup": "[error]",
    "end of markup": "[/x]",
    "style": "[bold red]x[/bold red]",
    "link": "[link=https://example.org]x[/link]",
    "screen control": "\x1b[2J\x1b]0;title\x07",
    "C1 control": "\x9b2J",
    "delete": "a\x7fb",
    "reversed": "\u202eabc",
    "line separator": "a\u2028b",
    "invisible": "a\u200bb",
    "byte order mark": "\ufefforders",
    "decomposed": "e\u0301",
    "outside the first plane": "\U0001f600",
    "not a character": "\uffff",
    "not UTF-8": "a\udcff",
    "half a sequence": "\udce2\udc82",
    "long": "a" * 5_000,
    "very long": "x" * 100_000,
    "parent folder": "../../x",
    "root": "/",
    "missing file": "/no/such/file",
    "path below a file": "/etc/hostname/x",
    "device": "/dev/full",
    "not a number": "nan",
    "infinite": "inf",
    "infinite below": "-inf",
    "beyond floats": "1e400",
    "negative": "-1",
    "zero": "0",
    "64 bits": "18446744073709551616",
    "more digits than int reads": "9" * 5_000,
    "hexadecimal": "0x10",
    "underscore": "1_0",
    "fraction": "1.5",
    "word": "true",
    "JSON": '{"a": [1]}',
    "assignment": "a=b",
    "assignment without a name": "=b",
    "assignment without a value": "a=",
    "time without a zone": "@2026-01-31T12:00:00",
    "no time": "@yesterday",
    "long ago": "@-999999999d",
    "duration beyond floats": "9" * 400 + "d",
    "commas": ",,",
    "pattern": "*",
    "slashes": "a//0/0",
    "percent": "%s%n{0}",
    "shell": "$(id)`id`",
    "backslash": "\\x\\",
    "quotes": "'\"",
    "host without a port": "localhost",
    "port beyond 65535": "127.0.0.1:99999",
    "address without brackets": "::1:7420",
}


def hostile_files(folder: Path) -> dict[str, str]:
    """Make files that no option accepts; return their paths by what they are."""
    (folder / "folder").mkdir()
    (folder / "binary").write_bytes(bytes(range(256)))
    (folder / "text").write_text("this is = not [what was expected\n")
    (folder / "pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    (folder / "loop").symlink_to("loop")
    return {f"file: {name}": str(folder / name) for name in ("folder", "binary", "text", "pem", "loop")}


@dataclass(frozen=True, slots=True)
class Command:
    """A command and its parameters, as Typer declares them."""

    path: tuple[str, ...]
    parameters: tuple[Any, ...]

    def options(self) -> list[Any]:
        """Return the options that take a value."""
        return [each for each in self.parameters if each.param_type_name == "option" and not each.is_flag]

    def arguments(self, text: str) -> list[str]:
        """Return ``text`` for each positional argument, or once if there is no such argument."""
        places = [each for each in self.parameters if each.param_type_name == "argument"]
        return [text] * max(1, len(places))

    def needed(self) -> list[str]:
        """Return valid arguments and options for those that are required."""
        found: list[str] = []
        for each in self.parameters:
            if each.required:
                valid = "1" if each.type_descriptor.annotation is int else "orders"
                found += [valid] if each.param_type_name == "argument" else [each.opts[0], valid]
        return found


def commands() -> list[Command]:
    """Return every command that the tree has, also those of the server package."""
    return list(_below(typer.main.get_command(app), ()))


def _below(command: Any, path: tuple[str, ...]) -> Iterator[Command]:
    children = getattr(command, "commands", None)
    if children is None:
        yield Command(path, tuple(command.params))
        return
    for name in children:
        yield from _below(children[name], (*path, name))
