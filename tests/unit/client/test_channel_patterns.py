"""Goal: a pattern covers the names that a shell would match, and no other text is taken for one.

Method: single patterns, and any names, compared with a regular expression made for each pattern.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.read.channel_patterns import MAX_PATTERN_CHARACTERS, ChannelPattern, GroupPattern, is_pattern, patterns_of

_NAME = st.from_regex(r"_?[ab.][ab0._-]{0,6}", fullmatch=True)
_PARTS = st.sampled_from(["a", "b", "0", ".", "-", "_", "*", "?", "[ab]", "[!a]", "[a-b]"])
_AS_REGEX = {"*": ".*", "?": ".", ".": r"\.", "-": r"\-", "[!a]": "[^a]"}


@pytest.mark.parametrize(
    ("pattern", "covered", "others"),
    [
        ("orders.*", ["orders.eu", "orders.eu.old"], ["orders", "ordersx", "x.orders.eu", "_orders.eu"]),
        ("*", ["a", "orders.eu"], ["_audit"]),
        ("*.eu", ["orders.eu", "a.b.eu"], ["orders.eu.old", "eu"]),
        ("s?", ["s1", "s."], ["s", "s12"]),
        ("shard-[0-3]", ["shard-0", "shard-3"], ["shard-4", "shard-", "shard-00"]),
        ("shard-[!0-3]", ["shard-4", "shard-x"], ["shard-0"]),
    ],
)
def test_a_pattern_covers_whole_names(pattern: str, covered: list[str], others: list[str]) -> None:
    found = ChannelPattern(pattern)
    assert [name for name in [*covered, *others] if found.covers(name)] == covered
    assert all(name.startswith(found.prefix) for name in covered)


@given(st.sampled_from(["a", "b", "0", "*", "?", "[ab]"]), st.lists(_PARTS, max_size=6), _NAME)
def test_a_pattern_is_its_parts_in_order(first: str, rest: list[str], name: str) -> None:
    pattern = ChannelPattern("".join((first, *rest)))
    expected = re.fullmatch("".join(_AS_REGEX.get(part, part) for part in (first, *rest)), name)
    assert pattern.covers(name) == (expected is not None and not name.startswith("_"))
    assert not pattern.covers(name) or name.startswith(pattern.prefix)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a pattern of channels: expected up to 512 characters of names with"),
        (".*", "is not a pattern of channels"),
        ("Orders*", "is not a pattern of channels"),
        ("^orders.*$", "regular expressions are not supported"),
        ("orders\\..*", "regular expressions are not supported"),
        ("(a|b)*", "regular expressions are not supported"),
        ("a[b*", "is not a pattern of channels"),
        ("a[]*", "is not a pattern of channels"),
        ("a*\n", "is not a pattern of channels"),
        ("a" * MAX_PATTERN_CHARACTERS + "*", "is not a pattern of channels"),
        ("orders.*/0", "stands for all of their vchannels"),
        ("_a*", "no pattern matches system channels"),
    ],
)
def test_another_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ChannelPattern(text)


def test_a_name_is_no_pattern() -> None:
    assert [name for name in ("orders", "orders/0", "a.b-c_d", "", "o*", "o?", "o[ab]") if is_pattern(name)] == [
        "o*", "o?", "o[ab]",
    ]  # fmt: skip
    assert patterns_of(["orders", "o*"]) == (ChannelPattern("o*"),)


def test_a_pattern_without_a_match_says_what_it_means() -> None:
    assert (
        ChannelPattern("s.*").advice == "it matches names that begin with 's.'; use 's*' for those that begin with 's'"
    )
    assert "create a channel" in ChannelPattern("s*").advice


def test_a_pattern_of_groups_may_have_capitals_which_count() -> None:
    names = ["Billing.eu", "billing.eu", "Audit"]
    assert [name for name in names if GroupPattern("[A-B]*").covers(name)] == ["Billing.eu", "Audit"]
    assert "create a group" in GroupPattern("B*").advice
    with pytest.raises(ValueError, match="is not a pattern of groups"):
        GroupPattern("b*|a")


def test_many_wildcards_do_not_take_long() -> None:
    assert not ChannelPattern("a*" * 250).covers("a" * 126 + "b" * 1)
