"""Divides a sequence into pieces of bounded size. Pure."""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import TypeVar

Item = TypeVar("Item")


def in_pieces(
    items: Sequence[Item], size_of: Callable[[Item], int], *, max_bytes: int, max_items: float = inf
) -> Iterator[Sequence[Item]]:
    """Yield ``items`` in order, in pieces within both bounds; an item that is larger is on its own.

    Args:
        items: The items.
        size_of: Returns the size of an item in bytes.
        max_bytes: Maximum size of a piece.
        max_items: Maximum number of items in a piece.
    """
    begin = size_bytes = 0
    for at, item in enumerate(items):
        item_bytes = size_of(item)
        if begin < at and (at - begin == max_items or size_bytes + item_bytes > max_bytes):
            yield items[begin:at]
            begin, size_bytes = at, 0
        size_bytes += item_bytes
    if begin < len(items):
        yield items[begin:]
