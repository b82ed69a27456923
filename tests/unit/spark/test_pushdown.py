"""Goal: a pushed filter never loses a row that passes, and an accepted one never returns a row that does not.

Method: hypothesis draws filters and rows; the rows that the pushdown reads are compared with those that pass the
filters by SQL's rules, which are implemented here in the simplest way.
"""

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
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
    StringStartsWith,
)

from tidelog.spark.read.pushdown import Pushdown, push

EPOCH = datetime.fromtimestamp(0, UTC)
COMPARISONS: dict[type[Filter], Callable[[Any, Any], object]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
TICKS = st.integers(0, 8 << 18)
TIMES = st.integers(0, 9_000).map(lambda microseconds: EPOCH + timedelta(microseconds=microseconds))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tick": TICKS,
    "timestamp": TIMES,
    "type": st.integers(-3, 3),
    "vchannel": st.integers(0, 3),
    "channel": st.sampled_from(["a", "b", "ab"]),
}


def filters() -> st.SearchStrategy[Filter]:
    def on_column(column: str) -> st.SearchStrategy[Filter]:
        values = VALUES[column]
        plain = st.one_of(
            st.builds(lambda kind, value: kind((column,), value), st.sampled_from(list(COMPARISONS)), values),
            st.builds(lambda several: In((column,), tuple(several)), st.lists(values, min_size=1, max_size=3)),
            st.sampled_from([IsNull((column,)), IsNotNull((column,))]),
        )
        return st.one_of(plain, plain.map(Not))

    return st.sampled_from(list(VALUES)).flatmap(on_column)


def rows() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: VALUES[name] for name in ("tick", "type", "vchannel", "channel")}).map(
        lambda row: {**row, "timestamp": EPOCH + timedelta(milliseconds=row["tick"] >> 18)}
    )


def passes(entry: Filter, row: dict[str, Any]) -> bool:
    if isinstance(entry, Not):
        return not passes(entry.child, row)
    actual = row[entry.attribute[0]]  # type: ignore[attr-defined]  # each but Not has one
    if isinstance(entry, IsNull | IsNotNull):
        return isinstance(entry, IsNotNull)
    expected = entry.value  # type: ignore[attr-defined]  # the others compare with a value
    if isinstance(entry, In):
        return actual in expected
    return bool(COMPARISONS[type(entry)](actual, expected))


def is_left(pushed: Pushdown, row: dict[str, Any]) -> bool:
    return (
        pushed.begin_tick <= row["tick"] < pushed.end_tick
        and (pushed.types is None or row["type"] & 0xFFFFFFFF in pushed.types)
        and pushed.passes(row["channel"], row["vchannel"])
    )


@given(st.lists(filters(), max_size=4), rows())
def test_pushdown_and_sql_agree_on_every_row(drawn: list[Filter], row: dict[str, Any]) -> None:
    pushed, left = push(drawn)

    kept = is_left(pushed, row)

    if all(passes(entry, row) for entry in drawn):
        assert kept
    else:
        assert not kept or not all(passes(entry, row) for entry in left)


@pytest.mark.parametrize(
    "entry",
    [
        GreaterThanOrEqual(("tick",), 5),
        LessThan(("timestamp",), EPOCH),
        EqualTo(("type",), 7),
        In(("type",), (1, 2)),
        In(("vchannel",), (0, 2)),
        Not(EqualTo(("vchannel",), 0)),
        StringStartsWith(("channel",), "or"),
        IsNotNull(("tick",)),
    ],
)
def test_an_exact_filter_is_accepted(entry: Filter) -> None:
    assert push([entry])[1] == []


@pytest.mark.parametrize(
    "entry",
    [
        EqualTo(("payload",), b"x"),
        IsNotNull(("key",)),
        EqualTo(("properties", "tick"), "5"),
        In(("tick",), (1, 5)),
        GreaterThan(("type",), 3),
        In(("type",), tuple(range(1_025))),
        LessThan(("timestamp",), EPOCH.replace(tzinfo=None)),
        Not(In(("vchannel",), (1, None))),
        Not(EqualTo(("tick",), 5)),
    ],
)
def test_a_filter_that_the_server_cannot_decide_stays_with_spark(entry: Filter) -> None:
    pushed, left = push([entry])

    assert left == [entry]
    assert pushed.types is None
    assert pushed.vchannel_filters == ()


def test_a_payload_that_may_be_null_is_looked_at_by_spark() -> None:
    entry = IsNotNull(("payload",))

    assert push([entry])[1] == []
    assert push([entry], payload_may_be_null=True) == (Pushdown(), [entry])


def test_a_list_of_ticks_narrows_the_range_and_stays_with_spark() -> None:
    pushed, left = push([In(("tick",), (9, 5))])

    assert (pushed.begin_tick, pushed.end_tick) == (5, 10)
    assert len(left) == 1


def test_contradicting_filters_leave_nothing() -> None:
    assert push([EqualTo(("type",), 1), EqualTo(("type",), 2)])[0].is_empty
    assert push([GreaterThan(("tick",), 5), LessThan(("tick",), 6)])[0].is_empty
