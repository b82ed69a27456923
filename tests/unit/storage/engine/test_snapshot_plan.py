"""When snapshots are due, and what of a log is in use: what is trimmed, and what is written again."""

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.storage.engine.snapshot_plan import (
    LIMITS,
    MAX_MARKS,
    LogMark,
    LogUse,
    SnapshotLimits,
    UseCounter,
    is_due,
    thinned,
)

MIB = 1 << 20


def use_of(marks: list[LogMark], references: list[tuple[int, int]], limits: SnapshotLimits = LIMITS) -> LogUse:
    counter = UseCounter(marks)
    for position, length in references:
        counter.note(position.to_bytes(16, "big"), length)
    return counter.result(limits)


@pytest.mark.parametrize(
    ("grown_mib", "last_mib", "due"),
    [(0, 0, False), (63, 0, False), (64, 0, True), (64, 8, True), (64, 9, False), (71, 9, False), (72, 9, True)],
)
def test_a_snapshot_is_due_after_64_mib_or_eight_times_the_last(grown_mib: int, last_mib: int, due: bool) -> None:
    assert is_due(LIMITS, grown_mib * MIB, last_mib * MIB) is due


def test_without_references_the_log_is_trimmed_up_to_the_last_record_of_the_snapshots_place() -> None:
    marks = [LogMark(0, 0), LogMark(100, 5_000)]
    assert use_of(marks, []) == LogUse(99, None, 0, 0, marks)


def test_the_oldest_reference_holds_the_log_and_marks_before_it_are_forgotten() -> None:
    marks = [LogMark(0, 0), LogMark(100, 5_000), LogMark(200, 9_000), LogMark(300, 12_000)]
    use = use_of(marks, [(250, 700), (130, 600), (299, 800)])
    assert use == LogUse(130, None, 5_000, 2_100, marks[1:])
    # One that is before all marks, whose begin the log had when it was last looked at.
    assert use_of(marks[1:], [(7, 600)]).trim_before == 7


UNIT = LIMITS._replace(unit_bytes=1_000)
# 1,000 bytes in each 10 positions.
EVEN = [LogMark(position, 100 * position) for position in range(0, 101, 10)]


@pytest.mark.parametrize(
    ("references", "rewrite_before"),
    [
        # A quarter of the oldest part is in use; less; nothing but what is behind it.
        ([(3, 250), (95, 5)], None),
        ([(3, 249), (95, 5)], 10),
        ([(13, 100), (95, 5)], 20),
        ([(91, 10)], 100),
        ([], None),
    ],
)
def test_columns_of_the_oldest_part_are_written_again_if_less_than_a_quarter_is_in_use(
    references: list[tuple[int, int]], rewrite_before: int | None
) -> None:
    assert use_of(EVEN, references, UNIT).rewrite_before == rewrite_before


def test_a_log_below_the_size_of_a_part_is_not_written_again() -> None:
    assert use_of([LogMark(0, 0), LogMark(10, 999)], [(0, 1)], UNIT).rewrite_before is None


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 2_000)), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 1_000), st.integers(513, 5_000)), max_size=40),
)
def test_nothing_in_use_is_trimmed_and_what_is_written_again_is_little(
    steps: list[tuple[int, int]], references: list[tuple[int, int]]
) -> None:
    marks = [LogMark(0, 0)]
    for positions, grown_bytes in steps:
        marks.append(LogMark(marks[-1].position + positions, marks[-1].log_bytes + grown_bytes))
    end = marks[-1]
    references = [each for each in references if each[0] < end.position]
    use = use_of(marks, references, UNIT)
    assert use.trim_before <= min([position for position, _ in references] + [end.position - 1])
    assert use.live_bytes == sum(length for _, length in references)
    assert use.marks[-1] == end
    assert use.marks[0].log_bytes == use.begin_bytes
    assert bisect_right([mark.position for mark in use.marks], use.trim_before) == 1
    if use.rewrite_before is not None:
        assert use.trim_before < use.rewrite_before <= end.position
        part_bytes = dict(marks)[use.rewrite_before] - use.begin_bytes
        used_bytes = sum(length for position, length in references if position < use.rewrite_before)
        assert part_bytes >= 1_000
        assert 0 < used_bytes < part_bytes / 4


def test_too_many_marks_are_thinned_and_the_first_stays() -> None:
    marks = [LogMark(number, number) for number in range(3 * MAX_MARKS)]
    kept = thinned(marks)
    assert len(kept) <= MAX_MARKS
    assert (kept[0], kept[1].position) == (marks[0], 4)
    assert thinned(marks[:5]) == marks[:5]
