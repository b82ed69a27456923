"""Bounds on all mailboxes of a node: the whole, and the share of each tenant. Method: small limits by hand.

Promises of docs/reference/guarantees.md: G54.
"""

import pytest

from tidelog_server.core.callers import NO_TENANT, tenant_of
from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import Limits
from tidelog_server.mailboxes.bounds import MAX_WAITING_FETCHES, Bounds

ANN, BOB = tenant_of("ann"), tenant_of("bob")


def bounds(**limits: int) -> Bounds:
    changed = Limits(**limits)
    return Bounds(lambda: changed)


def test_the_mailboxes_of_a_node_hold_a_number_of_messages() -> None:
    some = bounds(max_mailbox_messages=10)
    some.check_messages(NO_TENANT, 10)
    some.messages.add(NO_TENANT, 7)
    some.check_messages(NO_TENANT, 3)
    with pytest.raises(RateLimitRejectedError, match=r"would hold 11 messages, at most 10 .* limits.max_mailbox_m"):
        some.check_messages(NO_TENANT, 4)
    some.messages.add(NO_TENANT, -1)
    some.check_messages(NO_TENANT, 4)


def test_a_tenant_has_a_share_of_what_is_free() -> None:
    some = bounds(max_mailbox_messages=100)
    some.check_messages(ANN, 50 * 2)
    some.messages.add(ANN, 50)
    with pytest.raises(RateLimitRejectedError, match="uses 50 messages in the mailboxes that it created; with 50 of"):
        some.check_messages(ANN, 1)
    some.check_messages(BOB, 50)
    some.messages.add(BOB, 25)
    with pytest.raises(RateLimitRejectedError):
        some.check_messages(BOB, 1)


def test_the_memory_of_mailboxes_has_a_bound_and_a_tenant_a_share() -> None:
    some = bounds(max_mailbox_memory_bytes=1_000)
    some.check_memory(NO_TENANT, 1_000)
    with pytest.raises(RateLimitRejectedError, match=r"would take 1001 bytes of memory, at most 1000 .* limits.max_m"):
        some.check_memory(NO_TENANT, 1_001)
    some.memory.add(ANN, 500)
    with pytest.raises(RateLimitRejectedError, match="uses 500 bytes of memory for messages, keys and groups of the"):
        some.check_memory(ANN, 1)
    some.check_memory(BOB, 500)
    # What a start loads is above the bound.
    some.memory.add(BOB, 2_000)
    for tenant in (ANN, BOB, NO_TENANT):
        with pytest.raises(RateLimitRejectedError, match="would take 2501 bytes"):
            some.check_memory(tenant, 1)


def test_many_mailboxes_remember_fewer_ended_locks_each() -> None:
    some, mailboxes = bounds(), 0
    some.mailboxes = lambda: mailboxes
    found = []
    for mailboxes in (0, 1, 50, 100, 1_000, 3_000, 100_000):  # noqa: B007 - read by the function above
        found.append(some.ended_locks)
    # 32 MiB together.
    assert found == [4_096, 4_096, 4_096, 2_362, 236, 78, 64]


def test_fetches_wait_up_to_a_number_and_a_share() -> None:
    some = bounds()
    some.waiting.add(NO_TENANT, MAX_WAITING_FETCHES - 1)
    some.check_waiting(NO_TENANT)
    some.waiting.add(NO_TENANT, 1)
    with pytest.raises(RateLimitRejectedError, match="10001 fetches would wait for messages, at most 10000 may"):
        some.check_waiting(NO_TENANT)
    other = bounds()
    other.waiting.add(ANN, MAX_WAITING_FETCHES // 2)
    with pytest.raises(RateLimitRejectedError, match="uses 5000 fetches that wait"):
        other.check_waiting(ANN)
    other.check_waiting(BOB)
