"""Encoding of read responses: pages as columns or rows, filters, and validation that all reads share."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from tidelog.v1 import message_pb2, wal_service_pb2
from tidelog.wire import protowire, scan_response
from tidelog_server.core.entries import MIXED_TYPES
from tidelog_server.core.errors import DataLossError, InvalidRequestError, WalNameMismatchError
from tidelog_server.core.message_checks import check_at_most, check_within
from tidelog_server.core.ticks import MAX_TICK, Tick, decode_message_id
from tidelog_server.log.scan.positions import Start, StartAll, StartAtTime, StartFrom, StartLatest
from tidelog_server.log.scan.scanner import Page, Piece
from tidelog_server.rpc.columns.rows import decode_rows
from tidelog_server.rpc.columns.view import ColumnsView, Indices, select

MAX_FILTER_TYPES: Final = 1_024
MAX_FILTERS_PER_SCAN: Final = 16

# Maximum rows of a response, which the event loop builds without a pause.
_MAX_ROWS: Final = 1_000


class Filters:
    """The filters of a scan, combined: a message passes if it passes all of them."""

    def __init__(self, filters: Sequence[wal_service_pb2.DeliverFilter]) -> None:
        check_at_most(len(filters), MAX_FILTERS_PER_SCAN, "filters", "the scan has {value} filters")
        self.first_tick = 0
        self.message_types: frozenset[int] | None = None
        # Types for broadcasts: only filters with ``hides_broadcasts`` hide them.
        self.broadcast_types: frozenset[int] | None = None
        for wanted in filters:
            match wanted.WhichOneof("filter"):
                case "tick_gt":
                    self.first_tick = max(self.first_tick, check_tick(wanted.tick_gt, "tick_gt") + 1)
                case "tick_gte":
                    self.first_tick = max(self.first_tick, check_tick(wanted.tick_gte, "tick_gte"))
                case "message_types":
                    self._add_types(wanted.message_types)
                case _:
                    raise InvalidRequestError("a deliver filter is empty or unknown to this server", field="filters")

    def _add_types(self, wanted: wal_service_pb2.MessageTypes) -> None:
        types = wanted.types
        check_within(len(types), 1, MAX_FILTER_TYPES, "message_types", "a type filter names {value} types")
        found = frozenset(types)
        self.message_types = found if self.message_types is None else self.message_types & found
        if wanted.hides_broadcasts:
            self.broadcast_types = found if self.broadcast_types is None else self.broadcast_types & found

    def indices(self, piece: Piece, view: ColumnsView) -> Indices:
        """Return the indices of the messages of ``piece`` that pass."""
        indices = np.arange(piece.begin, piece.end, dtype=np.int64)
        if self.message_types is None or piece.message_type != MIXED_TYPES:
            return indices
        types = view.types()[piece.begin : piece.end]
        return indices[np.isin(types, np.array(sorted(self.message_types), np.uint32))]

    def passes_whole(self, piece: Piece) -> bool:
        """Return whether every message of the entry passes, so that its bytes are sent unchanged."""
        is_whole = piece.begin == 0 and piece.end == piece.count
        return is_whole and (self.message_types is None or piece.message_type != MIXED_TYPES)


class ColumnEncoder:
    """Encodes pages as serialised ScanResponses with batches."""

    def __init__(self, names: Sequence[str], filters: Filters) -> None:
        self._names = names
        self._filters = filters

    def responses(self, page: Page) -> Iterator[tuple[bytes, int]]:
        """Yield the response, and the number of messages in it."""
        parts: list[bytes] = []
        messages = 0
        for piece in page.pieces:
            if self._filters.passes_whole(piece):
                parts += scan_response.entry_parts(
                    piece.source, piece.base_tick, b"", piece.columns, piece.txn_id, broadcast_id=piece.broadcast_id
                )
                messages += piece.count
            else:
                messages += self._cut(piece, parts)
        yield scan_response.scan_response(parts, page.watermark, is_caught_up=page.is_caught_up), messages

    def _cut(self, piece: Piece, parts: list[bytes]) -> int:
        view = _verified(piece, self._names)
        indices = self._filters.indices(piece, view)
        if not len(indices):
            return 0
        base_tick = piece.base_tick + int(indices[0])
        deltas = indices - indices[0]
        is_run = int(deltas[-1]) == len(indices) - 1
        tick_deltas = b"" if is_run else deltas.astype("<u4").tobytes()
        columns = select(view, indices)
        parts += scan_response.entry_parts(
            piece.source, base_tick, tick_deltas, columns, piece.txn_id, broadcast_id=piece.broadcast_id
        )
        return len(indices)


class RowEncoder:
    """Encodes pages as serialised ScanResponses with rows, which are several times as large as columns."""

    def __init__(self, names: Sequence[str], filters: Filters, max_bytes: int) -> None:
        self._names = names
        self._filters = filters
        self._max_bytes = max_bytes

    def responses(self, page: Page) -> Iterator[tuple[bytes, int]]:
        """Yield responses, each with the number of messages in it; the last one has the page's watermark."""
        response, size_bytes = wal_service_pb2.ScanResponse(), 0
        for row in self._rows(page):
            if size_bytes >= self._max_bytes or len(response.rows) >= _MAX_ROWS:
                yield response.SerializeToString(), len(response.rows)
                response, size_bytes = wal_service_pb2.ScanResponse(), 0
            response.rows.append(row)
            size_bytes += row.ByteSize()
        response.watermark, response.caught_up = page.watermark, page.is_caught_up
        yield response.SerializeToString(), len(response.rows)

    def _rows(self, page: Page) -> Iterator[message_pb2.Row]:
        for piece in page.pieces:
            view = _verified(piece, self._names)
            indices = self._filters.indices(piece, view)
            name = self._names[piece.source]
            for begin in range(0, len(indices), _MAX_ROWS):
                yield from decode_rows(
                    view, indices[begin : begin + _MAX_ROWS], piece.base_tick, name, piece.txn_id,
                    broadcast_id=piece.broadcast_id,
                )  # fmt: skip


