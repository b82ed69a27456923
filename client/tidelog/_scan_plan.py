"""What a scan is asked for."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypedDict

from tidelog import _wire
from tidelog._positions import At
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
    """

    types: Collection[int] | None
    hides_broadcasts: bool
    tick_gt: int | None
    tick_gte: int | None
    max_response_bytes: int
    watermark_interval_s: float


def check_options(options: Mapping[str, object]) -> None:
    """Raise TypeError, in the words of ``scan``, for an option that it does not have."""
    if unknown := sorted(options.keys() - ScanOptions.__annotations__.keys()):
        known = ", ".join(("start", "until", *ScanOptions.__annotations__))
        raise TypeError(f"scan() got an unexpected keyword argument '{unknown[0]}': it has {known}")


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What a scan was asked for."""

    start: At
    until: At
    filters: tuple[wal_service_pb2.DeliverFilter, ...]
    max_response_bytes: int
    watermark_interval_ms: int


def scan_plan(
    start: At,
    until: At,
    *,
    types: Collection[int] | None = None,
    hides_broadcasts: bool = False,
    tick_gt: int | None = None,
    tick_gte: int | None = None,
    max_response_bytes: int = DEFAULT_RESPONSE_BYTES,
    watermark_interval_s: float = 0.2,
) -> ScanPlan:
    """Return the plan of a scan.

    Raises:
        ValueError: ``start`` is an end, ``until`` is a start, there are no types to pass, or broadcasts are to be
            hidden without any.
    """
    if types is not None and not types:
        raise ValueError("types is empty, so no message could pass: leave it out for all types")
    if hides_broadcasts and types is None:
        raise ValueError("hides_broadcasts is about types: say which, or leave it out")
    _wire.deliver_policy(start)
    _wire.scan_end(until)
    filters = tuple(
        _wire.deliver_filters(types=types, tick_gt=tick_gt, tick_gte=tick_gte, hides_broadcasts=hides_broadcasts)
    )
    return ScanPlan(start, until, filters, max_response_bytes, round(watermark_interval_s * 1000))


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
