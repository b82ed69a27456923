"""Reads what links the entries of a vchannel, many rows at a time."""

from collections.abc import Iterator
from typing import Final

from rocksdict import RdictIter

from tidelog_server.storage.format.codec import Links, unpack_links

_ROWS_AT_ONCE: Final = 1_024
"""Bounds the memory of a walk; an open chunk has at most as many entries."""


def pages_of_links(rows: RdictIter, end_key: bytes) -> Iterator[Links]:
    """Yield the links of the rows from the iterator's place in the log family up to ``end_key``, many at a time.

    Raises:
        DataLossError: A row is damaged.
        Exception: RocksDB's own; call this inside ``engine_errors``.
    """
    keys: list[bytes] = []
    values: list[bytes] = []
    while rows.valid() and (key := rows.key()) < end_key:
        keys.append(key)
        values.append(rows.value())
        rows.next()
        if len(keys) == _ROWS_AT_ONCE:
            yield unpack_links(keys, values)
            keys, values = [], []
    rows.status()
    if keys:
        yield unpack_links(keys, values)


def first_gap(links: Links, previous_tick: int) -> int | None:
    """Return the place of the first entry that does not follow the one before it; None if each does.

    Args:
        links: Entries of one vchannel.
        previous_tick: Last tick of the entry before the first.
    """
    expected = [previous_tick, *links.last_ticks[:-1]]
    if expected == list(links.previous_ticks):
        return None
    return next(
        place for place, ticks in enumerate(zip(expected, links.previous_ticks, strict=True)) if ticks[0] != ticks[1]
    )
