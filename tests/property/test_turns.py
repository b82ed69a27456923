"""Calls of a principal take turns while another principal is active, and what a turn costs is bounded.

Method: random calls of a few principals at random times, against the plain list of the calls that began.
"""

from collections import defaultdict
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.limits import MAX_TURN_WAIT_S, PRINCIPAL_ACTIVE_S
from tidelog_server.security.quotas import REFUSAL_COST
from tidelog_server.security.turns import TURN_S, UNPACED_COST_PER_S, Turns

COST_PER_S = 400
PER_TURN = COST_PER_S * TURN_S
COSTS = st.sampled_from([1, 3, 5, 100])
STEPS = st.lists(st.tuples(st.sampled_from("abc"), COSTS, st.sampled_from([0.0, 0.001, 0.02, 0.3])), max_size=200)


def flooded(turns: Turns, principal: str, now_s: float, calls: int) -> list[float | None]:
    return [turns.wait_s(principal, 1, now_s) for _ in range(calls)]


@given(STEPS)
def test_turns_in_a_row_cost_a_bounded_amount(steps: list[tuple[str, int, float]]) -> None:
    turns, now_s = Turns(COST_PER_S), 1_000.0
    begun: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for principal, cost, pause_s in steps:
        now_s += pause_s
        wait_s = turns.wait_s(principal, cost, now_s)
        if wait_s is None:
            continue
        assert 0 <= wait_s <= MAX_TURN_WAIT_S
        if wait_s:
            turn = round((now_s + wait_s) / TURN_S)
            # It begins with a turn, and not with one that has begun before.
            assert (now_s + wait_s) / TURN_S == pytest.approx(turn)
            assert turn > floor(now_s / TURN_S)
            begun[principal][turn] += cost
    for costs in begun.values():
        for first in costs:
            for last in costs:
                total = sum(cost for turn, cost in costs.items() if first <= turn <= last)
                assert first > last or total < (last - first + 1) * PER_TURN + 100


@given(st.lists(COSTS, max_size=100))
def test_a_principal_that_is_alone_never_waits(costs: list[int]) -> None:
    turns = Turns(COST_PER_S)
    assert {turns.wait_s("a", cost, 1_000.0) for cost in costs} <= {0.0}


def test_few_calls_begin_at_once_whatever_others_do() -> None:
    turns = Turns(COST_PER_S)
    turns.note("busy", 1_000.0)
    flooded(turns, "busy", 1_000.0, 10_000)
    assert flooded(turns, "quiet", 1_000.0, UNPACED_COST_PER_S) == [0.0] * UNPACED_COST_PER_S
    assert turns.wait_s("quiet", 1, 1_000.0) != 0.0


def test_many_calls_are_spread_over_turns_and_refused_beyond_a_second() -> None:
    turns = Turns(COST_PER_S)
    turns.note("other", 1_000.0)
    waits = flooded(turns, "busy", 1_000.0, 10_000)
    taken = [wait_s for wait_s in waits if wait_s]
    assert len(taken) == pytest.approx(COST_PER_S * MAX_TURN_WAIT_S, rel=0.1)
    assert waits[-1] is None
    # What was refused takes no turn of later calls.
    assert turns.wait_s("busy", 1, 1_000.5) == pytest.approx(0.55, abs=TURN_S)


def test_a_principal_stops_waiting_when_others_are_gone() -> None:
    turns = Turns(COST_PER_S)
    turns.note("other", 1_000.0)
    flooded(turns, "busy", 1_000.0, 1_000)
    assert turns.wait_s("busy", 1, 1_000.0 + 0.9 * PRINCIPAL_ACTIVE_S) != 0.0
    assert turns.wait_s("busy", 1, 1_000.0 + PRINCIPAL_ACTIVE_S) == 0.0


def test_refused_calls_are_paid_for_by_later_ones() -> None:
    turns = Turns(COST_PER_S)
    turns.note("other", 1_000.0)
    flooded(turns, "busy", 1_000.0, UNPACED_COST_PER_S)
    before = turns.wait_s("busy", 1, 1_000.0)
    for _ in range(4):
        turns.charge("busy", REFUSAL_COST, 1_000.0)
    after = turns.wait_s("busy", 1, 1_000.0)
    assert before is not None
    assert after is not None
    assert after - before == pytest.approx(4 * REFUSAL_COST / COST_PER_S, abs=TURN_S)


def test_without_a_bound_no_call_waits() -> None:
    turns = Turns(0)
    turns.note("other", 1_000.0)
    assert set(flooded(turns, "busy", 1_000.0, 1_000)) == {0.0}
