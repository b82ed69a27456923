"""No file contains leftovers, paths of one machine, or the address of a package registry.

Method: the content of every text file of the tree.
"""

import re
from collections.abc import Iterator

import pytest

from tidy.tree import files, shown

# Written so that no pattern matches its own line.
PATTERNS = {
    "a to-do without an issue number": re.compile(r"\b(?:TO[D]O\b(?!\(#\d+\))|FIX[M]E\b|X{3}\b|HAC[K]\b)"),
    "a path of one machine": re.compile(r"(?<![\w.>}])/(?:root|home|work|Users)/\w"),
    "the address of a package registry": re.compile(r"(?:pypi|pythonhosted)\.org|index-ur[l]\s*=", re.IGNORECASE),
    "trailing white space": re.compile(r"[ \t]+$"),
}


def lines() -> Iterator[tuple[str, str]]:
    for path in files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        yield from ((f"{shown(path)}:{number}", line) for number, line in enumerate(text.splitlines(), 1))


@pytest.mark.parametrize("what", sorted(PATTERNS))
def test_no_file_contains(what: str) -> None:
    generated = "client/tidelog/v1/"
    found = [f"{where} {line.strip()}" for where, line in lines() if PATTERNS[what].search(line)]
    assert [each for each in found if not each.startswith(generated)] == []
