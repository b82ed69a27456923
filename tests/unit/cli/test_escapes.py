"""What other users wrote is shown in tables and on terminals as it is, and never interpreted.

Method: names that are markup of Rich, or that a terminal would execute, in every format; a stream that says it is a
terminal.
"""

import io
import json
import sys

import pytest
from rich.console import Console

from tidelog_cli.commands.top import picture
from tidelog_cli.output.escapes import say, say_bytes, shown
from tidelog_cli.output.records import Output, print_records
from tidelog_server.commands.bench.report import Report, print_report
from tidelog_testing.parts.hostile_texts import TEXTS

MARKUP = ["[error]", "jobs[eu]", "[/x]", "[bold red]x[/]", "[link=https://example.org]x[/link]", "\\[a]", ":smile:"]
COMMANDS = {
    "\x1b[2J\x1b]0;t\x07": r"\x1b[2J\x1b]0;t\x07",
    "\x9b31m": r"\x9b31m",
    "\u202eabc": r"\u202eabc",
    "a\u2028b": r"a\u2028b",
    "a\u200bb": r"a\u200bb",
    "a\nb\tc\rd": r"a\nb\tc\rd",
}


def has_half(text: str) -> bool:
    """Return whether a text has half a character, which no name of a server has."""
    return any("\ud800" <= character <= "\udfff" for character in text)


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal, and keeps what is written."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


def without_blanks(text: str) -> str:
    return "".join(text.split())


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make stdout a terminal. Not a fixture: pytest replaces the stream before the test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("COLUMNS", "200")
    # Rich would colour the numbers.
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    return stream


@pytest.mark.parametrize("name", MARKUP)
def test_a_table_shows_markup_as_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    print_records([{"name": name, "labels": [name, name], "count": 1}], Output.TABLE)
    print_records([{"name": name * 30, "labels": ["x" * 150], "count": 1}], Output.TABLE)

    # Long cells are wrapped.
    assert without_blanks(name) * 3 in without_blanks(terminal.text)
    assert name in terminal.text


@pytest.mark.parametrize(("name", "escaped"), COMMANDS.items(), ids=list(COMMANDS.values()))
def test_a_table_escapes_what_a_terminal_would_execute(
    name: str, escaped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = on_terminal(monkeypatch)
    print_records([{"name": name, "group": name, "labels": [name]}], Output.TABLE)

    assert terminal.text.count(escaped) == 3
    assert terminal.text.replace("\n", "").isprintable()


@pytest.mark.parametrize("output", Output)
@pytest.mark.parametrize("name", [text for text in TEXTS.values() if not has_half(text)])
def test_no_format_sends_a_control_character_to_a_terminal(
    name: str, output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = on_terminal(monkeypatch)
    print_records([{"name": name, "labels": [name], "headers": {name: name}}], output)

    assert terminal.text.replace("\n", "").replace("\t", "").isprintable()
    if output is Output.JSONL:
        assert json.loads(terminal.text)["name"] == name


def test_bodies_are_escaped_on_a_terminal_and_exact_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    body = b"\x1b[2J\xff\n\tx\x00"
    say_bytes(body)
    assert terminal.text == "\\u001b[2J\\xff\n\tx\\u0000"

    file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", file)
    say_bytes(body)
    say("\x1b[2J\u2028")
    file.flush()
    assert isinstance(file.buffer, io.BytesIO)
    assert file.buffer.getvalue() == body + "\x1b[2J\u2028\n".encode()


def test_top_and_reports_show_names_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    figures = {"busiest_channels": {"[/x]": 1.0, "\x1b[2J": 2.0}, "groups_behind": {"jobs[eu]": 3}}
    Console().print(picture(figures))
    print_report(Report("append", {"endpoint": "[/x]\x1b[2J"}), as_json=False)

    for text in ("[/x]", "jobs[eu]", r"\x1b[2J"):
        assert text in terminal.text
    assert terminal.text.replace("\n", "").isprintable()


def test_text_without_control_characters_is_unchanged() -> None:
    for text in ("größe", "日本語", "\U0001f600", "a b", "[x]", ""):
        assert shown(text) == text == shown(text.encode())
