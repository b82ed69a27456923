"""Labels of journals, and selectors that match them. Pure.

Source: Gazette's label sets and label selectors.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import KIB
from tidelog_server.core.message_checks import check_at_most
from tidelog_server.core.names import TOKEN_CHARACTERS, shown
from tidelog_server.core.sorted_names import NamePattern

MIN_LABEL_NAME_CHARACTERS: Final = 2
MAX_LABEL_NAME_CHARACTERS: Final = 64
MAX_LABEL_VALUE_CHARACTERS: Final = 1_024
# Names and values of one journal together.
MAX_JOURNAL_LABELS_BYTES: Final = 16 * KIB

Labels = tuple[tuple[str, str], ...]
"""``(name, value)``, sorted and unique."""

META_NAME: Final = "name"
META_PREFIX: Final = "prefix"
_CONTENT_TYPE: Final = "content-type"
_MESSAGE_TYPE: Final = "app.gazette.dev/message-type"
_MESSAGE_SUBTYPE: Final = "app.gazette.dev/message-subtype"
SINGLE_VALUED: Final = frozenset(
    (
        "app.gazette.dev/instance",
        "app.gazette.dev/managed-by",
        _MESSAGE_SUBTYPE,
        _MESSAGE_TYPE,
        "app.gazette.dev/region",
        _CONTENT_TYPE,
    )
)
# A label, and the one that describes what it refines.
_NEEDED: Final = {_MESSAGE_TYPE: _CONTENT_TYPE, _MESSAGE_SUBTYPE: _MESSAGE_TYPE}
# A media type as RFC 2045 has it, without parameters: their characters are not those of labels.
_MEDIA_TYPE: Final = re.compile(r"[A-Za-z0-9_+.%-]+(?:/[A-Za-z0-9_+.%-]+)?")
_NAME: Final = re.compile(f"[{TOKEN_CHARACTERS}]{{{MIN_LABEL_NAME_CHARACTERS},{MAX_LABEL_NAME_CHARACTERS}}}", re.ASCII)
_VALUE: Final = re.compile(f"[{TOKEN_CHARACTERS}]{{0,{MAX_LABEL_VALUE_CHARACTERS}}}", re.ASCII)


def check_labels(labels: Iterable[tuple[str, str]]) -> Labels:
    """Return labels sorted and unique.

    Raises:
        InvalidRequestError: A name or value is invalid, a label has values that exclude each other, a label that it
            needs is missing, or all of them are too long.
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
    _check_types(values)
    size = sum(len(name) + len(value) for name, value in checked)
    check_at_most(
        size,
        MAX_JOURNAL_LABELS_BYTES,
        "labels",
        "the labels of a journal have {value} bytes",
        advice=": use fewer or shorter ones",
    )
    return checked


def _check_types(values: Mapping[str, Sequence[str]]) -> None:
    """Check the labels that describe the messages of a journal. Journals of earlier versions may break these rules."""
    for name, needed in _NEEDED.items():
        if name in values and needed not in values:
            raise InvalidRequestError(
                f"label '{name}' is set without label '{needed}': set both, or neither", field="labels"
            )
    for value in values.get(_CONTENT_TYPE, ()):
        if not _MEDIA_TYPE.fullmatch(value):
            raise InvalidRequestError(
                f"the value '{shown(value)}' of label '{_CONTENT_TYPE}' is not a media type: expected one such as "
                "'application/x-ndjson'",
                field="labels",
            )


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

    def matches(self, labels: Labels, journal: str = "") -> bool:
        """Return whether one of ``labels``, which are sorted, or an implicit one of ``journal`` matches.

        Takes a binary search, whatever the number of labels.
        """
        if journal and self.name == META_NAME:
            return not self.value or self._covers(journal)
        if journal and self.name == META_PREFIX:
            return self._matches_path_of(journal)
        at = bisect_left(labels, (self.name, self.value))
        # An empty value is the smallest, and values with a common beginning follow each other.
        return at < len(labels) and labels[at][0] == self.name and (not self.value or self._covers(labels[at][1]))

    def _covers(self, value: str) -> bool:
        return value == self.value or (self.is_prefix and value.startswith(self.value))

    def _matches_path_of(self, journal: str) -> bool:
        if not journal.startswith(self.value):
            return False
        if self.is_prefix or not self.value:
            return journal.find("/", max(0, len(self.value) - 1)) >= 0
        return self.value.endswith("/")


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects journals. Without terms it selects every journal.

    Attributes:
        include: For each name among them, at least one term with that name must match.
        exclude: None of them may match.
    """

    include: tuple[Term, ...] = ()
    exclude: tuple[Term, ...] = ()

    def check(self) -> None:
        """Raise InvalidRequestError if a list has both a term for any value of a label and one for a certain value."""
        for terms in (self.include, self.exclude):
            any_value = {term.name for term in terms if not term.value}
            for term in terms:
                if term.value and term.name in any_value:
                    raise InvalidRequestError(
                        f"the selector has a term for any value of label '{shown(term.name)}' and one for "
                        f"'{shown(term.value)}', which contradict each other: remove one",
                        field="selector",
                    )

    @property
    def terms(self) -> int:
        """Number of its terms, each of which is a look at a journal."""
        return len(self.include) + len(self.exclude)

    def matches(self, labels: Labels, journal: str = "") -> bool:
        """Return whether the selector matches a journal called ``journal`` with ``labels``, which are sorted."""
        if any(term.matches(labels, journal) for term in self.exclude):
            return False
        matched = {term.name for term in self.include if term.matches(labels, journal)}
        return all(term.name in matched for term in self.include)

    def journals(self) -> list[NamePattern] | None:
        """Return patterns that cover each journal that the selector can match; None if any journal may match."""
        for label in (META_NAME, META_PREFIX):
            terms = [term for term in self.include if term.name == label]
            if terms and all(term.value for term in terms):
                return [NamePattern(term.value, term.is_prefix or label == META_PREFIX) for term in terms]
        return None


EVERY_JOURNAL: Final = Selector()
