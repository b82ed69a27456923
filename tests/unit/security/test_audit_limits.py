"""Which denials are recorded, how the others are counted, and the reserve on a full disk. Pure."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.limits import GIB, LOST_EVENT_INTERVAL_S, MIB
from tidelog_server.security.audit_limits import (
    AUDIT_RESERVE_BYTES,
    MAX_LOST_CALLERS,
    MAX_REFUSAL_EVENTS_AT_ONCE,
    MAX_REFUSAL_EVENTS_PER_CALLER_AT_ONCE,
    MAX_REFUSAL_EVENTS_PER_CALLER_PER_S,
    MAX_REFUSAL_EVENTS_PER_S,
    OTHERS,
    DiskReserve,
    Refusals,
)

LINE_BYTES = 400


def admitted(refusals: Refusals, caller: str, now_s: float, tries: int = 1_000) -> int:
    return sum(refusals.admits(caller, now_s) for _ in range(tries))


def test_a_caller_has_a_rate_of_its_own() -> None:
    refusals = Refusals(0.0)
    assert admitted(refusals, "a", 0.0) == MAX_REFUSAL_EVENTS_PER_CALLER_AT_ONCE
    assert admitted(refusals, "a", 2.0) == 2 * MAX_REFUSAL_EVENTS_PER_CALLER_PER_S
    assert admitted(refusals, "b", 2.0) == MAX_REFUSAL_EVENTS_PER_CALLER_AT_ONCE


def test_all_callers_together_have_a_rate() -> None:
    refusals = Refusals(0.0)
    assert sum(admitted(refusals, f"c{i}", 0.0, 20) for i in range(1_000)) == MAX_REFUSAL_EVENTS_AT_ONCE
    assert sum(admitted(refusals, f"d{i}", 1.0, 20) for i in range(1_000)) == MAX_REFUSAL_EVENTS_PER_S


@given(st.lists(st.tuples(st.integers(0, 40).map(str), st.integers(1, 5)), min_size=1))
def test_what_is_lost_is_told_once_with_the_numbers_of_some_callers(steps: list[tuple[str, int]]) -> None:
    refusals = Refusals(0.0)
    for caller, count in steps:
        refusals.lose(caller, count)
    total = sum(count for _, count in steps)
    assert refusals.due_in_s(0.0) == 0.0

    event = refusals.take_lost(0.0)
    callers = event["callers"]
    assert isinstance(callers, dict)
    assert (event["denials"], sum(callers.values())) == (total, total)
    assert len(callers.keys() - {OTHERS}) <= MAX_LOST_CALLERS
    assert refusals.due_in_s(0.0) is None

    refusals.give_back(event)
    assert (refusals.lost, refusals.due_in_s(1.0)) == (total, LOST_EVENT_INTERVAL_S - 1.0)


def taken(reserve: DiskReserve, min_free_disk_bytes: int, *, is_administrator: bool) -> int:
    """Return the number of events that are written before one is refused."""
    count = 0
    while reserve.take(LINE_BYTES, min_free_disk_bytes, is_administrator=is_administrator):
        count += 1
    return count


def test_half_of_the_reserve_is_for_administrators() -> None:
    reserve = DiskReserve()
    others = taken(reserve, GIB, is_administrator=False)
    administrators = taken(reserve, GIB, is_administrator=True)
    assert others * 2 * LINE_BYTES <= AUDIT_RESERVE_BYTES // 2
    assert abs(administrators - others) <= 1
    assert administrators > 1_000
    reserve.refill()
    assert taken(reserve, GIB, is_administrator=True) == others + administrators


def test_the_reserve_is_a_quarter_of_a_small_limit() -> None:
    assert taken(DiskReserve(), MIB, is_administrator=True) * 2 * LINE_BYTES <= MIB // 4
    assert taken(DiskReserve(), 0, is_administrator=True) == 0
