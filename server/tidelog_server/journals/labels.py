"""Labels of journals, and selectors that match them. Pure.

Source: Gazette's label sets and label selectors.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import (
    MAX_JOURNAL_LABELS_BYTES,
    MAX_LABEL_NAME_CHARACTERS,
    MAX_LABEL_VALUE_CHARACTERS,
    MIN_LABEL_NAME_CHARACTERS,
)
from tidelog_server.core.names import TOKEN_CHARACTERS, shown

Labels = tuple[tuple[str, str], ...]
"""``(name, value)``, sorted and unique."""

META_NAME: Final = "name"
META_PREFIX: Final = "prefix"
SINGLE_VALUED: Final = frozenset(
    (
        "app.gazette.dev/instance",
        "app.gazette.dev/managed-by",
        "app.gazette.dev/message-subtype",
        "app.gazette.dev/message-type",
        "app.gazette.dev/region",
        "content-type",
    )
)
_NAME: Final = re.compile(f"[{TOKEN_CHARACTERS}]{{{MIN_LABEL_NAME_CHARACTERS},{MAX_LABEL_NAME_CHARACTERS}}}", re.ASCII)
_VALUE: Final = re.compile(f"[{TOKEN_CHARACTERS}]{{0,{MAX_LABEL_VALUE_CHARACTERS}}}", re.ASCII)


def check_labels(labels: Iterable[tuple[str, str]]) -> Labels:
    """Return labels sorted and unique.

    Raises:
        InvalidRequestError: A name or value is invalid, a label has values that exclude each other, or all of them are
            too long.
    """
    checked = tuple(sorted(set(labels)))
    values: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in checked:
        _check_label(name, value)
        values[name].append(value)
    for name, several in values.items():
        if len(several) > 1 and (name in SINGLE_VALUED or "" in several):
            limit = "at most one value is allowed" if name in SINGLE_VALUED else "an empty value must be the only one"
            raise InvalidRequestError(f"label '{name}' has {len(several)} values: {limit}", field="labels")
    size = sum(len(name) + len(value) for name, value in checked)
    if size > MAX_JOURNAL_LABELS_BYTES:
        raise InvalidRequestError(
            f"the labels of a journal have {size} bytes, at most {MAX_JOURNAL_LABELS_BYTES} are allowed: use fewer or "
            "shorter ones",
            field="labels",
        )
    return checked


def _check_label(name: str, value: str) -> None:
    if name in (META_NAME, META_PREFIX):
        raise InvalidRequestError(
            f"label '{name}' is reserved: every journal has it implicitly, from its name", field="labels"
        )
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(
            f"the label name '{shown(name)}' is not allowed: expected {MIN_LABEL_NAME_CHARACTERS} to "
            f"{MAX_LABEL_NAME_CHARACTERS} letters, digits and '-_+/.=%'",
            field="labels",
        )
    if not _VALUE.fullmatch(value):
        raise InvalidRequestError(
            f"the value '{shown(value)}' of label '{name}' is not allowed: expected up to "
            f"{MAX_LABEL_VALUE_CHARACTERS} letters, digits and '-_+/.=%'",
            field="labels",
        )


def meta_labels(journal: str) -> Labels:
    """Return the implicit labels of a journal: its name, and each path above it with the slash at its end."""
    paths = (journal[: place + 1] for place, character in enumerate(journal) if character == "/")
    return ((META_NAME, journal), *((META_PREFIX, path) for path in paths))


@dataclass(frozen=True, slots=True)
class Term:
    """Matches labels called ``name``.

    Attributes:
        name: Name of the label.
        value: Its value; empty for any.
        is_prefix: True if its value only has to begin with ``value``.
    """

    name: str
    value: str = ""
    is_prefix: bool = False

    def matches(self, labels: Iterable[tuple[str, str]]) -> bool:
        """Return whether at least one of ``labels`` matches."""
        return any(
            name == self.name and (self.value in ("", value) or (self.is_prefix and value.startswith(self.value)))
            for name, value in labels
        )


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects journals. Without terms it selects every journal.

    Attributes:
        include: For each name among them, at least one term with that name must match.
        exclude: None of them may match.
    """

    include: tuple[Term, ...] = ()
    exclude: tuple[Term, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """Return whether the selector matches a journal with ``labels``, the implicit ones included."""
        if any(term.matches(labels) for term in self.exclude):
            return False
        names = {term.name for term in self.include}
        matched = {term.name for term in self.include if term.matches(labels)}
        return names == matched

    def journals(self) -> frozenset[str] | None:
        """Return the only journals that the selector can match; None if it does not name them all."""
        named = [term for term in self.include if term.name == META_NAME]
        if not named or any(term.is_prefix or not term.value for term in named):
            return None
        return frozenset(term.value for term in named)


EVERY_JOURNAL: Final = Selector()
