"""Reads the rows of the tables of features, whatever form they have."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.rocksdb.engine import Engine, scan
from tidelog_server.storage.rows import INDEX, Key, Table, Value, end_of_prefix, tables


class StoredRow(NamedTuple):
    """A row of a table.

    Attributes:
        table, key, value: The row.
        old_place: Family and key if it is stored in the old form of the table; None in the present one.
    """

    table: Table[Any, Any]
    key: Any
    value: Any
    old_place: tuple[str, bytes] | None


def rows_of_family(family: str, rows: Iterable[tuple[bytes, bytes]]) -> Iterator[StoredRow]:
    """Yield the rows of tables among the rows of a family; those that mean the same as no row are left out.

    Raises:
        DataLossError: A row is damaged, or of an unknown table.
    """
    old = [(table, table.old) for table in tables() if table.old is not None and table.old.family == family]
    present = [table for table in tables() if table.family == family]
    for key, value in rows:
        for table, form in old:
            if form.has(key):
                if (found := table.unpack_old(key, value)) is not None:
                    yield StoredRow(table, *found, (family, key))
                break
        else:
            for table in present:
                if table.has(key):
                    yield StoredRow(table, *table.unpack(key, value), None)
                    break
            else:
                raise DataLossError(
                    f"{family} has a row with the unknown key {key[:16].hex()}: use the server that wrote it",
                    key=key[:16].hex(),
                )


def load_rows(engine: Engine, table: Table[Key, Value]) -> dict[Key, Value]:
    """Return the rows of a table, by key. Raises DataLossError."""
    found: dict[Key, Value] = {}
    if (old := table.old) is not None:
        for key, value in scan(engine.family(old.family), old.prefix, end_of_prefix(old.prefix)):
            if old.has(key) and (row := table.unpack_old(key, value)) is not None:
                found[row[0]] = row[1]
    others = [other.old for other in tables() if other.old is not None and other.old.family == table.family]
    for key, value in scan(engine.family(table.family), table.prefix, end_of_prefix(table.prefix)):
        if table.has(key) and not any(form.has(key) for form in others):
            found_key, found[found_key] = table.unpack(key, value)
    return found


def stored_rows(engine: Engine, index_rows: Iterable[tuple[bytes, bytes]]) -> Iterator[StoredRow]:
    """Yield the rows of all tables; ``index_rows`` are those in the index. Raises DataLossError."""
    for family in sorted({table.family for table in tables()}):
        of_family = index_rows if family == INDEX else scan(engine.family(family), b"", None)
        yield from rows_of_family(family, of_family)


def old_rows(engine: Engine) -> dict[tuple[Table[Any, Any], Any], tuple[str, bytes]]:
    """Return family and key of the rows that are stored in old forms, by table and key. Raises DataLossError."""
    found: dict[tuple[Table[Any, Any], Any], tuple[str, bytes]] = {}
    for table in tables():
        if (old := table.old) is None:
            continue
        for key, value in scan(engine.family(old.family), old.prefix, end_of_prefix(old.prefix)):
            if old.has(key) and (row := table.unpack_old(key, value)) is not None:
                found[table, row[0]] = old.family, key
    return found
