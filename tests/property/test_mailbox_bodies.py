"""The cache of bodies: what is found together is what is found one by one."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.mailboxes.bodies import BodyBudget, RecentBodies


def run(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=30),
    gaps=st.lists(st.integers(0, 2), min_size=30, max_size=30),
    kept=st.integers(0, 30),
    data=st.data(),
)
def test_payloads_are_found_together_as_one_by_one(
    sizes: list[int], gaps: list[int], kept: int, data: st.DataObject
) -> None:
    budget = BodyBudget(1 << 30)
    recent, tick = RecentBodies(budget), 1
    for size, gap in zip(sizes, gaps, strict=False):
        recent.add(tick, [b"%d" % each for each in run(tick, size)])
        tick += size + gap
    budget.shrink(budget.size_bytes * kept // 30)

    consecutive = st.builds(run, st.integers(0, tick), st.integers(1, 6))
    ticks = data.draw(st.lists(st.integers(0, tick + 1), max_size=8) | consecutive)
    one_by_one = [recent.get(each) for each in ticks]

    assert all(found in (None, b"%d" % each) for each, found in zip(ticks, one_by_one, strict=True))
    assert recent.get_all(ticks) == (None if None in one_by_one else one_by_one)
