"""Batches that a scan delivers."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, overload

from tidelog.message import StoredMessage
from tidelog.tick import Tick, time_of
from tidelog.wire import columns as _columns
from tidelog.wire.columns import Columns

if TYPE_CHECKING:
    import pyarrow


class Batch(Sequence[StoredMessage]):
    """Consecutive messages of one vchannel, at least one, in tick order: a sequence of StoredMessage.

    Each column is decoded on first access. ``payloads`` and ``ticks`` are the fast way to read many messages;
    ``columns`` and ``to_arrow`` avoid an object per message.

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

    def to_arrow(self) -> "pyarrow.RecordBatch":
        """Return the batch as an Arrow record batch, without copying payloads, keys or properties.

        Columns: vchannel (string), tick (int64), timestamp (microseconds, UTC), type (int64), key (binary, NULL for
        none), payload (binary), properties (map<string, string>), event_time (microseconds, UTC, NULL for none).

        Raises:
            ImportError: pyarrow is not installed.
        """
        from tidelog.wire.arrow import record_batch

        return record_batch(self.vchannel, self.columns, self.ticks)

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


def columns_from_arrow(batch: "pyarrow.RecordBatch", *, first_row: int = 0) -> Columns:
    """Return the messages of ``batch`` as columns, without an object per message.

    Reads the column ``payload`` (binary or string) and, if present, ``key`` (binary or string, NULL for none), ``type``
    (integer of 32 bits, signed or unsigned, in a column of any width; NULL for 0), ``properties`` (map of strings, NULL
    for none) and ``event_time`` (timestamp with time zone, rounded down to milliseconds; NULL for none). Other columns
    are ignored, such as those that ``Batch.to_arrow`` adds. Errors count the rows from ``first_row``.

    Raises:
        ValueError: The batch has no rows, no column ``payload``, a NULL payload, a NULL property value, a type that 32
            bits cannot hold, or a column of another type.
        ImportError: pyarrow is not installed.
    """
    from tidelog.wire.arrow import columns_of

    return columns_of(batch, first_row)
