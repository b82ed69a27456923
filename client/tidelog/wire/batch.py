"""Batches that a scan delivers."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, overload

from tidelog.message import StoredMessage
from tidelog.tick import Tick, time_of
from tidelog.wire import columns as _columns
from tidelog.wire.columns import Columns
from tidelog.wire.html import MAX_ROWS, html_table
from tidelog.wire.optional import need

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class Batch(Sequence[StoredMessage]):
    """Consecutive messages of one vchannel, at least one, in tick order: a sequence of StoredMessage.

    Each column is decoded on first access. ``payloads`` and ``ticks`` are the fast way to read many messages;
    ``columns`` and ``to_arrow`` avoid an object per message. Libraries with the Arrow PyCapsule interface accept a
    batch as it is, such as ``pyarrow.record_batch(batch)``.

    Attributes:
        vchannel: Vchannel of the messages.
        columns: Columns as stored in the log, with verified CRC.
        ticks: Tick of each message: a range, or a list if a filter removed messages in the middle.
        txn_id: Id of the messages' transaction; None without one. The batches of a transaction are consecutive.
        broadcast_id: Id of the broadcast if the batch is one, which then has one message; else None. See ``ack_batch``.
    """

    def __init__(
        self,
        vchannel: str,
        columns: Columns,
        ticks: Sequence[int],
        txn_id: int | None = None,
        broadcast_id: int | None = None,
    ) -> None:
        assert columns.count == len(ticks)
        self.vchannel = vchannel
        self.columns = columns
        self.ticks = ticks
        self.txn_id = txn_id
        self.broadcast_id = broadcast_id

    @property
    def first_tick(self) -> Tick:
        """Tick of the first message."""
        return Tick(self.ticks[0])

    @property
    def last_tick(self) -> Tick:
        """Tick of the last message. A scan of this vchannel alone resumes with ``At.after(last_tick)``."""
        return Tick(self.ticks[-1])

    @cached_property
    def payloads(self) -> list[bytes]:
        """Payload of each message."""
        return _columns.decode_payloads(self.columns)

    @cached_property
    def keys(self) -> Sequence[bytes | None]:
        """Key of each message; None without key."""
        return _columns.decode_keys(self.columns)

    @cached_property
    def types(self) -> Sequence[int]:
        """Type of each message."""
        return _columns.decode_types(self.columns)

    @cached_property
    def properties(self) -> Sequence[Mapping[str, str]]:
        """Properties of each message; an empty mapping without properties."""
        return _columns.decode_properties(self.columns)

    @cached_property
    def event_times_ms(self) -> Sequence[int | None]:
        """Event time of each message in milliseconds since the epoch; None without event time."""
        return _columns.decode_event_times_ms(self.columns)

    def to_arrow(self, columns: Sequence[str] | None = None) -> "pyarrow.RecordBatch":
        """Return the batch as an Arrow record batch, without copying payloads, keys or properties.

        The columns are those of the Spark source: channel (string), vchannel (int32, its index), tick (int64),
        timestamp (microseconds, UTC), type (int32, negative from 2^31 on), key (binary, NULL for none), payload
        (binary), properties (map<string, string>), txn_id and broadcast_id (int64, NULL for none), event_time
        (microseconds, UTC, NULL for none).

        Args:
            columns: Names of the columns to return, in this order; default None, all.

        Raises:
            ValueError: There is no column of a name.
            ImportError: pyarrow is not installed.
        """
        return arrow_from_batches([self], columns)

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the batch as a pandas frame, with the columns of ``to_arrow``.

        Raises:
            ImportError: pandas or pyarrow is not installed.
        """
        need("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "polars.DataFrame":
        """Return the batch as a Polars frame, with the columns of ``to_arrow``.

        Raises:
            ImportError: Polars or pyarrow is not installed.
        """
        frame: polars.DataFrame = need("polars").from_arrow(self.to_arrow())
        return frame

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """Return the capsules of the Arrow PyCapsule interface, with the columns of ``to_arrow``.

        A requested schema selects columns by their names, and their types.
        """
        need("pyarrow")
        from tidelog.wire.arrow import requested

        names, schema = requested(requested_schema)
        batch = self.to_arrow(names)
        capsules: tuple[object, object] = (batch if schema is None else batch.cast(schema)).__arrow_c_array__()
        return capsules

    def __len__(self) -> int:
        return self.columns.count

    @overload
    def __getitem__(self, index: int) -> StoredMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[StoredMessage]: ...
    def __getitem__(self, index: int | slice) -> StoredMessage | list[StoredMessage]:
        if isinstance(index, slice):
            return [self._message(i) for i in range(*index.indices(len(self)))]
        return self._message(range(len(self))[index])

    def __iter__(self) -> Iterator[StoredMessage]:
        return map(self._message, range(len(self)))

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} messages of {self.vchannel}, ticks {self.ticks[0]} to {self.ticks[-1]}>"

    def _repr_html_(self) -> str:
        shown = self[:MAX_ROWS]
        rows = ((each.tick, each.tick.time, each.type, each.key, each.payload, dict(each.properties)) for each in shown)
        names = ("tick", "time", "type", "key", "payload", "properties")
        return html_table(f"{len(self)} messages of {self.vchannel}", names, rows, len(self))

    def _message(self, index: int) -> StoredMessage:
        event_time_ms = self.event_times_ms[index]
        return StoredMessage(
            payload=self.payloads[index],
            key=self.keys[index],
            type=self.types[index],
            properties=self.properties[index],
            event_time=None if event_time_ms is None else time_of(event_time_ms),
            vchannel=self.vchannel,
            tick=Tick(self.ticks[index]),
            txn_id=self.txn_id,
            broadcast_id=self.broadcast_id,
        )


