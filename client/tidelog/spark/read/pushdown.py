"""Translation of Spark's filters into ranges, vchannels and types of a scan.

A filter is *accepted* if the scan returns exactly the rows that pass it; Spark then does not evaluate it again. Spark
evaluates any other filter, but it may still narrow the range of ticks::

    column      becomes                           accepted
    tick        range of ticks                    comparisons, =, IN of one value
    timestamp   range of ticks                    comparisons, =, IN of one value
    channel     fewer vchannels to scan           all filters that Spark can hand over
    vchannel    fewer vchannels to scan           all filters that Spark can hand over
    type        the scan's filter on types        =, IN
"""

import operator
from collections.abc import Callable, Mapping
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

from tidelog.spark.ticks import END_OF_TIME, ceil_ms, floor_ms, time_to_tick

_MAX_TYPES: Final = 1_024
_NEVER_NULL: Final = {"channel", "vchannel", "tick", "timestamp", "type", "payload", "properties"}
_ALL_TICKS: Final = (0, END_OF_TIME)
_UINT32: Final = (1 << 32) - 1
_COMPARES: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    StringStartsWith: str.startswith,
    StringEndsWith: str.endswith,
    StringContains: operator.contains,
}


@dataclass(frozen=True, slots=True)
class Pushdown:
    """The part of a read that the filters allow.

    Attributes:
        begin_tick, end_tick: Half-open range of ticks.
        types: Message types to read; None for all.
        vchannel_filters: Filters that a vchannel's channel or index must pass.
    """

    begin_tick: int = 0
    end_tick: int = END_OF_TIME
    types: frozenset[int] | None = None
    vchannel_filters: tuple[Filter, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if no message can pass, because the filters contradict each other."""
        return self.begin_tick >= self.end_tick or self.types == frozenset()

    def passes(self, channel: str, index: int) -> bool:
        """Return whether messages of the vchannel ``channel/index`` can pass."""
        values: dict[str, str | int] = {"channel": channel, "vchannel": index}
        return all(_holds(entry, values[_column(entry)]) for entry in self.vchannel_filters)


def push(filters: list[Filter], *, payload_may_be_null: bool = False) -> tuple[Pushdown, list[Filter]]:
    """Return the part to read, and the filters that Spark must still evaluate. The filters are joined by AND."""
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
    """Return ``pushed`` narrowed by one filter, and whether the filter is accepted."""
    column = _column(entry)
    match column:
        case "channel" | "vchannel" if _is_decidable(entry):
            return replace(pushed, vchannel_filters=(*pushed.vchannel_filters, entry)), True
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
    """Return the column of a filter; for a nested field its dotted path, which matches no column."""
    attribute = entry.child.attribute if isinstance(entry, Not) else entry.attribute  # type: ignore[attr-defined]  # every filter but Not has one
    return ".".join(attribute)


def _tick_range(entry: Filter, column: str) -> tuple[tuple[int, int], bool]:
    """Return a half-open range that contains all passing ticks, and whether all ticks in it pass."""
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
    """Return the half-open range of ticks whose rows have ``value`` in ``column``; None if it is unknown.

    The column ``timestamp`` has whole milliseconds. A value between two milliseconds matches no tick: its span is empty
    and lies between their ticks.
    """
    if column == "tick" and type(value) is int:
        return value, value + 1
    if column == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        return time_to_tick(ceil_ms(value)), time_to_tick(floor_ms(value) + 1)
    return None


def _bounds(comparison: Filter, span: tuple[int, int]) -> tuple[int, int]:
    """Return the half-open range of ticks for which the comparison with the value of ``span`` holds."""
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
    """Return the message types that pass, as unsigned numbers; None if a scan cannot filter by them."""
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
    """Return whether ``_holds`` decides the filter as SQL does, where no comparison with NULL is true or false."""
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
    """Return whether ``value``, which is not NULL, passes a decidable filter."""
    match entry:
        case Not(child):
            return not _holds(child, value)
        case In(_, values):
            return value in values
        case IsNull() | IsNotNull():
            return isinstance(entry, IsNotNull)
        case _:
            return bool(_COMPARES[type(entry)](value, entry.value))  # type: ignore[attr-defined]  # every other filter compares with a value
