"""Tables that notebooks show for batches, channels and groups: ``_repr_html_``. Pure."""

import html
from collections.abc import Iterable, Sequence

MAX_ROWS = 20
"""Rows of a table; the rest is counted."""
_MAX_CHARACTERS = 80


def html_table(title: str, names: Sequence[str], rows: Iterable[Sequence[object]], count: int) -> str:
    """Return a table of the first MAX_ROWS of ``count`` rows, with all texts escaped."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    shown = [row for row, _ in zip(rows, range(MAX_ROWS), strict=False)]
    body = "".join("<tr>" + "".join(f"<td>{html.escape(_text(each))}</td>" for each in row) + "</tr>" for row in shown)
    more = f"<p>and {count - len(shown)} more</p>" if count > len(shown) else ""
    caption = f"<caption>{html.escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(value: object) -> str:
    if value is None:
        return ""
    text = value[:_MAX_CHARACTERS].decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    is_cut = len(text) > _MAX_CHARACTERS or (isinstance(value, bytes) and len(value) > _MAX_CHARACTERS)
    return text[:_MAX_CHARACTERS] + "…" if is_cut else text
