"""Names and ids in order, of which a part is found by a binary search. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

_Item = TypeVar("_Item", int, str)
Ranges = list[tuple[int, int]]
"""Half-open ranges of places, sorted; they do not overlap."""


class NamePattern(NamedTuple):
    """One name, or all names that begin with a text.

    Attributes:
        text: The name, or its beginning.
        is_prefix: True if the names only have to begin with ``text``.
    """

    text: str
    is_prefix: bool = False


class SortedItems(Generic[_Item]):
    """A set of items in order. The time to find a part of it is proportional to that part."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[_Item] = ()) -> None:
        self._items: list[_Item] = sorted(set(items))

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[_Item]:
        return iter(self._items)

    def __contains__(self, item: _Item) -> bool:
        at = bisect_left(self._items, item)
        return at < len(self._items) and self._items[at] == item

    def add(self, item: _Item) -> None:
        """Add an item; no effect if it is there."""
        at = bisect_left(self._items, item)
        if at == len(self._items) or self._items[at] != item:
            self._items.insert(at, item)

    def discard(self, item: _Item) -> None:
        """Remove an item; no effect if it is missing."""
        at = bisect_left(self._items, item)
        if at < len(self._items) and self._items[at] == item:
            del self._items[at]

    def after(self, item: _Item) -> Iterator[_Item]:
        """Yield the items that are greater than ``item``, smallest first. The set must not change meanwhile."""
        for at in range(bisect_right(self._items, item), len(self._items)):
            yield self._items[at]


class SortedNames(SortedItems[str]):
    """A set of names in order."""

    __slots__ = ()

    def page(
        self, limit: int, *, prefix: str = "", after: str = "", within: Sequence[Sequence[NamePattern] | None] = ()
    ) -> list[str]:
        """Return the first ``limit`` names that begin with ``prefix`` and are greater than ``after``.

        Args:
            limit: Maximum number of names.
            prefix: Beginning of each name.
            after: A name, which need not be in the set.
            within: Lists of patterns; of each list, one pattern must cover the name. None covers every name.
        """
        begin, end = self._range(NamePattern(prefix, is_prefix=True))
        ranges: Ranges = [(max(begin, bisect_right(self._items, after)), end)]
        for patterns in within:
            if patterns is not None:
                ranges = _common(ranges, _merged(map(self._range, patterns)))
        names: list[str] = []
        for begin, end in ranges:
            names += self._items[begin : min(end, begin + limit - len(names))]
            if len(names) == limit:
                break
        return names

    def _range(self, pattern: NamePattern) -> tuple[int, int]:
        """Return the places of the names that a pattern covers."""
        names, (text, is_prefix) = self._items, pattern
        begin = bisect_left(names, text)
        if is_prefix:
            return begin, bisect_right(names, text, begin, key=lambda name: name[: len(text)])
        return begin, begin + (begin < len(names) and names[begin] == text)


def _merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: Ranges = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def _common(first: Ranges, second: Ranges) -> Ranges:
    """Return what two lists of ranges have in common."""
    common, of_first, of_second = Ranges(), iter(first), iter(second)
    one, other = next(of_first, None), next(of_second, None)
    while one is not None and other is not None:
        begin, end = max(one[0], other[0]), min(one[1], other[1])
        if begin < end:
            common.append((begin, end))
        if one[1] < other[1]:
            one = next(of_first, None)
        else:
            other = next(of_second, None)
    return common
