"""Goal: time spans are right on days on which the local clocks change.

Method: rows as Spark hands them over, with local times of a zone that has daylight saving time.
"""

import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from pyspark.sql import Row

from tidelog.spark.pipelines.statistics import _span_s
from tidelog.spark.ticks import iso_text


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def october_25(hour: int = 0, minute: int = 0, *, fold: int = 0) -> datetime:
    return datetime(2026, 10, 25, hour, minute, fold=fold)  # noqa: DTZ001 - as Spark hands them over


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("last", "span_s", "text"),
    [
        (october_25(2, 30), 9_000.0, "2026-10-25T00:30:00.000Z"),
        # The same local time, one hour later.
        (october_25(2, 30, fold=1), 12_600.0, "2026-10-25T01:30:00.000Z"),
        (october_25(12), 46_800.0, "2026-10-25T11:00:00.000Z"),
    ],
)
def test_a_day_of_twenty_five_hours_is_as_long_as_it_is(last: datetime, span_s: float, text: str) -> None:
    row = Row(first=october_25(), last=last)

    assert _span_s([row]) == span_s
    assert iso_text(last) == text


def test_no_channels_have_no_span() -> None:
    assert _span_s([]) == 0.0
