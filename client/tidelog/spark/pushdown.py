"""Filters that Spark hands over, turned into what the server can do without reading.

A filter is *accepted* when the server's answer is exactly the rows that pass it; Spark then does not evaluate it again.
Any other filter stays with Spark, though it may still narrow the range of ticks::

    column      becomes                           accepted
    tick        range of ticks                    comparisons, =, IN of one
    timestamp   range of ticks                    comparisons, =, IN of one
    channel     fewer vchannels to scan           all that Spark can hand over
    vchannel    fewer vchannels to scan           all that Spark can hand over
    type        the scan's filter on types        =, IN
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from tidelog.spark.ticks import MAX_TICK, ceil_ms, floor_ms, time_to_tick

END_OF_TIME: Final = MAX_TICK + 1
_MAX_TYPES: Final = 1_024
_NEVER_NULL: Final = {"channel", "vchannel", "tick", "timestamp", "type", "payload", "properties"}
_ALL_TICKS: Final = (0, END_OF_TIME)
_UINT32: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Pushdown:
    """What the filters leave to read.

    Attributes:
        begin_tick, end_tick: Only ticks in this half-open range.
        types: Only messages of these types; None for all.
        lane_filters: Only vchannels whose name passes all of these.
    """

    begin_tick: int = 0
    end_tick: int = END_OF_TIME
    types: frozenset[int] | None = None
    lane_filters: tuple[Filter, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the filters contradict each other, so that nothing can pass."""
        return self.begin_tick >= self.end_tick or self.types == frozenset()

    def passes(self, channel: str, index: int) -> bool:
        """Tell whether messages of the vchannel ``channel/index`` can pass."""
        values: dict[str, str | int] = {"channel": channel, "vchannel": index}
        return all(_holds(entry, values[_column(entry)]) for entry in self.lane_filters)


def push(filters: list[Filter], *, payload_may_be_null: bool = False) -> tuple[Pushdown, list[Filter]]:
    """Return what the filters leave to read, and those that Spark must still evaluate, all meant as AND."""
    pushed = Pushdown()
    left = []
    never_null = _NEVER_NULL - {"payload"} if payload_may_be_null else _NEVER_NULL
    for entry in filters:
        if isinstance(entry, IsNotNull) and _column(entry) in never_null:
            continue
        pushed, is_exact = _narrow(pushed, entry)
        if not is_exact:
            left.append(entry)
    return pushed, left


def _narrow(pushed: Pushdown, entry: Filter) -> tuple[Pushdown, bool]:
    """Return ``pushed`` narrowed by one filter, and whether that says everything the filter says."""
    column = _column(entry)
    match column:
        case "channel" | "vchannel" if _is_decidable(entry):
            return replace(pushed, lane_filters=(*pushed.lane_filters, entry)), True
        case "tick" | "timestamp":
            (begin, end), is_exact = _tick_range(entry, column)
            narrowed = replace(pushed, begin_tick=max(pushed.begin_tick, begin), end_tick=min(pushed.end_tick, end))
            return narrowed, is_exact
        case "type":
            types = _types(entry)
            if types is None:
                return pushed, False
            both = types if pushed.types is None else pushed.types & types
            return replace(pushed, types=both), True
        case _:
            return pushed, False


def _column(entry: Filter) -> str:
    """Return the column that a filter is about; for a nested field something that is no column of ours."""
    attribute = entry.child.attribute if isinstance(entry, Not) else entry.attribute  # type: ignore[attr-defined]  # every filter but Not has one
    return ".".join(attribute)


def _tick_range(entry: Filter, column: str) -> tuple[tuple[int, int], bool]:
    """Return the half-open range of ticks outside of which nothing passes, and whether all inside it passes."""
    match entry:
        case In(_, values):
            spans = [_span(value, column) for value in values]
            known = [span for span in spans if span is not None]
            if not known or len(known) < len(spans):
                return _ALL_TICKS, False
            return (min(begin for begin, _ in known), max(end for _, end in known)), len(known) == 1
        case EqualTo() | EqualNullSafe() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            span = _span(entry.value, column)
            return (_ALL_TICKS, False) if span is None else (_bounds(entry, span), True)
        case _:
            return _ALL_TICKS, False


def _span(value: object, column: str) -> tuple[int, int] | None:
    """Return the half-open range of ticks whose row shows ``value`` in ``column``; None if that cannot be told.

    A timestamp shows whole milliseconds, so one between two of them is shown by no tick: its span is empty and lies
    where its ticks would be.
    """
    if column == "tick" and type(value) is int:
        return value, value + 1
    if column == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        return time_to_tick(ceil_ms(value)), time_to_tick(floor_ms(value) + 1)
    return None


def _bounds(comparison: Filter, span: tuple[int, int]) -> tuple[int, int]:
    """Return the half-open range of ticks that compare so with the value of ``span``."""
    begin, end = span
    match comparison:
        case GreaterThan():
            return end, END_OF_TIME
        case GreaterThanOrEqual():
            return begin, END_OF_TIME
        case LessThan():
            return 0, begin
        case LessThanOrEqual():
            return 0, end
        case _:
            return span


def _types(entry: Filter) -> frozenset[int] | None:
    """Return the message types that pass, as the server counts them; None if it cannot be asked for them."""
    match entry:
        case EqualTo(_, value) | EqualNullSafe(_, value):
            values = (value,)
        case In(_, several):
            values = tuple(several)
        case _:
            return None
    if len(values) > _MAX_TYPES or not all(type(value) is int for value in values):
        return None
    return frozenset(value & _UINT32 for value in values)


def _is_decidable(entry: Filter) -> bool:
    """Tell whether ``_holds`` can decide the filter as SQL does, for which a NULL to compare with is neither."""
    match entry:
        case Not(child):
            return not isinstance(child, EqualNullSafe) and _is_decidable(child)
        case In(_, values):
            return None not in values
        case IsNotNull() | IsNull():
            return True
        case _:
            return entry.value is not None  # type: ignore[attr-defined]  # every other filter compares with a value


def _holds(entry: Filter, value: str | int) -> bool:
    """Tell whether ``value``, which is not NULL, passes a decidable filter."""
    match entry:
        case Not(child):
            return not _holds(child, value)
        case In(_, values):
            return value in values
        case IsNull() | IsNotNull():
            return isinstance(entry, IsNotNull)
        case StringStartsWith(_, part):
            return str(value).startswith(part)
        case StringEndsWith(_, part):
            return str(value).endswith(part)
        case StringContains(_, part):
            return part in str(value)
        case _:
            return _compares(entry, value)


def _compares(entry: Filter, value: Any) -> bool:
    match entry:
        case EqualTo(_, other) | EqualNullSafe(_, other):
            return bool(value == other)
        case GreaterThan(_, other):
            return bool(value > other)
        case GreaterThanOrEqual(_, other):
            return bool(value >= other)
        case LessThan(_, other):
            return bool(value < other)
        case LessThanOrEqual(_, other):
            return bool(value <= other)
        case _:
            raise AssertionError(f"{entry} was accepted but cannot be decided")
