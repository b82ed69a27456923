"""In a table that tenants share, no tenant loses entries to another while it holds at most its share.

Method: random uses of a table by several tenants, against a model that is a list of keys for each tenant; and random
evictions against a set of all evicted numbers.

Promises of docs/reference/guarantees.md: G18.
"""

from collections import Counter
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core import shares
from tidelog_server.core.callers import NO_TENANT, Tenant, tenant_of
from tidelog_server.core.shares import Floors, Shares

TENANTS = (NO_TENANT, tenant_of("a"), tenant_of("b"), tenant_of("c"))
MAXIMUM = 6
KEYS = st.integers(0, 15)
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "use", "pop"]), st.sampled_from(TENANTS), KEYS, st.integers(0, 1)), max_size=80
)


def add(
    table: Shares[int, int], key: int, tenant: Tenant, rank: int, maximum: int = MAXIMUM
) -> list[tuple[int, Tenant]]:
    """Add a key, as callers do; return the evicted keys with their tenants."""
    evicted = [] if table.get(key) is not None else table.make_room(tenant, maximum)
    table.put(key, key, tenant, rank)
    return [(each.key, each.tenant) for each in evicted]


# Small tables as well: in them a few steps evict.
@given(STEPS, st.integers(len(TENANTS), MAXIMUM))
def test_a_tenant_within_its_share_loses_nothing_to_others(
    steps: list[tuple[str, Tenant, int, int]], maximum: int
) -> None:
    table: Shares[int, int] = Shares(ranks=2)
    # Keys by tenant and rank, oldest first.
    model: dict[tuple[Tenant, int], list[int]] = {(tenant, rank): [] for tenant in TENANTS for rank in (0, 1)}

    def forget(key: int) -> None:
        for keys in model.values():
            if key in keys:
                keys.remove(key)

    for what, tenant, key, rank in steps:
        before = Counter({each: len(model[each, 0]) + len(model[each, 1]) for each in TENANTS})
        is_known = table.get(key) is not None
        if what == "put":
            for gone, whose in add(table, key, tenant, rank, maximum):
                held = before[whose]
                if whose != tenant:
                    # More than a share of the table, and more than the adding tenant holds afterwards.
                    tenants = sum(1 for each in TENANTS if before[each] or each == tenant)
                    assert held * tenants > maximum
                    assert held > before[tenant] + 1
                # The oldest key of that tenant's lowest rank.
                lowest = next(model[whose, each] for each in (0, 1) if model[whose, each])
                assert gone == lowest[0]
                forget(gone)
            forget(key)
            model[tenant, rank].append(key)
        elif what == "use" and is_known:
            table.use(key)
            keys = next(keys for keys in model.values() if key in keys)
            keys.remove(key)
            keys.append(key)
        elif what == "pop":
            assert (table.pop(key) is not None) == is_known
            forget(key)
        assert sorted(table.keys()) == sorted(key for keys in model.values() for key in keys)
        assert len(table) <= maximum
        counts = [len(model[each, 0]) + len(model[each, 1]) for each in TENANTS]
        assert [table.count(each) for each in TENANTS] == counts


def test_one_tenant_alone_uses_the_whole_table_and_gives_way_to_others() -> None:
    table: Shares[int, int] = Shares()
    for key in range(MAXIMUM):
        assert add(table, key, TENANTS[1], 0) == []
    for key in range(10, 13):
        assert [whose for _, whose in add(table, key, TENANTS[2], 0)] == [TENANTS[1]]
    # Both have three: from here on each tenant replaces its own keys.
    assert add(table, 20, TENANTS[1], 0) == [(3, TENANTS[1])]
    assert add(table, 21, TENANTS[2], 0) == [(10, TENANTS[2])]


def test_a_used_entry_is_evicted_after_those_that_were_not_used_since() -> None:
    table: Shares[int, int] = Shares()
    for key in range(MAXIMUM):
        add(table, key, TENANTS[1], 0)
    table.use(0)
    assert [key for new in (10, 11) for key, _ in add(table, new, TENANTS[1], 0)] == [1, 2]


def test_entries_of_a_lower_rank_are_evicted_first() -> None:
    table: Shares[int, int] = Shares(ranks=2)
    for key in range(MAXIMUM):
        add(table, key, TENANTS[1], 0 if key == MAXIMUM - 1 else 1)
    assert [key for new in (10, 11) for key, _ in add(table, new, TENANTS[1], 1)] == [MAXIMUM - 1, 0]


def test_pinned_entries_stay_and_the_table_shrinks_when_they_are_free() -> None:
    table: Shares[int, int] = Shares()
    for key in range(MAXIMUM + 3):
        assert table.make_room(NO_TENANT, MAXIMUM, lambda _: True) == []
        table.put(key, key, NO_TENANT)
    assert len(table) == MAXIMUM + 3
    evicted = table.make_room(NO_TENANT, MAXIMUM)
    assert len(evicted) == 4


EVICTIONS = st.lists(st.tuples(st.sampled_from(TENANTS), st.integers(1, 50)), max_size=40)


@given(EVICTIONS, st.integers(1, 4))
def test_what_was_evicted_lies_at_or_below_the_floor_also_after_a_restart(
    evictions: list[tuple[Tenant, int]], max_floors: int
) -> None:
    stored: dict[Tenant, int] = {}
    floors = Floors({})
    with patch.object(shares, "MAX_FLOORS", max_floors):
        for count, (tenant, number) in enumerate(evictions, 1):
            for each, floor in floors.raise_to(tenant, number).items():
                if floor is None:
                    stored.pop(each, None)
                else:
                    stored[each] = floor
            assert len(stored) <= max_floors + 1
            for some in (floors, Floors(stored)):
                assert all(number <= some.of(whose) for whose, number in evictions[:count])
                assert some.highest == max(number for _, number in evictions[:count])


def test_the_floor_of_one_tenant_does_not_concern_others() -> None:
    floors = Floors({})
    assert floors.raise_to(TENANTS[1], 7) == {TENANTS[1]: 7}
    assert floors.raise_to(TENANTS[1], 5) == {}
    assert [floors.of(tenant) for tenant in TENANTS] == [0, 7, 0, 0]
