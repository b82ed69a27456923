"""Selectors of journals as text: ``topic=clicks, region in (eu, us), !retired, name:prefix=my/``.

A selector is a list of terms separated by commas, of which one may follow the last term; an empty one selects every
journal.

======================  ==================================================================================
term                    the journal has
======================  ==================================================================================
``k`` or ``k=``         a label ``k``
``k=v`` or ``k==v``     a label ``k`` with the value ``v``; several such terms are alternatives
``k in (a, b)``         a label ``k`` with one of the values
``!k``                  no label ``k``
``k!=v``                no label ``k`` with the value ``v``
``k notin (a, b)``      no label ``k`` with one of the values; also ``k not in (a, b)``
======================  ==================================================================================

After ``k:prefix``, a value matches if it begins with the text given. The implicit label ``name`` is the journal's name,
and ``prefix`` each path above it, such as ``my/topic/``. Source: Gazette's label selectors.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from tidelog.errors import InvalidRequestError
from tidelog.journals.labels import LabelSelector, LabelSet, LabelTerm

_MIN_NAME: Final = 2
_MAX_NAME: Final = 64
_MAX_VALUE: Final = 1_024
_TERM: Final = re.compile(
    r"""\s*
    (?P<absent>!)?\s*
    (?P<name>[\w+/.%-]+)(?P<prefix>:prefix)?\s*
    (?:
        (?P<comparison>==?|!=)\s*(?P<value>[\w+/.=%-]*)
      | (?P<set>in|not\s*in)\s*\(\s*(?P<values>[\w+/.=%-]+(?:\s*,\s*[\w+/.=%-]+)*)\s*\)
    )?\s*(?:,|$)""",
    re.ASCII | re.VERBOSE,
)
_SHOWN: Final = 64


class InvalidSelectorError(InvalidRequestError):
    """The text is not a label selector."""


def parse_label_selector(text: str) -> LabelSelector:
    """Return the selector that ``text`` denotes; its terms are sorted and unique.

    Raises:
        InvalidSelectorError: ``text`` has another form, a name or value has an invalid length, or terms of one label
            contradict each other.
    """
    include, exclude = set[LabelTerm](), set[LabelTerm]()
    at = 0
    # A comma may follow the last term.
    while text[at:].strip():
        match = _TERM.match(text, at)
        if match is None or (match["absent"] and (match["comparison"] or match["set"])):
            raise _invalid(text, at)
        excludes = match["absent"] or match["comparison"] == "!=" or (match["set"] or "in") != "in"
        (exclude if excludes else include).update(_terms(match))
        at = match.end()
    _check_agree(include)
    _check_agree(exclude)
    return LabelSelector(_sorted(include), _sorted(exclude))


def _terms(match: re.Match[str]) -> Iterator[LabelTerm]:
    name, is_prefix = match["name"], bool(match["prefix"])
    if not _MIN_NAME <= len(name) <= _MAX_NAME:
        raise InvalidSelectorError(
            f"the label name {name[:_SHOWN]!r} has {len(name)} characters, expected {_MIN_NAME} to {_MAX_NAME}"
        )
    values = re.split(r"\s*,\s*", match["values"]) if match["set"] else [match["value"] or ""]
    for value in values:
        if len(value) > _MAX_VALUE:
            raise InvalidSelectorError(
                f"a value of the label {name!r} has {len(value)} characters, expected at most {_MAX_VALUE}"
            )
        if name == "prefix" and value and not is_prefix and not value.endswith("/"):
            raise InvalidSelectorError(f"the value {value!r} of the label 'prefix' must end with '/'")
        if match["comparison"] == "!=" and not value:
            raise InvalidSelectorError(f"a value must follow '{name}!=': write '!{name}' to exclude every value")
        yield LabelTerm(name, value, is_prefix and bool(value))


def _check_agree(terms: Iterable[LabelTerm]) -> None:
    """Check that no label has both a term for any value and one for a certain value. Raises InvalidSelectorError."""
    any_value = {term.name for term in terms if not term.value}
    for term in _sorted(terms):
        if term.value and term.name in any_value:
            raise InvalidSelectorError(
                f"the selector has a term for any value of the label {term.name!r} and one for {term.value!r}, which "
                "contradict each other: remove one"
            )


def _sorted(terms: Iterable[LabelTerm]) -> tuple[LabelTerm, ...]:
    return tuple(sorted(terms, key=lambda term: (term.name, term.value, term.is_prefix)))


def _invalid(text: str, at: int) -> InvalidSelectorError:
    return InvalidSelectorError(
        f"the selector is invalid at character {at + 1}, {text[at : at + _SHOWN]!r}: expected terms such as 'k=v', "
        "'k!=v', 'k in (a, b)', 'k notin (a, b)', 'k', '!k' or 'k:prefix=v', separated by commas"
    )


def format_label_selector(selector: LabelSelector) -> str:
    """Return the text of ``selector``, which ``parse_label_selector`` accepts."""
    parts = [_part(term, "", "=") for term in selector.include]
    return ", ".join([*parts, *(_part(term, "!", "!=") for term in selector.exclude)])


def _part(term: LabelTerm, absent: str, comparison: str) -> str:
    if not term.value:
        return f"{absent}{term.name}"
    return f"{term.name}{':prefix' if term.is_prefix else ''}{comparison}{term.value}"


def selector_matches(selector: LabelSelector, labels: LabelSet, journal: str = "") -> bool:
    """Return whether ``selector`` selects a journal with ``labels``; the implicit labels are those of ``journal``."""
    pairs = [*labels.labels, *_implicit(journal)]
    if any(_matches(term, pairs) for term in selector.exclude):
        return False
    wanted = {term.name for term in selector.include}
    return wanted == {term.name for term in selector.include if _matches(term, pairs)}


def _implicit(journal: str) -> list[tuple[str, str]]:
    if not journal:
        return []
    paths = [journal[: at + 1] for at, character in enumerate(journal) if character == "/"]
    return [("name", journal), *(("prefix", path) for path in paths)]


def _matches(term: LabelTerm, pairs: Iterable[tuple[str, str]]) -> bool:
    return any(
        name == term.name and (term.value in {"", value} or (term.is_prefix and value.startswith(term.value)))
        for name, value in pairs
    )
