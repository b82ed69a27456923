"""A client uses as many caller ids as concurrent calls of Consume, and each counts up. Pure."""

from contextlib import ExitStack

import pytest

from tidelog.transport.consume_ids import ConsumeIds

CALL = 1 << 24


def test_calls_one_after_the_other_are_of_one_caller_that_counts_up() -> None:
    ids = ConsumeIds()
    numbers = []
    for _ in range(40):
        with ids.one(None) as number:
            numbers.append(number)
    assert numbers == list(range(numbers[0], numbers[0] + 40))
    assert numbers[0] % CALL == 1


def test_calls_at_once_are_of_different_callers_which_are_used_again() -> None:
    ids = ConsumeIds()
    callers = set()
    for _ in range(10):
        with ExitStack() as stack:
            at_once = [stack.enter_context(ids.one(None)) for _ in range(3)]
            assert len({number // CALL for number in at_once}) == 3
            callers |= {number // CALL for number in at_once}
    assert len(callers) == 3


def test_a_caller_that_has_used_all_its_numbers_is_replaced() -> None:
    ids = ConsumeIds()
    ids._free.append((7 << 24) + CALL - 1)
    with ids.one(None) as number:
        assert number // CALL != 7
        assert number % CALL == 1


def test_a_number_of_the_callers_own_is_taken_as_it_is() -> None:
    ids = ConsumeIds()
    with ids.one(5) as number:
        assert number == 5
    assert not ids._free
    for wrong in (0, 1 << 64):
        with pytest.raises(ValueError, match="consume_id"), ids.one(wrong):
            pass
