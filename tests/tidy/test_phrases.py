"""Prose has none of the constructions of phrases.txt, which readers of technical English have to decode.

Method: the prose of every file of the tree, without code, against the list; the finder itself, on planted phrases.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tidy.prose import prose_of
from tidy.tree import GENERATED, ROOT, files, shown

LIST: Final = ROOT / "tests" / "tidy" / "phrases.txt"


class Rule(NamedTuple):
    """A construction, and what to write instead."""

    pattern: re.Pattern[str]
    instead: str


def rules() -> list[Rule]:
    found = []
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            pattern, _, instead = line.rpartition(" -> ")
            found.append(Rule(re.compile(pattern.strip()), instead.strip()))
    return found


RULES: Final = rules()


def phrases_in(path: Path, text: str) -> list[str]:
    return [
        f"{path}:{line}: '{match[0]}': write: {rule.instead}"
        for line, piece in prose_of(path, text)
        for rule in RULES
        for match in rule.pattern.finditer(piece)
    ]


def test_no_prose_has_a_phrase_of_the_list() -> None:
    found = []
    for path in files():
        name = shown(path)
        # These files have the phrases as their subject.
        is_subject = path == LIST or path == Path(__file__) or GENERATED in path.parents
        if is_subject:
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += phrases_in(Path(name), text)
    assert found == []


def test_every_line_of_the_list_has_a_pattern_and_an_advice() -> None:
    assert RULES
    assert [rule for rule in RULES if not rule.pattern.pattern or not rule.instead] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", '"""What nobody\nreads."""\n'),
        ("a.py", "x = 1  # for ever\n"),
        ("a.py", "# It goes\n# on.\n"),
        ("a.py", 'raise ValueError("the name is none")\n'),
        ("a.py", 'text = f"{x} is none of them"\n'),
        ("a.md", "Whoever reads\nthis.\n"),
        ("a.md", "```\nx\n```\n\nWhoever reads this.\n"),
        ("a.proto", "// Somebody.\nmessage M {}\n"),
        ("a.yaml", "key: 1  # so many\n"),
        ("a.yml", "# He has it.\n"),
        ("a.toml", "# anew\n"),
        ("a.sh", "true # anew\n"),
        ("run", "#!/bin/sh\n# anew\n"),
        ("Makefile", "pin: ## anew\n"),
        ("Dockerfile", "# anew\n"),
    ],
)
def test_a_planted_phrase_is_found(name: str, text: str) -> None:
    assert len(phrases_in(Path(name), text)) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "ok = x is None\n"),
        ("a.py", "nobody = somebody if anew else whoever\n"),
        ("a.py", '"""Returns ``nobody``, if `go on` is set."""\n'),
        ("a.md", "The user `nobody`.\n\n```sh\nsu nobody\n```\n\n~~~\nanew\n~~~\n"),
        ("a.proto", "message Somebody {}\n"),
        ("a.yaml", "user: nobody\n"),
        ("a.sh", "su nobody\n"),
        ("a.svg", "nobody\n"),
    ],
)
def test_code_is_not_prose(name: str, text: str) -> None:
    assert phrases_in(Path(name), text) == []


def test_a_phrase_is_reported_with_its_line_and_what_to_write() -> None:
    [found] = phrases_in(Path("a.md"), "# Title\n\nOne.\n\nBegin anew.\n")
    assert found == "a.md:5: 'anew': write: re-created, again"
