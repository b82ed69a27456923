"""Routing of rows to vchannels (partitions), in batches of columns.

The column ``vchannel`` selects the vchannel. A row without it goes to the vchannel of its key, by the rule of the
client (``tidelog.partition_keys``). Rows without a key go to one vchannel per batch, round robin.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog import Columns, columns_from_arrow, partition_keys

MAX_ROWS: Final = 10_000
"""The protocol's maximum number of messages per batch."""
TARGET_BYTES: Final = 1 << 20
"""Approximate maximum bytes per batch; a larger message is a batch of its own."""
_MESSAGE_COLUMNS: Final = ("payload", "key", "type", "properties", "event_time")


class Router:
    """Divides the rows of one task; caches the vchannel counts of channels.

    Attributes:
        takes_turns: True if rows were assigned round robin, so a retry may assign them to another vchannel.
    """

    def __init__(self, channel: str, count_vchannels: Callable[[str], int]) -> None:
        """Route to ``channel``, or by the column ``channel`` if it is empty; ``count_vchannels`` asks the server."""
        self._channel = channel
        self._count_vchannels = count_vchannels
        self._counts: dict[str, int] = {}
        self.takes_turns = False
        # Random, so that many small tasks do not all start with the same vchannel.
        self._turn = random.randrange(1 << 16)
        self._rows = 0

    def divide(self, rows: pa.RecordBatch) -> Iterator[tuple[str, Columns]]:
        """Yield vchannels and their part of ``rows``, in the order of the rows.

        Raises:
            ValueError: A row is not a valid message, or its channel is NULL or its vchannel does not exist.
        """
        for channel, part in self._by_channel(rows):
            for index, messages in self._by_vchannel(channel, part):
                for piece in _pieces(messages):
                    yield f"{channel}/{index}", self._encoded(piece, rows)
        self._rows += rows.num_rows

    def _encoded(self, piece: pa.RecordBatch, rows: pa.RecordBatch) -> Columns:
        try:
            return columns_from_arrow(piece)
        except ValueError:
            # Raises the error of the rows as they came: its row is the one of the task.
            columns_from_arrow(rows, first_row=self._rows)
            raise

    def _by_channel(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._channel:
            yield self._channel, rows
            return
        channels = rows.column("channel")
        if channels.null_count:
            raise ValueError(f"the channel of {channels.null_count} of {len(channels)} rows is NULL: set it")
        for channel, part in _groups(rows, channels):
            yield str(channel), part

    def _by_vchannel(self, channel: str, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        count = self._counts.get(channel)
        if count is None:
            count = self._counts[channel] = self._count_vchannels(channel)
        chosen = self._chosen(rows, count)
        messages = rows.select([name for name in _MESSAGE_COLUMNS if name in rows.schema.names])
        if isinstance(chosen, int):
            yield chosen, messages
            return
        for value, part in _groups(messages, chosen):
            index = int(value)
            if not 0 <= index < count:
                raise ValueError(f"a row has the vchannel {index}, expected 0 to {count - 1} for the channel {channel}")
            yield index, part

    def _chosen(self, rows: pa.RecordBatch, count: int) -> int | pa.Array:
        """Return the vchannel index of all rows, or an array with the index of each."""
        names = rows.schema.names
        named = rows.column("vchannel").cast(pa.int64()) if "vchannel" in names else None
        if named is not None and not named.null_count:
            return named
        if count == 1 and named is None:
            return 0
        self._turn += 1
        turn = self._turn % count
        keys = rows.column("key") if "key" in names else None
        self.takes_turns |= count > 1 and _has_unplaced(named, keys)
        if keys is None or keys.null_count == len(keys):
            return turn if named is None else pc.fill_null(named, turn)
        by_key = pc.fill_null(_indices_of(keys, count), turn)
        return by_key if named is None else pc.coalesce(named, by_key)


def _has_unplaced(named: pa.Array | None, keys: pa.Array | None) -> bool:
    """Return whether any row has neither a vchannel nor a key."""
    given = [column.is_valid() for column in (named, keys) if column is not None]
    if not given:
        return True
    placed = given[0] if len(given) == 1 else pc.or_(*given)
    return not pc.all(placed).as_py()


def _indices_of(keys: pa.Array, count: int) -> pa.Array:
    """Return the vchannel of each key; NULL for a NULL key."""
    encoded = keys.dictionary_encode()
    distinct = encoded.dictionary.cast(pa.binary()).to_pylist()
    return pa.array(partition_keys(distinct, count), pa.int64()).take(encoded.indices)


def _groups(rows: pa.RecordBatch, by: pa.Array) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """Yield each value of ``by`` with its rows, in their order."""
    encoded = by.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    if len(values) == 1:
        yield values[0], rows
        return
    for code, value in enumerate(values):
        yield value, rows.filter(pc.equal(encoded.indices, code))


def _pieces(messages: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield slices within MAX_ROWS and TARGET_BYTES; a single larger message is yielded alone."""
    rows = messages.num_rows
    if rows == 1 or (rows <= MAX_ROWS and messages.nbytes <= TARGET_BYTES):
        yield messages
        return
    # Halved by rows, not cut at a fixed number: large messages may be adjacent.
    yield from _pieces(messages.slice(0, rows // 2))
    yield from _pieces(messages.slice(rows // 2))
