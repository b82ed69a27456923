"""Labels and selectors follow the rules of Gazette's.

Method: the vectors of Gazette's own documentation of selectors, and labels at and beyond their limits.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.errors import InvalidNameError, InvalidRequestError
from tidelog_server.core.names import check_journal_name, is_journal_channel, parse_vchannel_name
from tidelog_server.core.sorted_names import NamePattern, SortedNames
from tidelog_server.journals.labels import EVERY_JOURNAL, Selector, Term, check_labels, meta_labels

VECTOR = Selector(
    (Term("inc-1", "a-val/", is_prefix=True), Term("inc-2"), Term("inc-3", "val-1"), Term("inc-3", "val-2")),
    (Term("exc-1"), Term("exc-2", "val-3"), Term("exc-2", "val-4")),
)
MATCHING = {"inc-1": "a-val/a/1", "inc-2": "any", "inc-3": "val-1", "foo": "bar"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"inc-3": "val-2"}, True),
        ({"inc-2": None}, False),
        ({"inc-1": "bad-val/4"}, False),
        ({"exc-1": "any"}, False),
        ({"exc-1": ""}, False),
        ({"exc-2": "val-ok"}, True),
        ({"exc-2": "val-4"}, False),
        ({"inc-3": "val-3"}, False),
    ],
)
def test_a_selector_matches_as_gazettes_does(changes: dict[str, str | None], expected: bool) -> None:
    labels = {name: value for name, value in {**MATCHING, **changes}.items() if value is not None}
    assert VECTOR.matches(check_labels(labels.items())) == expected


def test_a_selector_that_only_excludes_matches_the_empty_set() -> None:
    assert Selector(exclude=VECTOR.exclude).matches(())
    assert EVERY_JOURNAL.matches(())
    assert not Selector((Term("name"),)).matches(())


def test_one_of_several_values_is_enough() -> None:
    labels = check_labels([("part", "1"), ("part", "2")])
    assert Selector((Term("part", "2"),)).matches(labels)
    assert not Selector((Term("part", "1"),), (Term("part", "2"),)).matches(labels)


def test_the_name_and_the_paths_above_it_are_labels() -> None:
    labels = meta_labels("a/topic/part-000")
    assert labels == (("name", "a/topic/part-000"), ("prefix", "a/"), ("prefix", "a/topic/"))
    assert Selector((Term("prefix", "a/topic/"),)).matches(labels)
    assert not Selector((Term("prefix", "a/top"),)).matches(labels)


def test_labels_are_sorted_and_unique() -> None:
    given = [("b", "2"), ("b", "1"), ("aa", "x"), ("b", "2")]
    with pytest.raises(InvalidRequestError, match="label name 'b'"):
        check_labels(given)
    assert check_labels([(name * 2, value) for name, value in given]) == (("aaaa", "x"), ("bb", "1"), ("bb", "2"))


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([("a", "1")], "2 to 64 letters"),
        ([("a" * 65, "1")], "2 to 64 letters"),
        ([("a b", "1")], "2 to 64 letters"),
        ([("ab", "x y")], "the value 'x y'"),
        ([("ab", "x" * 1_025)], "up to 1024"),
        ([("ab", ""), ("ab", "1")], "an empty value must be the only one"),
        ([("content-type", "a"), ("content-type", "b")], "at most one value"),
        ([("name", "a")], "is reserved"),
        ([("prefix", "a/")], "is reserved"),
        ([(f"label-{number}", "x" * 1_024) for number in range(16)], "at most 16384 are allowed"),
    ],
)
def test_invalid_labels_are_refused(labels: list[tuple[str, str]], problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        check_labels(labels)


TYPE, SUBTYPE = "app.gazette.dev/message-type", "app.gazette.dev/message-subtype"


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([("content-type", "")], "the value '' of label 'content-type' is not a media type"),
        ([("content-type", "/json")], "is not a media type"),
        ([("content-type", "application/")], "is not a media type"),
        ([("content-type", "a/b/c")], "is not a media type"),
        ([("content-type", "text/csv=1")], "is not a media type"),
        ([(TYPE, "M")], f"label '{TYPE}' is set without label 'content-type'"),
        ([(SUBTYPE, "S")], f"label '{SUBTYPE}' is set without label '{TYPE}'"),
        ([(SUBTYPE, "S"), ("content-type", "text/csv")], f"label '{SUBTYPE}' is set without label '{TYPE}'"),
    ],
)
def test_labels_that_describe_messages_need_one_another(labels: list[tuple[str, str]], problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        check_labels(labels)


@pytest.mark.parametrize("content_type", ["text", "application/x-ndjson", "application/vnd.a+json", "a%b_c/d.e"])
def test_media_types_are_taken(content_type: str) -> None:
    labels = [("content-type", content_type), (TYPE, "M"), (SUBTYPE, "S")]
    assert check_labels(labels) == tuple(sorted(labels))


@pytest.mark.parametrize(
    ("selector", "is_allowed"),
    [
        (Selector((Term("foo"), Term("foo", "bar"))), False),
        (Selector((), (Term("foo", "bar", is_prefix=True), Term("foo"))), False),
        (Selector((Term("foo"),), (Term("foo", "bar"),)), True),
        (Selector((Term("foo", "a"), Term("foo", "b"), Term("foo", "b", is_prefix=True))), True),
        (Selector((Term("foo"), Term("foo"))), True),
    ],
)
def test_terms_of_a_label_for_any_and_for_one_value_contradict_each_other(selector: Selector, is_allowed: bool) -> None:
    if is_allowed:
        selector.check()
    else:
        with pytest.raises(InvalidRequestError, match="label 'foo' and one for 'bar', which contradict each other"):
            selector.check()


LABELS = st.lists(st.tuples(st.sampled_from(["aa", "bb", "cc"]), st.text("ab", max_size=2)), max_size=6)


@given(LABELS, st.builds(Term, st.sampled_from(["aa", "bb", "dd"]), st.text("ab", max_size=2), st.booleans()))
def test_a_look_up_finds_what_a_comparison_with_each_label_finds(labels: list[tuple[str, str]], term: Term) -> None:
    expected = any(
        name == term.name and (term.value in ("", value) or (term.is_prefix and value.startswith(term.value)))
        for name, value in labels
    )
    assert term.matches(tuple(sorted(set(labels)))) == expected


@given(
    st.sampled_from(["my/one", "my/one/part", "abcd"]),
    st.builds(
        Term, st.sampled_from(["name", "prefix"]), st.sampled_from(["", "m", "my", "my/", "my/one", "my/one/", "abcd"]),
        st.booleans(),
    ),
)  # fmt: skip
def test_implicit_labels_match_as_if_they_were_labels(journal: str, term: Term) -> None:
    assert term.matches((), journal) == term.matches(meta_labels(journal))


@pytest.mark.parametrize("name", ["abcd", "a/topic/part-000", "A+b=c%d/_.x", "x" * 512, "a/.../b"])
def test_valid_names_are_taken(name: str) -> None:
    assert check_journal_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "abc", "x" * 513, "/abc", "abc/", "a//b", "a/./b", "../b", "a/..", "a:bc", "a bc", "abc\n", "äbcd", "a*bc"],
)
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidNameError):
        check_journal_name(name)


def test_channels_of_journals_are_told_from_others() -> None:
    assert is_journal_channel("_journal.7")
    assert parse_vchannel_name("_journal.7/0").channel == "_journal.7"
    for name in ("_journal.", "_journal.07", "_journal.x", "_journal.7.8", "_audit", "journal.7", "_journal.7/0"):
        assert not is_journal_channel(name)
    for name in ("_journal.x/0", "_audit/0", "_journal./0"):
        with pytest.raises(InvalidNameError):
            parse_vchannel_name(name)


NAMES = st.sampled_from(["my/one", "my/two", "my/one/part", "other"])
TERMS = st.builds(
    Term, st.sampled_from(["name", "prefix", "topic"]), NAMES | st.sampled_from(["", "my/"]), st.booleans()
)
SELECTORS = st.builds(Selector, st.lists(TERMS, max_size=4).map(tuple), st.lists(TERMS, max_size=2).map(tuple))


@given(SELECTORS, NAMES, st.sampled_from(["", "my/one"]))
def test_a_selector_matches_only_journals_that_it_names(selector: Selector, name: str, topic: str) -> None:
    named = selector.journals()

    if selector.matches((("topic", topic),), name):
        assert named is None or SortedNames((name,)).page(1, within=(named,)) == [name]


def test_a_selector_names_journals_if_each_of_its_names_has_a_value() -> None:
    one, two, below = Term("name", "my/one"), Term("name", "my/two"), Term("name", "my/", is_prefix=True)
    assert Selector((one, two, Term("topic"))).journals() == [NamePattern("my/one"), NamePattern("my/two")]
    assert Selector((one, below)).journals() == [NamePattern("my/one"), NamePattern("my/", is_prefix=True)]
    assert Selector((Term("prefix", "my/"), Term("topic"))).journals() == [NamePattern("my/", is_prefix=True)]
    assert Selector((Term("name"),)).journals() is None
    assert Selector((), (one,)).journals() is None
