"""Scan and PlanScan."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from tidelog import _protowire as protowire
from tidelog.v1 import message_pb2, wal_service_pb2
from tidelog_server.broker.broker import Broker
from tidelog_server.core.entries import MIXED_TYPES
from tidelog_server.core.errors import DataLossError, InvalidRequestError, WalNameMismatchError
from tidelog_server.core.limits import (
    DEFAULT_RESPONSE_BYTES,
    DEFAULT_SPLIT_BYTES,
    DEFAULT_WATERMARK_INTERVAL_MS,
    MAX_FILTER_TYPES,
    MAX_FILTERS_PER_SCAN,
    MAX_RESPONSE_BYTES,
    MAX_SOURCES_PER_SCAN,
    MAX_SPLITS,
    MAX_WATERMARK_INTERVAL_MS,
    MIN_WATERMARK_INTERVAL_MS,
)
from tidelog_server.core.ticks import MAX_TICK, Tick, decode_message_id
from tidelog_server.log.node import LogNode
from tidelog_server.log.planner import PlanRequest
from tidelog_server.log.positions import Start, StartAll, StartAtTime, StartFrom, StartLatest, resolve_start
from tidelog_server.log.scanner import Page, Piece, ScanPlan, ScanSource
from tidelog_server.rpc import wire
from tidelog_server.rpc.calls import Context
from tidelog_server.rpc.columns import ColumnsView, Indices, select
from tidelog_server.rpc.rows import decode_rows

_NO_LIMIT: Final = (1 << 63) - 1
# Rows of one response: what the event loop builds in one go.
_MAX_ROWS: Final = 1_000


class ScanCalls:
    """Hands batches out."""

    def __init__(self, broker: Broker, node: LogNode) -> None:
        self._broker = broker
        self._node = node

    async def scan(self, request: wal_service_pb2.ScanRequest, context: Context) -> None:
        """Stream pages until the end of the scan."""
        filters = _Filters(request.filters)
        sources = self._sources(request, filters)
        plan = _plan(request, filters)
        names = [source.vchannel.name for source in sources]
        encoder: _RowEncoder | _ColumnEncoder = (
            _RowEncoder(names, filters, plan.max_page_bytes)
            if _wants_rows(request.format)
            else _ColumnEncoder(names, filters)
        )
        metrics = self._node.metrics
        async with self._broker.scanner(sources, plan) as scanner:
            async for page in scanner.pages():
                for encoded, messages in encoder.responses(page):
                    await context.write(encoded)
                    metrics.scan_responses.inc()
                    metrics.scan_messages.inc(messages)
                    metrics.scan_bytes.inc(len(encoded))

    async def plan_scan(self, request: wal_service_pb2.PlanScanRequest, _: Context) -> wal_service_pb2.PlanScanResponse:
        """Fix a cut and divide what lies before it."""
        _check_tick(request.begin_tick, "begin_tick")
        _check_tick(request.end_tick, "end_tick")
        if request.min_splits > MAX_SPLITS:
            raise InvalidRequestError(f"min_splits is {request.min_splits}, at most {MAX_SPLITS}", field="min_splits")
        targets = [self._broker.find(name) for name in request.vchannels]
        _check_sources(len(targets), len({vchannel.name for _, vchannel in targets}))
        wanted = PlanRequest(
            request.begin_tick,
            request.end_tick,
            request.min_splits,
            request.max_messages_per_split or _NO_LIMIT,
            request.max_bytes_per_split or DEFAULT_SPLIT_BYTES,
        )
        cut, splits = await self._broker.planner.plan(targets, wanted)
        response = wal_service_pb2.PlanScanResponse(end_tick=cut)
        for (_log, vchannel), found in zip(targets, splits, strict=True):
            for split in found:
                response.splits.add(
                    vchannel=vchannel.name,
                    begin_tick=split.begin_tick,
                    end_tick=split.end_tick,
                    estimated_messages=split.messages,
                    estimated_bytes=split.columns_bytes,
                )
        return response

    def _sources(self, request: wal_service_pb2.ScanRequest, filters: "_Filters") -> list[ScanSource]:
        targets = [self._broker.find(source.vchannel) for source in request.sources]
        _check_sources(len(targets), len({vchannel.name for _, vchannel in targets}))
        oracle = self._node.shared.oracle
        sources = []
        for index, ((log, vchannel), wanted) in enumerate(zip(targets, request.sources, strict=True)):
            start = self._start(wanted.policy if wanted.HasField("policy") else request.policy)
            watermark = log.watermark()
            position = resolve_start(
                start,
                vchannel=vchannel.name,
                trim_tick=vchannel.trim_tick,
                watermark=watermark,
                latest_tick=oracle.now(),
            )
            # A filter is no position: it only skips.
            sources.append(ScanSource(index, log, vchannel, Tick(max(position, filters.first_tick))))
        return sources

    def _start(self, policy: wal_service_pb2.DeliverPolicy) -> Start:
        match policy.WhichOneof("start"):
            case None | "all":
                return StartAll()
            case "latest":
                return StartLatest()
            case "from_tick":
                return StartFrom(_check_tick(policy.from_tick, "from_tick"))
            case "after_tick":
                return StartFrom(_check_tick(policy.after_tick, "after_tick") + 1)
            case "from_message_id":
                return StartFrom(self._tick_of(policy.from_message_id))
            case "after_message_id":
                return StartFrom(self._tick_of(policy.after_message_id) + 1)
            case "from_time_ms":
                return StartAtTime(policy.from_time_ms)
            case _:
                raise InvalidRequestError("the deliver policy is unknown to this server", field="policy")

    def _tick_of(self, message_id: bytes) -> Tick:
        tick = decode_message_id(message_id)
        if tick is None:
            raise WalNameMismatchError(message_id, wal_name=self._node.store.wal_name)
        return tick


class _Filters:
    """The filters of a scan, joined."""

    def __init__(self, filters: Sequence[wal_service_pb2.DeliverFilter]) -> None:
        if len(filters) > MAX_FILTERS_PER_SCAN:
            raise InvalidRequestError(
                f"the scan has {len(filters)} filters, at most {MAX_FILTERS_PER_SCAN} are allowed", field="filters"
            )
        self.first_tick = 0
        self.message_types: frozenset[int] | None = None
        # Of broadcasts: only filters that ask for it hide them.
        self.broadcast_types: frozenset[int] | None = None
        for wanted in filters:
            match wanted.WhichOneof("filter"):
                case "tick_gt":
                    self.first_tick = max(self.first_tick, _check_tick(wanted.tick_gt, "tick_gt") + 1)
                case "tick_gte":
                    self.first_tick = max(self.first_tick, _check_tick(wanted.tick_gte, "tick_gte"))
                case "message_types":
                    self._add_types(wanted.message_types)
                case _:
                    raise InvalidRequestError("a deliver filter is empty or unknown to this server", field="filters")

    def _add_types(self, wanted: wal_service_pb2.MessageTypes) -> None:
        types = wanted.types
        if not 1 <= len(types) <= MAX_FILTER_TYPES:
            raise InvalidRequestError(
                f"a type filter names {len(types)} types, expected 1 to {MAX_FILTER_TYPES}", field="message_types"
            )
        found = frozenset(types)
        self.message_types = found if self.message_types is None else self.message_types & found
        if wanted.hides_broadcasts:
            self.broadcast_types = found if self.broadcast_types is None else self.broadcast_types & found

    def indices(self, piece: Piece, view: ColumnsView) -> Indices:
        """Return the messages of ``piece`` that pass."""
        indices = np.arange(piece.begin, piece.end, dtype=np.int64)
        if self.message_types is None or piece.message_type != MIXED_TYPES:
            return indices
        types = view.types()[piece.begin : piece.end]
        return indices[np.isin(types, np.array(sorted(self.message_types), np.uint32))]

    def passes_whole(self, piece: Piece) -> bool:
        """Tell whether every message of the entry passes, so that its bytes go out as they are."""
        is_whole = piece.begin == 0 and piece.end == piece.count
        return is_whole and (self.message_types is None or piece.message_type != MIXED_TYPES)


class _ColumnEncoder:
    """Pages as serialised ScanResponses with batches."""

    def __init__(self, names: Sequence[str], filters: _Filters) -> None:
        self._names = names
        self._filters = filters

    def responses(self, page: Page) -> Iterator[tuple[bytes, int]]:
        """Yield the response, and the number of messages in it."""
        parts: list[bytes] = []
        messages = 0
        for piece in page.pieces:
            if self._filters.passes_whole(piece):
                parts += wire.entry_parts(
                    piece.source, piece.base_tick, b"", piece.columns, piece.txn_id, broadcast_id=piece.broadcast_id
                )
                messages += piece.count
            else:
                messages += self._cut(piece, parts)
        yield wire.scan_response(parts, page.watermark, is_caught_up=page.is_caught_up), messages

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
        parts += wire.entry_parts(
            piece.source, base_tick, tick_deltas, columns, piece.txn_id, broadcast_id=piece.broadcast_id
        )
        return len(indices)


class _RowEncoder:
    """Pages as serialised ScanResponses with rows, which are several times as large as the columns were."""

    def __init__(self, names: Sequence[str], filters: _Filters, max_bytes: int) -> None:
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
            yield from decode_rows(view, indices, piece.base_tick, name, piece.txn_id, broadcast_id=piece.broadcast_id)


def _verified(piece: Piece, names: Sequence[str]) -> ColumnsView:
    """Return a view of stored columns, after a look at their CRC: they are about to get a new one."""
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


def _plan(request: wal_service_pb2.ScanRequest, filters: _Filters) -> ScanPlan:
    end = request.end.WhichOneof("end")
    if end not in (None, "before_tick", "inside_tick", "watermark", "follow"):
        raise InvalidRequestError("the scan's end is unknown to this server", field="end")
    return ScanPlan(
        ends_at_durable=end in (None, "watermark"),
        end_tick=_check_tick(getattr(request.end, end), end) if end in ("before_tick", "inside_tick") else None,
        message_types=filters.message_types,
        max_page_bytes=_bounded(
            request.max_response_bytes, DEFAULT_RESPONSE_BYTES, 1, MAX_RESPONSE_BYTES, "max_response_bytes"
        ),
        watermark_interval_s=_bounded(
            request.watermark_interval_ms,
            DEFAULT_WATERMARK_INTERVAL_MS,
            MIN_WATERMARK_INTERVAL_MS,
            MAX_WATERMARK_INTERVAL_MS,
            "watermark_interval_ms",
        )
        / 1_000,
        cuts_transactions=end == "inside_tick",
        broadcast_types=filters.broadcast_types,
    )


def _wants_rows(scan_format: int) -> bool:
    if scan_format not in wal_service_pb2.ScanFormat.values():
        raise InvalidRequestError(f"scan format {scan_format} is unknown: use 1 (rows) or 2 (columns)", field="format")
    return scan_format != wal_service_pb2.SCAN_FORMAT_COLUMNS


def _check_sources(count: int, distinct: int) -> None:
    if not 1 <= count <= MAX_SOURCES_PER_SCAN:
        raise InvalidRequestError(
            f"the request names {count} vchannels, expected 1 to {MAX_SOURCES_PER_SCAN}", field="vchannels"
        )
    if distinct < count:
        raise InvalidRequestError("the request names a vchannel twice", field="vchannels")


def _check_tick(tick: int, name: str) -> int:
    if tick > MAX_TICK:
        raise InvalidRequestError(f"{name} is {tick}, above the greatest possible tick {MAX_TICK}", field=name)
    return tick


def _bounded(value: int, default: int, minimum: int, maximum: int, name: str) -> int:
    if value == 0:
        return default
    if not minimum <= value <= maximum:
        raise InvalidRequestError(f"{name} is {value}, expected {minimum} to {maximum}, or 0", field=name)
    return value
