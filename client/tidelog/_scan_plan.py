"""What a scan is asked for."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypedDict

from tidelog import _wire
from tidelog._positions import EARLIEST, At, End, Positions, Start, position, positions_of
from tidelog._reader_events import OnEvent
from tidelog._tick import LOGICAL_BITS
from tidelog.v1 import wal_service_pb2

DEFAULT_RESPONSE_BYTES: Final = 1 << 20


class ScanOptions(TypedDict, total=False):
    """Options of a scan.

    Attributes:
        types: Only messages of these types, and broadcasts; default None, all.
        hides_broadcasts: With ``types``: whether broadcasts of other types are left out as well; default False.
        tick_gt: Only messages with a greater tick.
        tick_gte: Only messages with this tick or a greater one.
        max_response_bytes: About how much travels at a time, up to 4 MiB; default 1 MiB.
        watermark_interval_s: How often a following scan hears of the watermark at least, 0.01 to 60; default 0.2.
        on_event: Is called with each ReaderEvent of the scan; default None.
        created_ticks: For vchannels, by their full names, when the channels were created that are meant: the scan fails
            with ChannelNotFoundError where one of them was destroyed, also if another channel has its name. A scan that
            is opened again after a lost connection does the same by itself.
    """

    types: Collection[int] | None
    hides_broadcasts: bool
    tick_gt: int | None
    tick_gte: int | None
    max_response_bytes: int
    watermark_interval_s: float
    on_event: OnEvent | None
    created_ticks: Mapping[str, int] | None


def check_options(options: Mapping[str, object]) -> None:
    """Raise TypeError, in the words of ``scan``, for an option that it does not have."""
    if unknown := sorted(options.keys() - ScanOptions.__annotations__.keys()):
        known = ", ".join(("start", "until", *ScanOptions.__annotations__))
        raise TypeError(f"scan() got an unexpected keyword argument '{unknown[0]}': it has {known}")


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What a scan was asked for.

    Attributes:
        start: Where it begins; not used where there are positions.
        positions: For each vchannel the tick behind which it begins; None for a start that is the same on all.
    """

    start: At
    positions: dict[str, int] | None
    until: At
    filters: tuple[wal_service_pb2.DeliverFilter, ...]
    max_response_bytes: int
    watermark_interval_ms: int
    on_event: OnEvent | None = None
    created_ticks: Mapping[str, int] = field(default_factory=dict)


def scan_plan(
    start: Start | Positions,
    until: End,
    *,
    types: Collection[int] | None = None,
    hides_broadcasts: bool = False,
    tick_gt: int | None = None,
    tick_gte: int | None = None,
    max_response_bytes: int = DEFAULT_RESPONSE_BYTES,
    watermark_interval_s: float = 0.2,
    on_event: OnEvent | None = None,
    created_ticks: Mapping[str, int] | None = None,
) -> ScanPlan:
    """Return the plan of a scan.

    Raises:
        ValueError: ``start`` is an end, ``until`` is a start, there are no types to pass, or broadcasts are to be
            hidden without any.
        TypeError: ``start`` or ``until`` is no position.
    """
    if types is not None and not types:
        raise ValueError("types is empty, so no message could pass: leave it out for all types")
    if hides_broadcasts and types is None:
        raise ValueError("hides_broadcasts is about types: say which, or leave it out")
    positions = positions_of(start) if isinstance(start, Mapping) else None
    begin, end = EARLIEST if isinstance(start, Mapping) else position(start), position(until)
    _wire.deliver_policy(begin)
    _wire.scan_end(end)
    filters = tuple(
        _wire.deliver_filters(types=types, tick_gt=tick_gt, tick_gte=tick_gte, hides_broadcasts=hides_broadcasts)
    )
    interval_ms = round(watermark_interval_s * 1000)
    created = dict(created_ticks or {})
    return ScanPlan(begin, positions, end, filters, max_response_bytes, interval_ms, on_event, created)


def floor_tick(start: At) -> int:
    """Return the greatest tick that ``start`` surely leaves out; 0 when only the server knows."""
    match start.kind, start.value:
        case "tick", int(tick):
            return max(0, tick - 1)
        case "after", int(tick):
            return tick
        case "time", int(time_ms):
            return max(0, (time_ms << LOGICAL_BITS) - 1)
        case (("message_id" | "after_message_id"), bytes(message_id)):
            return max(0, int.from_bytes(message_id[:8], "big") - (start.kind == "message_id"))
        case _:
            return 0
