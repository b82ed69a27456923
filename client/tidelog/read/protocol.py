"""Conversion of positions, filters and trims to protocol messages."""

from collections.abc import Iterable

from tidelog.read.positions import At
from tidelog.tick import LOGICAL_BITS
from tidelog.v1 import wal_service_pb2


def deliver_policy(start: At) -> wal_service_pb2.DeliverPolicy:
    """Return the start of a scan as the protocol message.

    Raises:
        ValueError: The position is an end.
    """
    match start.kind, start.value:
        case "earliest", None:
            return wal_service_pb2.DeliverPolicy(all=wal_service_pb2.DeliverAll())
        case "latest", None:
            return wal_service_pb2.DeliverPolicy(latest=wal_service_pb2.DeliverLatest())
        case "tick", int(tick):
            return wal_service_pb2.DeliverPolicy(from_tick=tick)
        case "after", int(tick):
            return wal_service_pb2.DeliverPolicy(after_tick=tick)
        case "message_id", bytes(message_id):
            return wal_service_pb2.DeliverPolicy(from_message_id=message_id)
        case "after_message_id", bytes(message_id):
            return wal_service_pb2.DeliverPolicy(after_message_id=message_id)
        case "time", int(time_ms):
            return wal_service_pb2.DeliverPolicy(from_time_ms=max(0, time_ms))
        case _:
            raise ValueError(f"At.{start.kind}() is an end, not a start")


def scan_end(until: At) -> wal_service_pb2.ScanEnd:
    """Return the end of a scan as the protocol message.

    Raises:
        ValueError: The position is only a start.
    """
    match until.kind, until.value:
        case "watermark", None:
            return wal_service_pb2.ScanEnd(watermark=wal_service_pb2.ScanEndWatermark())
        case "follow", None:
            return wal_service_pb2.ScanEnd(follow=wal_service_pb2.ScanEndFollow())
        case "tick", int(tick):
            return wal_service_pb2.ScanEnd(before_tick=tick)
        case "inside", int(tick):
            return wal_service_pb2.ScanEnd(inside_tick=tick)
        case "time", int(time_ms):
            return wal_service_pb2.ScanEnd(before_tick=max(0, time_ms) << LOGICAL_BITS)
        case _:
            raise ValueError(f"At.{until.kind}() is not an end: expected watermark, follow, tick, inside, time or ago")


def deliver_filters(
    *, types: Iterable[int] | None, tick_gt: int | None, tick_gte: int | None, hides_broadcasts: bool = False
) -> list[wal_service_pb2.DeliverFilter]:
    """Return the filters as protocol messages; a message must pass all of them."""
    filters = []
    if types is not None:
        wanted = wal_service_pb2.MessageTypes(types=sorted(set(types)), hides_broadcasts=hides_broadcasts)
        filters.append(wal_service_pb2.DeliverFilter(message_types=wanted))
    if tick_gt is not None:
        filters.append(wal_service_pb2.DeliverFilter(tick_gt=tick_gt))
    if tick_gte is not None:
        filters.append(wal_service_pb2.DeliverFilter(tick_gte=tick_gte))
    return filters


def trim_request(vchannel: str, before: At | None, *, everything: bool) -> wal_service_pb2.TrimRequest:
    """Return the request to trim a vchannel.

    Raises:
        ValueError: Neither or both of ``before`` and ``everything`` are set, or ``before`` is neither tick nor time.
    """
    if (before is None) is not everything:
        raise ValueError("trim requires either a position to trim before, or everything=True")
    if before is None:
        return wal_service_pb2.TrimRequest(vchannel=vchannel, all=wal_service_pb2.TrimAll())
    match before.kind, before.value:
        case "tick", int(tick):
            return wal_service_pb2.TrimRequest(vchannel=vchannel, before_tick=tick)
        case "time", int(time_ms):
            return wal_service_pb2.TrimRequest(vchannel=vchannel, before_time_ms=max(0, time_ms))
        case _:
            raise ValueError(f"trim cannot end at At.{before.kind}(): expected a tick or a time")
