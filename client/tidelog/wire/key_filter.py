"""Selects messages of a batch by their keys. Works on the column of keys; only a message that is found costs Python."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tidelog.wire.column_parts import runs_of, selected
from tidelog.wire.columns import Columns, bits, numbers


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Messages with a key that is ``key``, or begins with it.

    Attributes:
        key: The key, or its beginning. An empty beginning selects each message with a key.
        is_prefix: Whether longer keys match.
    """

    key: bytes
    is_prefix: bool

    @classmethod
    def of(cls, key: bytes | None, key_prefix: bytes | None) -> Self | None:
        """Return the filter of the options of a scan; None without one.

        Raises:
            ValueError: Both are set.
            TypeError: One is not bytes.
        """
        if key is not None and key_prefix is not None:
            raise ValueError("key and key_prefix are both set, expected one: a key that matches both has this prefix")
        if key is not None:
            return cls(_checked("key", key), is_prefix=False)
        return None if key_prefix is None else cls(_checked("key_prefix", key_prefix), is_prefix=True)

    def select(self, columns: Columns, ticks: Sequence[int]) -> tuple[Columns, Sequence[int]] | None:
        """Return the columns and ticks of the messages that match; None without any."""
        runs = self.runs(columns)
        if not runs:
            return None
        if runs == [(0, columns.count)]:
            return columns, ticks
        if len(runs) == 1:
            [(begin, end)] = runs
            return selected(columns, runs), ticks[begin:end]
        return selected(columns, runs), [tick for begin, end in runs for tick in ticks[begin:end]]

    def runs(self, columns: Columns) -> list[tuple[int, int]]:
        """Return the indices of the messages that match, in order, as ranges of consecutive ones."""
        if not columns.key_offsets:
            return []
        bounds = numbers("i", columns.key_offsets)
        found = self._found(bytes(columns.keys), bounds) if self.key else self._with_empty_key(bounds)
        if columns.key_validity:
            valid = bits(columns.key_validity)
            found = [index for index in found if valid[index]]
        return runs_of(found)

    def _with_empty_key(self, bounds: "array[int]") -> list[int]:
        if self.is_prefix:
            return list(range(len(bounds) - 1))
        return [index for index in range(len(bounds) - 1) if bounds[index] == bounds[index + 1]]

    def _found(self, keys: bytes, bounds: "array[int]") -> list[int]:
        """Return the indices of keys that match a filter that is not empty.

        Why a search in all keys together: it passes over those that do not match without Python.
        """
        key, size = self.key, len(self.key)
        found: list[int] = []
        place = keys.find(key, bounds[0])
        while place >= 0:
            index = bisect_right(bounds, place) - 1
            begin, end = bounds[index], bounds[index + 1]
            if place == begin and (size <= end - begin if self.is_prefix else size == end - begin):
                found.append(index)
            # Whatever else this key contains, only its beginning could match.
            place = keys.find(key, end)
        return found


def _checked(name: str, key: object) -> bytes:
    if not isinstance(key, bytes):
        hint = ": encode it, as with .encode()" if isinstance(key, str) else ""
        raise TypeError(f"{name} is of type {type(key).__name__}, expected bytes{hint}")
    return key
