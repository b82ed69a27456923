"""Snapshots of a state in pages: each is an event of its log. Pure. See docs/reference/format.md."""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import KIB

PAGE_BYTES: Final = 512 * KIB
"""Maximum size of the part of a snapshot in one event."""
# Number of the page, number of pages.
_PAGE: Final = struct.Struct("<II")


class Page(NamedTuple):
    """A page of a snapshot: its number, from 0, the number of pages, and its part of the snapshot."""

    number: int
    pages: int
    content: bytes


class Frozen:
    """A state as it was, to be encoded in pages one after another: a large one would block the event loop for long.

    Attributes:
        size_bytes: Size of the snapshot.
        pages: Number of its pages, at least 1.
        parts: What is not encoded yet, in parts.
    """

    def __init__(self, size_bytes: int, parts: Iterator[bytes | memoryview]) -> None:
        self.size_bytes = size_bytes
        self.pages = max(1, -(-size_bytes // PAGE_BYTES))
        self.parts = parts
        self._next_number = 0
        self._rest = bytearray()

    def next_page(self) -> bytes:
        """Return the next page, as an event."""
        assert self._next_number < self.pages
        rest = self._rest
        while len(rest) < PAGE_BYTES and (part := next(self.parts, None)) is not None:
            rest += part
        page = _PAGE.pack(self._next_number, self.pages) + rest[:PAGE_BYTES]
        del rest[:PAGE_BYTES]
        self._next_number += 1
        return page


def frozen(encoded: bytes) -> Frozen:
    """Return a state that is encoded already."""
    return Frozen(len(encoded), iter((encoded,)))


def decode_page(payload: bytes) -> Page:
    """Parse a page. Raises DataLossError if it is invalid."""
    if len(payload) < _PAGE.size:
        raise DataLossError(f"a page of a snapshot has {len(payload)} bytes: restore the server from a backup")
    number, pages = _PAGE.unpack_from(payload)
    return Page(number, pages, payload[_PAGE.size :])
