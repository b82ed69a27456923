"""A bounded, shared resource is never exhausted: after any number of tenants took all they may, the next gets some.

Method: random tenants that take and return amounts, against a plain count for each.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.callers import NO_TENANT, Tenant, tenant_of
from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.usage import Usage

MAXIMUM = 100
TENANTS = [tenant_of(name) for name in "abcdefgh"]


def may_take(usage: Usage, tenant: Tenant, amount: int, percent: int) -> bool:
    """Return True if a tenant may take more, by the check that callers use."""
    if usage.total + amount > MAXIMUM:
        return False
    try:
        usage.check_share(tenant, amount, MAXIMUM, percent, "things")
    except RateLimitRejectedError:
        return False
    return True


@given(
    st.lists(st.tuples(st.sampled_from(TENANTS), st.integers(-20, 20)), max_size=60), st.sampled_from([1, 50, 75, 99])
)
def test_no_tenant_uses_more_than_its_part_of_what_is_free(steps: list[tuple[Tenant, int]], percent: int) -> None:
    usage = Usage()
    counts = dict.fromkeys(TENANTS, 0)
    for tenant, wanted in steps:
        free = MAXIMUM - sum(counts.values())
        amount = max(wanted, -counts[tenant])
        if amount > 0:
            if not may_take(usage, tenant, amount, percent):
                continue
            assert counts[tenant] + amount <= max(1, free * percent // (100 - percent))
        usage.add(tenant, amount)
        counts[tenant] += amount
        assert (usage.total, [usage.of(each) for each in TENANTS]) == (sum(counts.values()), list(counts.values()))


@pytest.mark.parametrize(("percent", "alone"), [(50, 50), (75, 75), (90, 90)])
def test_one_that_takes_all_it_may_gets_its_part_and_the_next_one_gets_some(percent: int, alone: int) -> None:
    usage = Usage()
    taken = []
    for tenant in TENANTS:
        while may_take(usage, tenant, 1, percent):
            usage.add(tenant, 1)
        taken.append(usage.of(tenant))
    assert taken[0] in (alone, alone + 1)
    assert taken[1] >= 1
    if percent == 50:
        assert all(taken[:5])


def test_without_principals_and_with_the_whole_allowed_all_may_be_used() -> None:
    for tenant, percent in ((NO_TENANT, 50), (TENANTS[0], 100)):
        usage = Usage()
        while may_take(usage, tenant, 1, percent):
            usage.add(tenant, 1)
        assert usage.total == MAXIMUM
