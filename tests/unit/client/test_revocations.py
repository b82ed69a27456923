"""Which vchannels a member keeps too long. Method: times and holdings without a server; random ones for the rules."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog.groups.handling import REPORTED_AT, Revocations
from tidelog.groups.member_queue import Holding

HALF_S = 10 * REPORTED_AT


def holdings(**revoked: int) -> dict[str, Holding]:
    """Return holdings that are revoked, by name, with these epochs."""
    return {name: Holding(epoch, 0, True) for name, epoch in revoked.items()}


def test_a_vchannel_is_reported_once_after_half_of_the_time() -> None:
    found = Revocations(10.0)
    found.follow({"a": Holding(1, 0, False)}, 0.0)
    assert found.next_s() is None
    found.follow(holdings(a=1), 100.0)
    assert found.next_s() == 100 + HALF_S
    assert found.due(100 + HALF_S - 0.1, {"a": 1})[0] == []
    assert found.due(100 + HALF_S, {"a": 1}) == (["a"], 10 - HALF_S)
    assert found.next_s() is None
    assert found.due(109.0, {"a": 1})[0] == []


def test_what_was_released_or_has_another_epoch_is_not_reported() -> None:
    found = Revocations(10.0)
    found.follow(holdings(a=1, b=1, c=1), 0.0)
    assert found.due(9.0, {"b": 2, "c": 1}) == (["c"], 1.0)


def test_a_second_revocation_begins_anew_and_a_repeated_report_does_not() -> None:
    found = Revocations(10.0)
    found.follow(holdings(a=1), 0.0)
    found.follow(holdings(a=1, b=1), 4.0)
    assert found.due(HALF_S, {"a": 1, "b": 1})[0] == ["a"]
    found.follow(holdings(b=1), 6.0)
    found.follow(holdings(a=2, b=1), 8.0)
    assert found.due(4 + HALF_S, {"a": 2, "b": 1})[0] == ["b"]
    assert found.next_s() == 8 + HALF_S
    assert found.due(30.0, {"a": 2, "b": 1}) == (["a"], 0.0)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.dictionaries(st.sampled_from("abc"), st.builds(Holding, st.integers(1, 3), st.just(0), st.booleans())),
        ),
        max_size=20,
    )
)
def test_each_revocation_is_reported_at_most_once_and_never_early(
    steps: list[tuple[int, dict[str, Holding]]],
) -> None:
    found, now_s = Revocations(10.0), 0.0
    began: dict[tuple[str, int], float] = {}
    reported: set[tuple[str, int]] = set()
    for passed_s, held in steps:
        now_s += passed_s
        found.follow(held, now_s)
        revoked = {(name, each.epoch) for name, each in held.items() if each.is_revoked}
        began = {key: began.get(key, now_s) for key in revoked}
        reported &= revoked
        late, lost_in_s = found.due(now_s, {name: each.epoch for name, each in held.items()})
        keys = {(name, held[name].epoch) for name in late}
        assert not keys & reported
        assert all(now_s - began[key] >= HALF_S for key in keys)
        assert 0 <= lost_in_s <= 10
        reported |= keys
        assert {key for key in revoked if now_s - began[key] >= HALF_S} == reported
