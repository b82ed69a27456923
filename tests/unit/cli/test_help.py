"""Goal: the printed help shows the help texts unchanged; ``[delta]`` is not taken for markup.

Method: the help of every command, as the program prints it, is compared with the texts in the source.
"""

import re
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from tidelog_cli.root import app

_BRACKETS = re.compile(r"\S*\[[^\]\s]*\]\S*")


def _commands(command: object, *path: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Yield the path and the help texts of ``command`` and of each command below it."""
    yield path, [getattr(command, "help", None) or "", *(getattr(p, "help", None) or "" for p in command.params)]  # type: ignore[attr-defined]  # all commands have them
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, *path, name)


_ALL = list(_commands(typer.main.get_command(app)))
_BRACKETED = {
    path: [word.replace("\\[", "[") for text in texts for word in _BRACKETS.findall(text)] for path, texts in _ALL
}


def test_the_commands_are_found() -> None:
    assert ("pipeline", "archive") in _BRACKETED
    assert len(_ALL) > 40


@pytest.mark.parametrize("path", [path for path, words in _BRACKETED.items() if words], ids=" ".join)
def test_no_help_loses_what_is_in_brackets(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "2000")

    shown = CliRunner().invoke(app, [*path, "--help"]).output

    for word in _BRACKETED[path]:
        assert word in shown
