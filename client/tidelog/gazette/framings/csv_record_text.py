r"""One CSV record as text: fields separated by commas, ended by ``\n`` or ``\r\n``.

As in Go's CSV package, ``\r\n`` within a quoted field is read as ``\n``.
"""

import re
from typing import Final

from tidelog.gazette.errors import MalformedFrameError

_QUOTED: Final = re.compile(r'"([^"]*+(?:""[^"]*+)*+)"')
_PLAIN: Final = re.compile(r"[^,\n]*")
_SPECIAL: Final = re.compile(r'[,"\r\n]')
# Python counts these as white space. Unicode's property White_Space, by which Go decides, does not have them.
_SEPARATORS: Final = "\x1c\x1d\x1e\x1f"


class OpenQuoteError(Exception):
    """The text ends within a quoted field, so the record continues on the next line."""


def record_text(fields: list[str]) -> str:
    """Return the record of ``fields``, with its newline."""
    return ",".join(map(_field_text, fields)) + "\n"


def parse_record(text: str) -> list[str]:
    r"""Return the fields of the record ``text``, which ends with ``\n``; none if all its lines are blank.

    Raises:
        OpenQuoteError: The record continues on the next line.
        MalformedFrameError: A quote is neither around a field nor doubled within one, or text follows the record.
    """
    text = text.replace("\r\n", "\n").lstrip("\n")
    if not text:
        return []
    if '"' not in text:
        return _after_record(text, text.index("\n")) or text[:-1].split(",")
    fields = []
    at = 0
    while True:
        field, at = _next_field(text, at)
        fields.append(field)
        if text[at] == "\n":
            return _after_record(text, at) or fields
        at += 1


def _after_record(text: str, end: int) -> list[str]:
    if end + 1 < len(text):
        raise MalformedFrameError(f"{len(text) - end - 1} characters follow the record, expected one whole record")
    return []


def _next_field(text: str, at: int) -> tuple[str, int]:
    """Return the field at ``at``, and the index of the comma or newline after it."""
    if not text.startswith('"', at):
        end = _PLAIN.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty text
        field = text[at:end]
        if '"' in field:
            raise MalformedFrameError(
                f"a quote is within the field at character {at + 1} of the record: quote the whole field, and double "
                "the quotes in it"
            )
        return field, end
    match = _QUOTED.match(text, at)
    if match is None:
        raise OpenQuoteError
    if text[match.end() :][:1] not in {",", "\n"}:
        raise MalformedFrameError(
            f"text follows the quoted field at character {at + 1} of the record, expected a comma or the line end"
        )
    return match[1].replace('""', '"'), match.end()


def _field_text(field: str) -> str:
    needs_quotes = _SPECIAL.search(field) or field == r"\." or _begins_with_space(field)
    return '"' + field.replace('"', '""') + '"' if needs_quotes else field


def _begins_with_space(field: str) -> bool:
    first = field[:1]
    return first.isspace() and first not in _SEPARATORS
