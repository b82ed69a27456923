"""Each mark that silences a check says why, in the same line.

Method: the comments of all Python files, read by the tokenizer; the finder itself, on planted marks.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from typing import Final

import pytest

from tidy.tree import python_files, shown

_MARK: Final = re.compile(r"# (noqa|type: ignore)\b")
_WITH_REASON: Final = re.compile(r"# (noqa: [A-Z0-9, ]+? -+ |type: ignore\[[a-z, -]+\] +(# |- ))\S")


def marks_without_reason(text: str) -> Iterator[int]:
    """Yield the lines with such a mark."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and _MARK.match(token.string) and not _WITH_REASON.match(token.string):
            yield token.start[0]


def test_each_mark_says_why() -> None:
    assert [f"{shown(path)}:{line}" for path in python_files() for line in marks_without_reason(path.read_text())] == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a = b._c  # noqa: SLF001\n", [1]),
        ("a = 1\na = b  # type: ignore[assignment]\n", [2]),
        ("a = b  # noqa\n", [1]),
        ("a = b  # type: ignore\n", [1]),
        ("a = b._c  # noqa: SLF001, E501 - the claim\n", []),
        ("a = b  # type: ignore[assignment, arg-type]  # the claim\n", []),
        ('a = "# noqa: SLF001"\n', []),
    ],
)
def test_the_finder_finds_marks_without_a_reason(text: str, lines: list[int]) -> None:
    assert list(marks_without_reason(text)) == lines
