"""Tables of the log store: rows of features that change atomically with entries.

A feature defines a table once, in its module ``rows``: a subclass of ``Table`` and one instance. The store
writes and reads the rows of all tables in the same way, the start-up gate checks each row through its table, and a
restore to a tick asks the table what a row was at that tick. The store itself knows no feature.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from struct import error as struct_error
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

import tidelog_server
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.core.transactions import TxnPlace
from tidelog_server.storage.format.keys import OWN_INDEX_KEY_BYTES
from tidelog_server.storage.format.seals import sealed, unsealed

Key = TypeVar("Key")
Value = TypeVar("Value")

INDEX: Final = "index"
"""The family of tables that have no family of their own."""
_TABLE_TAG: Final = b"r"
# Above every key that begins with the greatest vchannel id: keys end with at most 64 bytes of text.
_ABOVE_ALL: Final = b"\xff" * 128
_tables: Final[dict[int, "Table[Any, Any]"]] = {}


class Row(NamedTuple):
    """A change of a row, made by ``Table.row`` or ``Table.gone``; without a value it is deleted."""

    table: "Table[Any, Any]"
    key: Any
    value: Any


class Facts(NamedTuple):
    """What a row is checked against.

    Attributes:
        last_tick: Greatest tick in the store.
        last_ticks: Last tick ever written on each vchannel, by id.
        staged: Last tick of each transaction with staged batches, by place; 0 while it is not committed.
    """

    last_tick: int
    last_ticks: Mapping[int, int]
    staged: Mapping[TxnPlace, int]


@dataclass(frozen=True, slots=True)
class OldForm(Generic[Key, Value]):
    """Where and how earlier servers stored rows of a table.

    They are read, and deleted when their row changes. Nothing writes them.

    Attributes:
        family: Column family.
        prefix: Beginning of their keys.
        has: Returns whether a key of the family is that of such a row.
        decode: Returns key and value of a row from its key and body; the value None means the same as no row. Raises
            like ``Table.decode``.
    """

    family: str
    prefix: bytes
    has: Callable[[bytes], bool]
    decode: Callable[[bytes, bytes], tuple[Key, Value | None]]


class Table(ABC, Generic[Key, Value]):
    """A table of the log store.

    Attributes:
        number: Identifies the table, from 1; on disk, so never reuse one.
        name: What the rows are, for errors.
        family: Column family of the rows.
        prefix: Beginning of their keys: ``r`` and the number, unless the table is older than that rule.
        key_bytes: Length of the keys behind the prefix; 0 in a family of the table's own, where it varies.
        is_of_vchannel: True if the keys begin, behind the prefix, with the id of a vchannel, u32. Then the rows are
            deleted with the vchannel.
        since_format: First format of the data folder that has such rows; older servers refuse the folder.
        old: An earlier form of the rows.
    """

    number: ClassVar[int]
    name: ClassVar[str]
    family: ClassVar[str] = INDEX
    prefix: ClassVar[bytes]
    key_bytes: ClassVar[int] = 0
    is_of_vchannel: ClassVar[bool] = False
    since_format: ClassVar[int] = 2
    old: OldForm[Key, Value] | None = None

    def __init_subclass__(cls) -> None:
        if "prefix" not in cls.__dict__:
            cls.prefix = _TABLE_TAG + bytes((cls.number,))

    def __init__(self) -> None:
        """Register the table."""
        assert self.number not in _tables, f"table {self.number} is {_tables[self.number].name}"
        # Length and beginning of a key of the index name its table, and the store's own rows have other lengths.
        assert (self.family == INDEX) == bool(self.key_bytes)
        assert len(self.prefix) + self.key_bytes not in OWN_INDEX_KEY_BYTES or self.family != INDEX
        assert all((self.family, self.prefix) != (other.family, other.prefix) for other in _tables.values())
        _tables[self.number] = self

    @abstractmethod
    def encode_key(self, key: Key) -> bytes:
        """Return the key behind the prefix."""

    @abstractmethod
    def encode(self, key: Key, value: Value) -> bytes:
        """Return the body of a row, which begins with its version, u8."""

    @abstractmethod
    def decode(self, key: bytes, body: bytes) -> tuple[Key, Value]:
        """Return key and value of a row from its key, without the prefix, and its body.

        Raises:
            DataLossError: See ``check_version``.
            ValueError, struct.error: The row is not one of this table.
        """

    def last_tick_of(self, value: Value) -> int:
        """Return the tick up to which a row of a vchannel supposes messages there; 0 for none."""
        return NO_TICK

    def check(self, key: Key, value: Value, facts: Facts) -> None:
        """Check a row against the rest of the store. Raises DataLossError."""

    @abstractmethod
    def until(self, value: Value, tick: int) -> Value | None:
        """Return the value that a row had at ``tick``, as far as it is known; None without one."""

    def row(self, key: Key, value: Value) -> Row:
        """Return the change that sets a row."""
        return Row(self, key, value)

    def gone(self, key: Key) -> Row:
        """Return the change that deletes a row."""
        return Row(self, key, None)

    def changes(self, values: Mapping[Key, Value | None]) -> list[Row]:
        """Return the changes that set several rows, or delete those whose value is None."""
        return [Row(self, key, value) for key, value in values.items()]

    def has(self, key: bytes) -> bool:
        """Return whether a key of the family is that of a row of this table, unless an old form of another has it."""
        return not self.key_bytes or (len(key) == len(self.prefix) + self.key_bytes and key.startswith(self.prefix))

    def key_of(self, key: Key) -> bytes:
        """Return the key of a row in its family."""
        return self.prefix + self.encode_key(key)

    def vchannel_range(self, vchannel_id: int) -> tuple[bytes, bytes]:
        """Return the half-open range of the keys of a vchannel's rows; only of a table whose rows belong to one."""
        begin_key = self.prefix + vchannel_id.to_bytes(4)
        return begin_key, end_of_prefix(begin_key) or _ABOVE_ALL

    def vchannel_id_of(self, key: Key) -> int:
        """Return the id of the vchannel to which a row belongs; only of a table whose rows do."""
        assert self.is_of_vchannel
        return int.from_bytes(self.encode_key(key)[:4])

    def pack(self, key: Key, value: Value) -> tuple[bytes, bytes]:
        """Return a row: its key in the family, and its value."""
        row_key = self.key_of(key)
        return row_key, sealed(row_key, self.encode(key, value))

    def unpack(self, row_key: bytes, value: bytes) -> tuple[Key, Value]:
        """Return key and value of a row. Raises DataLossError."""
        at = len(self.prefix)
        return self._unpacked(row_key, value, lambda body: self.decode(row_key[at:], body))

    def unpack_old(self, row_key: bytes, value: bytes) -> tuple[Key, Value | None]:
        """Return key and value of a row in the old form. Raises DataLossError."""
        old = self.old
        assert old is not None
        return self._unpacked(row_key, value, lambda body: old.decode(row_key, body))

    def _unpacked(self, row_key: bytes, value: bytes, decode: "Callable[[bytes], _Result]") -> "_Result":
        body = unsealed(row_key, value)
        if body is None:
            raise self._damaged(row_key)
        try:
            return decode(body)
        except (ValueError, struct_error):
            raise self._damaged(row_key) from None

    def _damaged(self, row_key: bytes) -> DataLossError:
        place = {"vchannel_id": int.from_bytes(row_key[len(self.prefix) :][:4])} if self.is_of_vchannel else {}
        return DataLossError(
            f"the row of {self.name} with the key {row_key!r} is damaged: restore the data folder from a backup",
            row=self.name, key=row_key.hex(), **place,
        )  # fmt: skip


