"""Options and arguments of scans."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypedDict

from tidelog.read import protocol as _requests
from tidelog.read.channel_patterns import ChannelPattern
from tidelog.read.positions import EARLIEST, At, End, Positions, Start, position, positions_of
from tidelog.read.reader_events import OnEvent
from tidelog.tick import LOGICAL_BITS
from tidelog.v1 import wal_service_pb2
from tidelog.wire.durations import Duration, check_seconds
from tidelog.wire.key_filter import KeyFilter

DEFAULT_RESPONSE_BYTES: Final = 1 << 20


class ScanOptions(TypedDict, total=False):
    """Options of a scan.

    Attributes:
        types: Deliver only messages of these types, and broadcasts; default None, all.
        hides_broadcasts: With ``types``: omit broadcasts of other types as well; default False.
        tick_gt: Deliver only messages with a greater tick.
        tick_gte: Deliver only messages with this tick or a greater one.
        key: Deliver only messages with this key. The client selects them: the server sends all.
        key_prefix: As ``key``, for keys that begin with this; the empty prefix selects each message with a key.
        max_response_bytes: Approximate maximum size of a response, up to 4 MiB; default 1 MiB.
        watermark_interval_s: Maximum interval between watermarks of a following scan, 0.01 to 60 s; default 0.2.
        on_event: Called with each ReaderEvent of the scan; default None.
        created_ticks: Creation ticks of the channels, by full name of the vchannel: the scan fails with
            ChannelNotFoundError if such a channel was destroyed, even if another one now has its name. A scan that
            reconnects makes this check by itself.
    """

    types: Collection[int] | None
    hides_broadcasts: bool
    tick_gt: int | None
    tick_gte: int | None
    key: bytes | None
    key_prefix: bytes | None
    max_response_bytes: int
    watermark_interval_s: Duration
    on_event: OnEvent | None
    created_ticks: Mapping[str, int] | None


def check_options(options: Mapping[str, object]) -> None:
    """Raise TypeError, worded as that of ``scan``, for an unknown option."""
    if unknown := sorted(options.keys() - ScanOptions.__annotations__.keys()):
        known = ", ".join(("start", "until", *ScanOptions.__annotations__))
        raise TypeError(f"scan() got an unexpected keyword argument '{unknown[0]}': expected one of {known}")


@dataclass(frozen=True, slots=True)
class ScanArguments:
    """The checked arguments of a scan.

    Attributes:
        start: Start on all vchannels; not used if ``positions`` is set.
        positions: For each vchannel the tick after which the scan begins; None if all start alike.
        patterns: Patterns that the scan was given; channels that match one may lack a position.
        keys: Which messages of the server's to deliver, by key; None for all.
    """

    start: At
    positions: dict[str, int] | None
    until: At
    filters: tuple[wal_service_pb2.DeliverFilter, ...]
    max_response_bytes: int
    watermark_interval_ms: int
    on_event: OnEvent | None = None
    created_ticks: Mapping[str, int] = field(default_factory=dict)
    patterns: tuple[ChannelPattern, ...] = ()
    keys: KeyFilter | None = None


def scan_arguments(
    start: Start | Positions,
    until: End,
    *,
    types: Collection[int] | None = None,
    hides_broadcasts: bool = False,
    tick_gt: int | None = None,
    tick_gte: int | None = None,
    key: bytes | None = None,
    key_prefix: bytes | None = None,
    max_response_bytes: int = DEFAULT_RESPONSE_BYTES,
    watermark_interval_s: Duration = 0.2,
    on_event: OnEvent | None = None,
    created_ticks: Mapping[str, int] | None = None,
) -> ScanArguments:
    """Return the checked arguments of a scan.

    Raises:
        ValueError: ``start`` is an end, ``until`` is a start, ``types`` is empty, ``hides_broadcasts`` is set
            without ``types``, or both ``key`` and ``key_prefix`` are set.
        TypeError: ``start`` or ``until`` is not a position, or a key is not bytes.
    """
    if types is not None and not types:
        raise ValueError("types is empty, so no message could pass: omit it for all types")
    if hides_broadcasts and types is None:
        raise ValueError("hides_broadcasts is set without types: set types, or omit it")
    positions = positions_of(start) if isinstance(start, Mapping) else None
    begin, end = EARLIEST if isinstance(start, Mapping) else position(start), position(until)
    _requests.deliver_policy(begin)
    _requests.scan_end(end)
    filters = tuple(
        _requests.deliver_filters(types=types, tick_gt=tick_gt, tick_gte=tick_gte, hides_broadcasts=hides_broadcasts)
    )
    interval_ms = round(check_seconds("watermark_interval_s", watermark_interval_s) * 1000)
    created = dict(created_ticks or {})
    keys = KeyFilter.of(key, key_prefix)
    return ScanArguments(begin, positions, end, filters, max_response_bytes, interval_ms, on_event, created, keys=keys)


def floor_tick(start: At) -> int:
    """Return the greatest tick that ``start`` is known to exclude; 0 if only the server knows."""
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
