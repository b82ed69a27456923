"""Selectors have the grammar and the meaning of Gazette's. Method: literal texts, and the vectors of that project."""

import pytest

from tidelog import InvalidRequestError
from tidelog.gazette import (
    InvalidSelectorError,
    LabelSelector,
    LabelSet,
    LabelTerm,
    format_label_selector,
    parse_label_selector,
    selector_matches,
)

VECTOR = parse_label_selector("inc-1:prefix=a-val/, inc-2, inc-3 in (val-1, val-2), !exc-1, exc-2 notin (val-3, val-4)")
MATCHING = {"inc-1": "a-val/a/1", "inc-2": "any", "inc-3": "val-1", "foo": "bar"}


@pytest.mark.parametrize(
    ("text", "include", "exclude"),
    [
        ("", (), ()),
        ("  ", (), ()),
        ("foo", (LabelTerm("foo"),), ()),
        ("!foo", (), (LabelTerm("foo"),)),
        ("foo=bar", (LabelTerm("foo", "bar"),), ()),
        ("foo == bar ", (LabelTerm("foo", "bar"),), ()),
        ("foo=", (LabelTerm("foo"),), ()),
        ("foo=a=b", (LabelTerm("foo", "a=b"),), ()),
        (" foo != bar", (), (LabelTerm("foo", "bar"),)),
        ("foo in (b,a)", (LabelTerm("foo", "a"), LabelTerm("foo", "b")), ()),
        ("foo in(a)", (LabelTerm("foo", "a"),), ()),
        ("foo notin ( a , b )", (), (LabelTerm("foo", "a"), LabelTerm("foo", "b"))),
        ("foo not in (a,a)", (), (LabelTerm("foo", "a"),)),
        ("foo:prefix=a/b", (LabelTerm("foo", "a/b", is_prefix=True),), ()),
        ("foo:prefix in (a,b)", (LabelTerm("foo", "a", True), LabelTerm("foo", "b", True)), ()),
        ("foo:prefix", (LabelTerm("foo"),), ()),
        (
            "name=my/topic/part-000, prefix != my/",
            (LabelTerm("name", "my/topic/part-000"),),
            (LabelTerm("prefix", "my/"),),
        ),
        ("logs=pageviews, source=mobile", (LabelTerm("logs", "pageviews"), LabelTerm("source", "mobile")), ()),
        ("app.gazette.dev/message-type=M", (LabelTerm("app.gazette.dev/message-type", "M"),), ()),
        ("foo=bar,", (LabelTerm("foo", "bar"),), ()),
        ("!foo, baz , ", (LabelTerm("baz"),), (LabelTerm("foo"),)),
        ("foo, foo != bar", (LabelTerm("foo"),), (LabelTerm("foo", "bar"),)),
        ("inside,notinside", (LabelTerm("inside"), LabelTerm("notinside")), ()),
    ],
)
def test_texts_denote_selectors(text: str, include: tuple[LabelTerm, ...], exclude: tuple[LabelTerm, ...]) -> None:
    selector = parse_label_selector(text)
    assert selector == LabelSelector(include, exclude)
    assert parse_label_selector(format_label_selector(selector)) == selector


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("bad label", "invalid at character 1, 'bad label'"),
        (",", "invalid at character 1"),
        ("foo,,", "invalid at character 5"),
        ("foo, foo in (bar)", "any value of the label 'foo' and one for 'bar', which contradict each other"),
        ("!foo, foo!=bar", "any value of the label 'foo' and one for 'bar', which contradict each other"),
        ("foo,,bar", "invalid at character 5"),
        ("foo in ()", "invalid at character 1"),
        ("foo in (a", "invalid at character 1"),
        ("foo in a", "invalid at character 1"),
        ("!foo=bar", "invalid at character 1"),
        ("!foo in (bar)", "invalid at character 1"),
        ("ok, foo=b ar", "invalid at character 4"),
        ("foo:suffix=a", "invalid at character 1"),
        ("f\u00f6\u00f6", "invalid at character 1"),
        ("f", "the label name 'f' has 1 characters, expected 2 to 64"),
        ("x" * 65, "has 65 characters, expected 2 to 64"),
        ("foo=" + "x" * 1_025, "a value of the label 'foo' has 1025 characters, expected at most 1024"),
        ("foo!=", "write '!foo' to exclude every value"),
        ("prefix=my", "the value 'my' of the label 'prefix' must end with '/'"),
    ],
)
def test_other_texts_are_refused_with_their_place(text: str, reason: str) -> None:
    with pytest.raises(InvalidSelectorError) as caught:
        parse_label_selector(text)
    assert reason in str(caught.value)
    assert isinstance(caught.value, InvalidRequestError)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"inc-2": None}, False),
        ({"inc-1": "bad-val/4"}, False),
        ({"exc-1": "any"}, False),
        ({"exc-2": "val-ok"}, True),
        ({"exc-2": "val-4"}, False),
    ],
)
def test_the_vectors_of_matching(changes: dict[str, str | None], expected: bool) -> None:
    labels = {name: value for name, value in (MATCHING | changes).items() if value is not None}
    assert selector_matches(VECTOR, LabelSet.of(labels)) == expected


def test_a_selector_that_only_excludes_matches_the_empty_set() -> None:
    assert selector_matches(LabelSelector((), VECTOR.exclude), LabelSet())
    assert not selector_matches(VECTOR, LabelSet())


def test_the_implicit_labels_are_the_name_and_the_paths_above_it() -> None:
    for text in ("name=my/topic/part-000", "prefix=my/", "prefix=my/topic/", "name:prefix=my/topic/part-"):
        assert selector_matches(parse_label_selector(text), LabelSet(), "my/topic/part-000")
    assert not selector_matches(parse_label_selector("prefix=my/topic/part/"), LabelSet(), "my/topic/part-000")
    assert not selector_matches(parse_label_selector("name"), LabelSet())