def polars_frame(table: "pyarrow.Table") -> "polars.DataFrame":
    """Return a table as a frame that shares its memory.

    Raises:
        ImportError: Polars is not installed.
    """
    from tidelog.wire.arrow import with_shared_views

    # Polars would otherwise copy the chunks into one.
    frame: polars.DataFrame = need("polars").from_arrow(with_shared_views(table), rechunk=False)
    return frame


def arrow_from_batches(batches: Sequence[Batch], columns: Sequence[str] | None = None) -> "pyarrow.RecordBatch":
    """Return the messages of ``batches`` as one record batch, with the columns of ``Batch.to_arrow``.

    One batch shares its memory with the record batch; several are joined, which copies them.

    Args:
        batches: Batches, at least one, of any vchannels.
        columns: Names of the columns to return, in this order; default None, all.

    Raises:
        ValueError: There are no batches, or no column of a name.
        ImportError: pyarrow is not installed.
    """
    if not batches:
        raise ValueError("there are no batches, expected at least one")
    need("pyarrow")
    from tidelog.wire.arrow import record_batch, schema_of

    return record_batch(batches, schema_of(columns))


def arrow_schema() -> "pyarrow.Schema":
    """Return the schema of ``Batch.to_arrow``.

    Raises:
        ImportError: pyarrow is not installed.
    """
    need("pyarrow")
    from tidelog.wire.arrow import SCHEMA

    return SCHEMA


def columns_from_arrow(batch: "pyarrow.RecordBatch", *, first_row: int = 0) -> Columns:
    """Return the messages of ``batch`` as columns, without an object per message.

    Reads the column ``payload`` (binary or string) and, if present, ``key`` (binary or string, NULL for none), ``type``
    (integer of 32 bits, signed or unsigned, in a column of any width; NULL for 0), ``properties`` (map of strings, or
    list of structs with the strings ``key`` and ``value``; NULL for none) and ``event_time`` (timestamp with time zone,
    rounded down to milliseconds; NULL for none). Other columns
    are ignored, such as those that ``Batch.to_arrow`` adds. Errors count the rows from ``first_row``.

    Raises:
        ValueError: The batch has no rows, no column ``payload``, a NULL payload, a NULL property value, a type that 32
            bits cannot hold, or a column of another type.
        ImportError: pyarrow is not installed.
    """
    need("pyarrow")
    from tidelog.wire.arrow_in import columns_of

    return columns_of(batch, first_row)
