"""Scan and PlanScan."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from tidelog.v1 import wal_service_pb2 as pb
from tidelog_server.channels.directory import Directory
from tidelog_server.channels.vchannels import Vchannels
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import DEFAULT_RESPONSE_BYTES, MAX_RESPONSE_BYTES, MAX_SPLITS, MIB
from tidelog_server.core.message_checks import check_at_most, check_within
from tidelog_server.core.names import shown
from tidelog_server.core.ticks import Tick
from tidelog_server.log.channel_log import ChannelLog, grown_since
from tidelog_server.log.node import LogNode
from tidelog_server.log.scan.planner import PlanRequest, ScanPlanner
from tidelog_server.log.scan.positions import check_start_of_several, resolve_start
from tidelog_server.log.scan.scanner import ScanParameters, ScanSource
from tidelog_server.rpc.columns.pages import (
    ColumnEncoder,
    Filters,
    RowEncoder,
    bounded,
    check_tick,
    start_of,
    wants_rows,
)
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.open_streams import caller_of
from tidelog_server.security.access import current_access

MAX_SOURCES_PER_SCAN: Final = 1_024
DEFAULT_WATERMARK_INTERVAL_MS: Final = 200
MIN_WATERMARK_INTERVAL_MS: Final = 10
MAX_WATERMARK_INTERVAL_MS: Final = 60_000
DEFAULT_SPLIT_BYTES: Final = 64 * MIB

# Names of channels in an error.
_SHOWN_CHANNELS: Final = 3
_NO_LIMIT: Final = (1 << 63) - 1


class ScanCalls:
    """Handlers of Scan and PlanScan."""

    def __init__(self, directory: Directory, vchannels: Vchannels, planner: ScanPlanner, node: LogNode) -> None:
        self._directory = directory
        self._vchannels = vchannels
        self._planner = planner
        self._node = node

    async def scan(self, request: pb.ScanRequest, context: Context) -> None:
        """Stream pages until the end of the scan."""
        filters = Filters(request.filters)
        sources = self._sources(request, filters)
        plan = _plan(request, filters, _whole_channels(request, (source.log for source in sources)))
        names = [source.vchannel.name for source in sources]
        encoder: RowEncoder | ColumnEncoder = (
            RowEncoder(names, filters, plan.max_page_bytes)
            if wants_rows(request.format)
            else ColumnEncoder(names, filters)
        )
        prefix: bytes | None = None
        metrics, access = self._node.metrics, current_access()
        async with self._vchannels.scanner(sources, plan, caller_of(context)) as scanner:
            async for page in scanner.pages():
                if prefix is None:
                    prefix = self._first_fields(sources, plan)
                if page.grown:
                    prefix = (prefix or b"") + pb.ScanResponse(grown=_sizes(page.grown)).SerializeToString()
                for response, messages in encoder.responses(page):
                    # Concatenated serialised messages are one merged message.
                    encoded, prefix = prefix + response if prefix else response, b""
                    size_bytes = len(encoded)
                    await context.write(encoded)
                    # Freed before the next wait: the memory of a waiting scan is not counted.
                    del response, encoded
                    metrics.scan_responses.inc()
                    metrics.scan_messages.inc(messages)
                    metrics.scan_bytes.inc(size_bytes)
                    if access is not None:
                        await access.quota.sent(size_bytes)
                del page

    def _first_fields(self, sources: Sequence[ScanSource], plan: ScanParameters) -> bytes:
        """Return what the first response has for a client that resumes the scan, serialised.

        Ordering: after the scan has begun, so that everything it delivers is before its end.
        """
        response = pb.ScanResponse(created_ticks=[source.log.created_tick for source in sources])
        if plan.ends_at_durable:
            # Ticks of a transaction are allocated together.
            response.end_tick = self._node.shared.oracle.last + 1
        return response.SerializeToString()

    async def plan_scan(self, request: pb.PlanScanRequest, _: Context) -> pb.PlanScanResponse:
        """Choose an end tick, and divide the range before it into splits."""
        check_tick(request.begin_tick, "begin_tick")
        check_tick(request.end_tick, "end_tick")
        check_at_most(request.min_splits, MAX_SPLITS, "min_splits")
        targets = [self._directory.find_to_read(name) for name in request.vchannels]
        _check_sources(len(targets), len({vchannel.name for _, vchannel in targets}))
        if request.created_ticks and len(request.created_ticks) != len(targets):
            raise InvalidRequestError(
                f"the request has {len(request.created_ticks)} created_ticks for {len(targets)} vchannels: expected "
                "one per vchannel, or an empty list",
                field="created_ticks",
            )
        whole = _whole_channels(request, (log for log, _ in targets))
        for (log, _vchannel), created_tick in zip(targets, request.created_ticks, strict=False):
            log.check_created(created_tick)
        wanted = PlanRequest(
            request.begin_tick,
            request.end_tick,
            request.min_splits,
            request.max_messages_per_split or _NO_LIMIT,
            request.max_bytes_per_split or DEFAULT_SPLIT_BYTES,
        )
        cut, splits = await self._planner.plan(targets, wanted)
        # Ordering: after the plan. Vchannels that are added later have ticks above the cut only.
        response = pb.PlanScanResponse(end_tick=cut, grown=_sizes(grown_since(whole, (log for log, _ in targets))))
        for (log, vchannel), found in zip(targets, splits, strict=True):
            for split in found:
                response.splits.add(
                    vchannel=vchannel.name,
                    begin_tick=split.begin_tick,
                    end_tick=split.end_tick,
                    estimated_messages=split.messages,
                    estimated_bytes=split.columns_bytes,
                    created_tick=log.created_tick,
                )
        return response

    def _sources(self, request: pb.ScanRequest, filters: "Filters") -> list[ScanSource]:
        targets = [self._directory.find_to_read(source.vchannel) for source in request.sources]
        _check_sources(len(targets), len({vchannel.name for _, vchannel in targets}))
        oracle, wal_name = self._node.shared.oracle, self._node.store.wal_name
        shared = start_of(request.policy, wal_name)
        check_start_of_several(shared, sum(not each.HasField("policy") for each in request.sources), "policy")
        sources = []
        for index, ((log, vchannel), wanted) in enumerate(zip(targets, request.sources, strict=True)):
            log.check_created(wanted.created_tick)
            start = start_of(wanted.policy, wal_name) if wanted.HasField("policy") else shared
            watermark = log.watermark()
            position = resolve_start(
                start,
                vchannel=vchannel.name,
                trim_tick=vchannel.trim_tick,
                watermark=watermark,
                latest_tick=oracle.now(),
                created_tick=log.created_tick,
            )
            # A filter does not set the position: it only skips messages.
            sources.append(ScanSource(index, log, vchannel, Tick(max(position, filters.first_tick))))
        return sources


def _whole_channels(request: pb.ScanRequest | pb.PlanScanRequest, logs: Iterable[ChannelLog]) -> Mapping[str, int]:
    """Return the number of vchannels that the caller knows, of each channel of which it wants all."""
    read = {log.name for log in logs}
    whole = {each.name: each.vchannels for each in request.whole_channels}
    if unread := whole.keys() - read:
        raise InvalidRequestError(
            f"whole_channels names '{shown(min(unread))}', of which the request has no vchannel: expected one of "
            f"{', '.join(sorted(read)[:_SHOWN_CHANNELS])}",
            field="whole_channels",
        )
    return whole


def _sizes(channels: Mapping[str, int]) -> Iterator[pb.ChannelSize]:
    return (pb.ChannelSize(name=name, vchannels=vchannels) for name, vchannels in channels.items())


def _plan(request: pb.ScanRequest, filters: Filters, whole_channels: Mapping[str, int]) -> ScanParameters:
    end = request.end.WhichOneof("end")
    if end not in (None, "before_tick", "inside_tick", "watermark", "follow"):
        raise InvalidRequestError("the scan's end is unknown to this server", field="end")
    return ScanParameters(
        ends_at_durable=end in (None, "watermark"),
        end_tick=check_tick(getattr(request.end, end), end) if end in ("before_tick", "inside_tick") else None,
        message_types=filters.message_types,
        max_page_bytes=bounded(
            request.max_response_bytes, DEFAULT_RESPONSE_BYTES, 1, MAX_RESPONSE_BYTES, "max_response_bytes"
        ),
        watermark_interval_s=bounded(
            request.watermark_interval_ms,
            DEFAULT_WATERMARK_INTERVAL_MS,
            MIN_WATERMARK_INTERVAL_MS,
            MAX_WATERMARK_INTERVAL_MS,
            "watermark_interval_ms",
        )
        / 1_000,
        cuts_transactions=end == "inside_tick",
        broadcast_types=filters.broadcast_types,
        whole_channels=whole_channels,
    )


def _check_sources(count: int, distinct: int) -> None:
    check_within(count, 1, MAX_SOURCES_PER_SCAN, "vchannels", "the request names {value} vchannels")
    if distinct < count:
        raise InvalidRequestError("the request names a vchannel twice", field="vchannels")
