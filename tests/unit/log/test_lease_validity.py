"""A lease ends before its lease expires, whenever answers arrive. Method: a clock that the test moves."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.errors import Effect, ShutdownError
from tidelog_server.core.errors.cluster import OwnershipLostError
from tidelog_server.log.lease_validity import LeaseValidity
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_testing.parts.clocks import SteppedClock
from tidelog_testing.parts.nodes import running_node

TTL_S = 9.0


def test_it_is_held_for_two_thirds_of_the_lease_from_when_it_was_asked_for() -> None:
    clock = SteppedClock()
    lease = LeaseValidity(clock, "n1")
    assert not lease.is_held()
    asked_s = clock.now_s
    clock.now_s += 2
    lease.begin(7, asked_s, TTL_S)
    assert (lease.term, lease.is_held(), lease.left_s()) == (7, True, 4.0)
    clock.now_s += 3.9
    lease.check()
    clock.now_s += 0.2
    with pytest.raises(OwnershipLostError) as lost:
        lease.check(Effect.UNKNOWN)
    assert lost.value.effect is Effect.UNKNOWN
    assert "'n1'" in lost.value.message


def test_an_expired_lease_is_not_renewed() -> None:
    clock = SteppedClock()
    lease = LeaseValidity(clock, "n1")
    lease.begin(7, clock.now_s, TTL_S)
    clock.now_s += 7
    lease.renewed(clock.now_s, TTL_S)
    assert not lease.is_held()
    lease.begin(8, clock.now_s, TTL_S)
    assert lease.is_held()
    lease.end()
    assert not lease.is_held()


@given(
    st.lists(st.tuples(st.sampled_from(["pass", "renew", "lost answer"]), st.floats(0.01, 4.0)), max_size=40),
)
def test_the_lease_never_expires_while_it_is_valid_here(steps: list[tuple[str, float]]) -> None:
    clock = SteppedClock()
    lease = LeaseValidity(clock, "n1")
    lease.begin(1, clock.now_s, TTL_S)
    lease_ends_s = clock.now_s + TTL_S
    for step, seconds in steps:
        asked_s = clock.now_s
        clock.now_s += seconds
        if step != "pass" and asked_s < lease_ends_s:
            # The grantor received it at some time in between; at the earliest when it was sent.
            lease_ends_s = asked_s + TTL_S
            if step == "renew":
                lease.renewed(asked_s, TTL_S)
        assert not lease.is_held() or clock.now_s < lease_ends_s


async def test_what_arrives_after_a_hand_over_is_refused_as_by_any_process_that_stops() -> None:
    clock = SteppedClock()
    lease = LeaseValidity(clock, "n1")
    lease.begin(7, clock.now_s, TTL_S)
    async with running_node(MemoryLogStore()) as node:
        await node.create("orders")
        node.log.hold_lease(lease)
        lease.end()
        with pytest.raises(OwnershipLostError):
            node.directory.find("orders/0")
        node.log.begin_shutdown()
        # As a process does that hands its node over: clients then leave its streams, which otherwise delay its end.
        for refused in (partial(node.directory.find, "orders/0"), node.log.admission.check):
            with pytest.raises(ShutdownError) as stopping:
                refused()
            assert stopping.value.effect is Effect.NONE
