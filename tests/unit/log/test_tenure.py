"""A tenure ends before its lease expires, whenever answers arrive. Method: a clock that the test moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.errors import Effect
from tidelog_server.core.errors.cluster import OwnershipLostError
from tidelog_server.log.tenure import Tenure
from tidelog_testing.parts.clocks import SteppedClock

TTL_S = 9.0


def test_it_is_held_for_two_thirds_of_the_lease_from_when_it_was_asked_for() -> None:
    clock = SteppedClock()
    tenure = Tenure(clock, "n1")
    assert not tenure.is_held()
    asked_s = clock.now_s
    clock.now_s += 2
    tenure.begin(7, asked_s, TTL_S)
    assert (tenure.term, tenure.is_held(), tenure.left_s()) == (7, True, 4.0)
    clock.now_s += 3.9
    tenure.check()
    clock.now_s += 0.2
    with pytest.raises(OwnershipLostError) as lost:
        tenure.check(Effect.UNKNOWN)
    assert lost.value.effect is Effect.UNKNOWN
    assert "'n1'" in lost.value.message


def test_one_that_has_lapsed_is_not_renewed() -> None:
    clock = SteppedClock()
    tenure = Tenure(clock, "n1")
    tenure.begin(7, clock.now_s, TTL_S)
    clock.now_s += 7
    tenure.renewed(clock.now_s, TTL_S)
    assert not tenure.is_held()
    tenure.begin(8, clock.now_s, TTL_S)
    assert tenure.is_held()
    tenure.end()
    assert not tenure.is_held()


@given(
    st.lists(st.tuples(st.sampled_from(["pass", "renew", "lost answer"]), st.floats(0.01, 4.0)), max_size=40),
)
def test_the_lease_never_ends_while_the_tenure_is_held(steps: list[tuple[str, float]]) -> None:
    clock = SteppedClock()
    tenure = Tenure(clock, "n1")
    tenure.begin(1, clock.now_s, TTL_S)
    lease_ends_s = clock.now_s + TTL_S
    for step, seconds in steps:
        asked_s = clock.now_s
        clock.now_s += seconds
        if step != "pass" and asked_s < lease_ends_s:
            # The grantor received it at some time in between; at the earliest when it was sent.
            lease_ends_s = asked_s + TTL_S
            if step == "renew":
                tenure.renewed(asked_s, TTL_S)
        assert not tenure.is_held() or clock.now_s < lease_ends_s
