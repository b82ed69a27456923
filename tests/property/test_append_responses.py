"""Grouping of messages for several vchannels, and deliver filters. Method: hypothesis against a simple model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import AppendResponse, AppendResult, At, DeliverFilter, Message, Tick, TidelogError, To
from tidelog.read.positions import FOLLOW
from tidelog.read.scan_plan import scan_arguments
from tidelog.txn.conditions import full_name
from tidelog.wal.deliver_filters import filter_options
from tidelog.wal.responses import AppendResponses, grouped, in_order

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
        grouped([To("a", Message(b"fine")), wrong], full_name)  # type: ignore[list-item]  # the point of the test


TICKS = st.integers(0, 50)
FILTERS = st.one_of(
    TICKS.map(DeliverFilter.tick_gt),
    TICKS.map(DeliverFilter.tick_gte),
    st.sets(st.integers(0, 3), min_size=1).map(lambda types: DeliverFilter.message_types(*types)),
)


def passes(each: DeliverFilter, tick: int, message_type: int) -> bool:
    if isinstance(each.value, frozenset):
        return message_type in each.value
    return tick > each.value if each.kind == "tick_gt" else tick >= each.value


@given(st.lists(FILTERS, max_size=6))
def test_filters_pass_together_what_each_of_them_passes(filters: list[DeliverFilter]) -> None:
    types = [each.value for each in filters if isinstance(each.value, frozenset)]
    if types and not frozenset.intersection(*types):
        with pytest.raises(ValueError, match="no type in common"):
            filter_options(filters)
        return

    options = filter_options(filters)

    joined = scan_arguments(At.earliest(), FOLLOW, **options).filters
    for tick in range(52):
        for message_type in range(4):
            expected = all(passes(each, tick, message_type) for each in filters)
            tick_gt, tick_gte = options.get("tick_gt"), options.get("tick_gte")
            wanted = options.get("types")
            found = (
                (tick_gt is None or tick > tick_gt)
                and (tick_gte is None or tick >= tick_gte)
                and (wanted is None or message_type in wanted)
            )
            assert found == expected
    assert len(joined) == len({each.kind for each in filters})


def test_filters_that_cannot_be_joined_are_refused() -> None:
    shows = DeliverFilter.message_types(1, 2)
    hides = DeliverFilter.message_types(2, hides_broadcasts=True)

    assert filter_options([hides, hides]) == {"types": frozenset([2]), "hides_broadcasts": True}
    with pytest.raises(ValueError, match="hides_broadcasts"):
        filter_options([shows, hides])
    with pytest.raises(ValueError, match="without types"):
        DeliverFilter.message_types()
    with pytest.raises(ValueError, match="type"):
        DeliverFilter.message_types(-1)
    with pytest.raises(ValueError, match="tick"):
        DeliverFilter.tick_gt(1 << 63)
    with pytest.raises(TypeError, match="DeliverFilter"):
        filter_options([7])  # type: ignore[list-item]  # the point of the test
    with pytest.raises(ValueError, match="class methods"):
        filter_options([DeliverFilter("tick_gt", frozenset())])
