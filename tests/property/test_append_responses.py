"""Grouping of messages for several vchannels. Method: hypothesis against the simplest model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import AppendResponse, AppendResult, Message, Tick, TidelogError, To
from tidelog._append_responses import AppendResponses, grouped, in_order
from tidelog._transaction import full_name

VCHANNELS = ("a", "a/0", "b/0", "b/1", "c")
PAIRS = st.lists(st.tuples(st.sampled_from(VCHANNELS), st.binary(max_size=4)), max_size=30)


def result(tick: int) -> AppendResult:
    return AppendResult(Tick(tick), Tick(tick), "sync")


@given(PAIRS)
def test_each_vchannel_is_one_group_in_the_order_in_which_its_messages_were_given(
    pairs: list[tuple[str, bytes]],
) -> None:
    groups = grouped(pairs, full_name)

    model: dict[str, list[tuple[int, bytes]]] = {}
    for index, (vchannel, payload) in enumerate(pairs):
        model.setdefault(full_name(vchannel), []).append((index, payload))
    found = {full_name(group.vchannel): list(zip(group.indexes, group.messages, strict=True)) for group in groups}
    assert found == model
    assert list(found) == list(model)


@given(PAIRS)
def test_a_vchannel_under_two_names_goes_by_the_one_that_the_server_can_refuse(pairs: list[tuple[str, bytes]]) -> None:
    given_names = {vchannel for vchannel, _ in pairs}

    for group in grouped(pairs, full_name):
        assert group.vchannel in given_names
        if full_name(group.vchannel) == "a/0" and "a" in given_names:
            assert group.vchannel == "a"


@given(PAIRS)
def test_responses_stand_where_their_messages_stood(pairs: list[tuple[str, bytes]]) -> None:
    groups = grouped(pairs, full_name)

    responses = in_order((group, [AppendResponse(result(index + 1)) for index in group.indexes]) for group in groups)

    assert [each.first_tick for each in responses.results()] == list(range(1, len(pairs) + 1))
    assert responses.largest_tick == len(pairs)


@given(st.lists(st.booleans(), max_size=10))
def test_the_first_error_is_the_one_that_results_raise(failures: list[bool]) -> None:
    errors = [TidelogError(str(index)) if failed else None for index, failed in enumerate(failures)]
    responses = AppendResponses(
        AppendResponse(None if error else result(index), error) for index, error in enumerate(errors)
    )

    first = next((error for error in errors if error is not None), None)
    assert responses.first_error is first
    if first is None:
        assert len(responses.results()) == len(failures)
    else:
        with pytest.raises(TidelogError) as caught:
            responses.results()
        assert caught.value is first


def test_responses_are_a_sequence() -> None:
    one, two = AppendResponse(result(1)), AppendResponse(error=TidelogError("no"))
    responses = AppendResponses([one, two])

    assert (len(responses), responses[1], list(responses)) == (2, two, [one, two])
    assert responses[:1] == AppendResponses([one])
    assert {responses: 1}[AppendResponses([one, two])] == 1
    assert repr(responses) == "<AppendResponses of 2 messages, 1 with an error>"
    assert AppendResponses([]).largest_tick == 0


@pytest.mark.parametrize("wrong", [b"x", ("a",), ("a", b"x", 1), (b"a", b"x"), ("a", "text"), ["a", b"x"], None])
def test_what_is_no_pair_is_refused_by_its_index(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"messages\[1\]"):
        grouped([To("a", Message(b"fine")), wrong], full_name)  # type: ignore[list-item]
