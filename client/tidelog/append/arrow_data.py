"""Messages that come in columns: Arrow data, and batches of a scan."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.errors import InvalidRequestError
from tidelog.message import Message
from tidelog.wire.batch import Batch
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH, Columns
from tidelog.wire.optional import need

if TYPE_CHECKING:
    from typing_extensions import TypeIs

PIECE_BYTES: Final = 1 << 20
"""Arrow data of any size is divided into batches of about this size."""
_MESSAGES: Final = (bytes, Message, list, tuple)
_ARRAY: Final = "__arrow_c_array__"


class ArrowStream(Protocol):
    """A table of Arrow, pandas, Polars or DuckDB, a reader, a scan of a Client."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class ArrowArray(Protocol):
    """A record batch of Arrow, a batch of a scan."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...


ArrowData = ArrowStream | ArrowArray | Columns
"""Messages in columns: an object with an Arrow C interface, as ``columns_from_arrow`` reads it, or Columns."""


def is_arrow(messages: object) -> "TypeIs[ArrowData]":
    """Return whether ``messages`` are in columns."""
    # First the usual ones: this runs for each append.
    if isinstance(messages, _MESSAGES):
        return False
    return isinstance(messages, Columns) or any(hasattr(messages, name) for name in ("__arrow_c_stream__", _ARRAY))


async def one_batch(data: ArrowData) -> Batch:
    """Return all of ``data`` as one batch.

    Raises:
        InvalidRequestError: It has no rows or more than a batch can hold, or a row is no message.
    """
    if isinstance(data, Batch):
        return data
    if isinstance(data, Columns):
        return unplaced(data)
    return _one_batch(data) if hasattr(data, _ARRAY) else await asyncio.to_thread(_one_batch, data)


async def batches(
    data: ArrowData, max_bytes: int = PIECE_BYTES, *, needs_rows: bool = False
) -> AsyncGenerator[Batch, None]:
    """Yield ``data`` as batches of at most ``max_bytes``.

    A stream is read on a thread: it may wait, also for the event loop of the synchronous clients.

    Raises:
        InvalidRequestError: As ``pieces``; or there are no rows, and there must be some.
    """
    found = pieces(data, max_bytes)
    is_in_memory = isinstance(data, Columns) or hasattr(data, _ARRAY)
    has_rows = False
    while (rows := next(found, None) if is_in_memory else await asyncio.to_thread(next, found, None)) is not None:
        has_rows = True
        yield rows
    if needs_rows and not has_rows:
        raise _empty()


def pieces(data: ArrowData, max_bytes: int = PIECE_BYTES) -> Iterator[Batch]:
    """Yield ``data`` as batches of at most ``max_bytes``; a larger message is one alone.

    Raises:
        InvalidRequestError: A row is no message. All before its piece were yielded.
    """
    if isinstance(data, Batch | Columns):
        yield data if isinstance(data, Batch) else unplaced(data)
        return
    need("pyarrow")
    from tidelog.wire import arrow_in

    first_row = 0
    with _refusing():
        for batch in arrow_in.pieces(data, max_bytes=max_bytes):
            yield unplaced(arrow_in.columns_of(batch, first_row))
            first_row += batch.num_rows


def unplaced(columns: Columns) -> Batch:
    """Return ``columns`` as messages that have no place in the log yet.

    Raises:
        InvalidRequestError: They are no batch.
    """
    if not 1 <= columns.count <= MAX_MESSAGES_PER_BATCH:
        raise InvalidRequestError(
            f"the columns have {columns.count} messages, expected 1 to {MAX_MESSAGES_PER_BATCH}: split them"
        )
    return Batch("", columns, range(columns.count))


def _one_batch(data: ArrowData) -> Batch:
    pyarrow = need("pyarrow")
    from tidelog.wire import arrow_in

    rows, found = 0, []
    with _refusing():
        for batch in arrow_in.record_batches(data):
            rows += batch.num_rows
            if rows > MAX_MESSAGES_PER_BATCH:
                raise InvalidRequestError(
                    f"the table has more than {MAX_MESSAGES_PER_BATCH} rows, and an append is one batch: send it with "
                    "producer.send_many(table), or as a whole with txn.append(vchannel, table)"
                )
            found.append(batch)
        if not found:
            raise _empty()
        return unplaced(arrow_in.columns_of(pyarrow.concat_batches(found)))


def _empty() -> InvalidRequestError:
    return InvalidRequestError("the table has no rows: append at least one")


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except (ValueError, need("pyarrow").ArrowException) as error:
        raise InvalidRequestError(f"the table cannot be appended: {error}") from error