def _verified(piece: Piece, names: Sequence[str]) -> ColumnsView:
    """Return a view of stored columns after checking their CRC, because slicing computes a new CRC."""
    try:
        view = ColumnsView.parse(piece.columns)
    except protowire.WireFormatError as error:
        raise _damaged(piece, names) from error
    if view.compute_crc32c() != view.crc32c or view.count != piece.count:
        raise _damaged(piece, names)
    return view


def _damaged(piece: Piece, names: Sequence[str]) -> DataLossError:
    name = names[piece.source]
    return DataLossError(
        f"the batch at tick {piece.base_tick} of {name} is damaged: its CRC-32C does not match",
        vchannel=name,
        tick=piece.base_tick,
    )


def start_of(policy: wal_service_pb2.DeliverPolicy, wal_name: str) -> Start:
    """Return the start of ``policy``; ``wal_name`` is the kind of the log store.

    Raises:
        InvalidRequestError: The policy is unknown, or its tick is invalid.
        WalNameMismatchError: The policy has a message id of another kind of store.
    """
    match policy.WhichOneof("start"):
        case None | "all":
            return StartAll()
        case "latest":
            return StartLatest()
        case "from_tick":
            return StartFrom(check_tick(policy.from_tick, "from_tick"))
        case "after_tick":
            return StartFrom(check_tick(policy.after_tick, "after_tick") + 1, is_after=True)
        case "from_message_id":
            return StartFrom(_tick_of(policy.from_message_id, wal_name))
        case "after_message_id":
            return StartFrom(_tick_of(policy.after_message_id, wal_name) + 1, is_after=True)
        case "from_time_ms":
            return StartAtTime(policy.from_time_ms)
        case _:
            raise InvalidRequestError("the deliver policy is unknown to this server", field="policy")


def _tick_of(message_id: bytes, wal_name: str) -> Tick:
    tick = decode_message_id(message_id)
    if tick is None:
        raise WalNameMismatchError(message_id, wal_name=wal_name)
    return tick


def wants_rows(scan_format: int) -> bool:
    """Return whether messages are sent as rows. Raises InvalidRequestError."""
    if scan_format not in wal_service_pb2.ScanFormat.values():
        raise InvalidRequestError(f"scan format {scan_format} is unknown: use 1 (rows) or 2 (columns)", field="format")
    return scan_format != wal_service_pb2.SCAN_FORMAT_COLUMNS


def check_tick(tick: int, name: str) -> int:
    """Return ``tick`` if it is at most MAX_TICK. Raises InvalidRequestError."""
    if tick > MAX_TICK:
        raise InvalidRequestError(f"{name} is {tick}, above the greatest possible tick {MAX_TICK}", field=name)
    return tick


def bounded(value: int, default: int, minimum: int, maximum: int, name: str) -> int:
    """Return ``value``, or ``default`` for 0. Raises InvalidRequestError if it is not in [minimum, maximum]."""
    if value == 0:
        return default
    check_within(value, minimum, maximum, name, advice=", or 0")
    return value
