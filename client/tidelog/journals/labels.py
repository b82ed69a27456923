"""Labels of journals: names with one or several values, as in Gazette's label sets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

CONTENT_TYPE_LABEL: Final = "content-type"


@dataclass(frozen=True, slots=True)
class LabelSet(Mapping[str, tuple[str, ...]]):
    """Labels by name; the values of a name are sorted and unique.

    Attributes:
        labels: ``(name, value)``, sorted and unique.
    """

    labels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, labels: Mapping[str, str | tuple[str, ...]]) -> "LabelSet":
        """Return the labels of a mapping whose values are one value or several."""
        pairs = {
            (name, value)
            for name, values in labels.items()
            for value in ((values,) if isinstance(values, str) else values)
        }
        return cls(tuple(sorted(pairs)))

    def value_of(self, name: str) -> str:
        """Return the first value of ``name``, or ``""`` if it is not set."""
        return next((value for each, value in self.labels if each == name), "")

    def __getitem__(self, name: str) -> tuple[str, ...]:
        values = tuple(value for each, value in self.labels if each == name)
        if not values:
            raise KeyError(name)
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for name, _ in self.labels))

    def __len__(self) -> int:
        return len({name for name, _ in self.labels})


@dataclass(frozen=True, slots=True)
class LabelTerm:
    """Matches labels called ``name``.

    Attributes:
        name: Name of the label, or ``name`` for the journal's name, or ``prefix`` for the paths above it.
        value: Its value; empty for any.
        is_prefix: True if its value only has to begin with ``value``.
    """

    name: str
    value: str = ""
    is_prefix: bool = False


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Selects journals by their labels. Without terms it selects every journal.

    Attributes:
        include: For each name among them, at least one term with that name must match.
        exclude: None of them may match.
    """

    include: tuple[LabelTerm, ...] = ()
    exclude: tuple[LabelTerm, ...] = ()