_Result = TypeVar("_Result")


@cache
def tables() -> Sequence[Table[Any, Any]]:
    """Return the tables of all features, by number.

    They are found by name, in the module ``rows`` of each package of the server that has one. So every program that
    opens a store knows all of them, and a new table touches the folder of its feature only.
    """
    for module in Path(tidelog_server.__path__[0]).glob("*/rows.py"):
        import_module(f"{tidelog_server.__name__}.{module.parent.name}.rows")
    return [_tables[number] for number in sorted(_tables)]


@cache
def _claims(family: str) -> Sequence[tuple[Table[Any, Any], Callable[[bytes], bool]]]:
    """Return the tables with rows in a family and how their keys look, old forms first."""
    forms = [(table, table.old) for table in tables() if table.old is not None]
    old = [(table, form.has) for table, form in forms if form.family == family]
    return old + [(table, table.has) for table in tables() if table.family == family]


def table_of(family: str, key: bytes) -> Table[Any, Any]:
    """Return the table of a row in a family, in whatever form. Raises DataLossError for a row of no table."""
    for table, has in _claims(family):
        if has(key):
            return table
    shown = key[:16].hex()
    raise DataLossError(f"{family} has a row with the unknown key {shown}: use the server that wrote it", key=shown)


def end_of_prefix(prefix: bytes) -> bytes | None:
    """Return the first key above all keys that begin with ``prefix``; None without such a key."""
    bare = prefix.rstrip(b"\xff")
    return bare[:-1] + bytes((bare[-1] + 1,)) if bare else None
