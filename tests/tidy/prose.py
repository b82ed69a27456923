"""The prose of a file: comments, docstrings and string literals of Python, Markdown, and comments of other files.

Code is left out, so that a rule about words never matches an expression. Prose that continues in the next line is one
piece, so that a line break hides no phrase.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_FENCE: Final = re.compile(r"\s*(?:```|~~~)")
_CODE_SPAN: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_COMMENT_MARKS: Final = {
    ".proto": "//",
    ".toml": "#",
    ".yml": "#",
    ".yaml": "#",
    ".sh": "#",
    ".service": "#",
    ".Dockerfile": "#",
}
# Files whose name says what they are.
_HASH_COMMENTS: Final = frozenset({"Makefile", "Dockerfile"})


class Piece(NamedTuple):
    """Prose that begins in a line."""

    line: int
    text: str


def prose_of(path: Path, text: str) -> Iterator[Piece]:
    """Yield the prose of a file, with a single space for each white space and ``code`` for each span of code."""
    for line, piece in _pieces(path, text):
        yield Piece(line, " ".join(_CODE_SPAN.sub("`code`", piece).split()))


def _pieces(path: Path, text: str) -> Iterator[Piece]:
    if path.suffix == ".py":
        return _python(text)
    if path.suffix == ".md":
        return _markdown(text)
    is_script = not path.suffix and (path.name in _HASH_COMMENTS or text.startswith("#!"))
    mark = "#" if is_script else _COMMENT_MARKS.get(path.suffix)
    return iter(()) if mark is None else _comments(text, mark)


def _python(text: str) -> Iterator[Piece]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield Piece(node.lineno, node.value)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    yield from _joined(
        Piece(token.start[0], token.string.lstrip("#")) for token in tokens if token.type == tokenize.COMMENT
    )


def _markdown(text: str) -> Iterator[Piece]:
    lines, is_code = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            is_code = not is_code
        elif not is_code and line.strip():
            lines.append(Piece(number, line))
    yield from _joined(lines)


def _comments(text: str, mark: str) -> Iterator[Piece]:
    comment = re.compile(rf"(?:^|\s){re.escape(mark)}(.*)$")
    matches = ((number, comment.search(line)) for number, line in enumerate(text.splitlines(), 1))
    yield from _joined(Piece(number, match[1]) for number, match in matches if match)


def _joined(lines: Iterable[Piece]) -> Iterator[Piece]:
    """Join the lines that follow each other."""
    block: list[Piece] = []
    for line in lines:
        if block and line.line != block[-1].line + 1:
            yield Piece(block[0].line, "\n".join(piece.text for piece in block))
            block = []
        block.append(line)
    if block:
        yield Piece(block[0].line, "\n".join(piece.text for piece in block))
