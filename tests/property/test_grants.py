"""Permissions agree with an oracle of thirty lines that compares one character at a time.

Method: hypothesis draws grants and similar names; every verb is checked on every name.
"""

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.security.grants import (
    NAMELESS,
    OF_JOURNALS,
    OF_MAILBOXES,
    Grant,
    Grants,
    Verb,
    parse_grant,
    parse_grants,
)

_PARTS = st.sampled_from(["a", "ab", "b", "a-b", "a_", "x"])
NAMES = st.lists(_PARTS, min_size=1, max_size=3).map(".".join)
_PATH_PARTS = st.sampled_from(["abcd", "_bcd", "a.b=", "B%+-", "abcde"])
JOURNALS = st.lists(_PATH_PARTS, min_size=1, max_size=3).map("/".join)
TRICKS = st.sampled_from(
    ["*", "abcd/*", "abcd/", "/abcd", "abcd//", "a.*", "a.", "_audit", "_audit/0", "a*", "", ".a", "A", "a..b"]
)
PATTERNS = st.one_of(NAMES, NAMES.map(lambda name: name + ".*"), st.just("*"))
JOURNAL_PATTERNS = st.one_of(JOURNALS, JOURNALS.map(lambda name: name + "/*"), st.just("*"))
MAILBOXES = st.text(st.sampled_from("ab_@:*./ \u00e4"), min_size=1, max_size=6)
MAILBOX_PATTERNS = st.one_of(MAILBOXES, MAILBOXES.map(lambda name: name + "/*"), st.just("*"))
NAMED_VERBS = sorted(set(Verb) - NAMELESS)
GRANTS = st.one_of(
    st.builds(Grant, st.sampled_from(sorted(OF_MAILBOXES)), MAILBOX_PATTERNS),
    st.builds(Grant, st.sampled_from(sorted(set(NAMED_VERBS) - OF_JOURNALS - OF_MAILBOXES)), PATTERNS),
    st.builds(Grant, st.sampled_from(sorted(OF_JOURNALS)), JOURNAL_PATTERNS),
    st.builds(Grant, st.sampled_from(sorted(NAMELESS))),
)


def oracle(grants: list[Grant], verb: str, name: str) -> bool:
    """Decide without sets and prefixes: compare the pattern with the name character by character."""
    is_of_paths = verb.startswith(("journal.", "mailbox."))
    between = "/" if is_of_paths else "."
    if name[:1] == "_" and not is_of_paths:
        needed = {"read": "admin.read", "channel.truncate": "admin.write"}.get(verb)
        return any(grant.verb == needed for grant in grants)
    for grant in grants:
        if grant.verb != verb:
            continue
        if grant.pattern == "*":
            return True
        if grant.pattern[-2:] != f"{between}*":
            if grant.pattern == name:
                return True
            continue
        wanted, found = grant.pattern[:-2].split(between), name.split(between)
        if len(found) <= len(wanted):
            continue
        if all(found[index] == part for index, part in enumerate(wanted)) and between.join(found[len(wanted) :]):
            return True
    return False


@given(st.lists(GRANTS, max_size=6), st.one_of(NAMES, JOURNALS, MAILBOXES, TRICKS))
def test_every_verb_is_decided_as_the_oracle_does(grants: list[Grant], name: str) -> None:
    permitted = Grants(grants)
    for verb in NAMED_VERBS:
        assert permitted.allow(verb, name) == oracle(grants, verb, name), (verb, name)


@given(st.lists(GRANTS, max_size=6))
def test_what_is_written_is_read_as_the_same(grants: list[Grant]) -> None:
    assert parse_grants([str(grant) for grant in grants]) == Grants(grants)


@given(GRANTS, st.one_of(NAMES, JOURNALS, MAILBOXES))
def test_a_grant_alone_covers_what_it_permits(grant: Grant, name: str) -> None:
    if grant.verb not in NAMELESS:
        assert grant.covers(name) == Grants([parse_grant(str(grant))]).allow(grant.verb, name)


@given(st.lists(GRANTS, max_size=4), st.lists(GRANTS, max_size=4), st.one_of(NAMES, JOURNALS, MAILBOXES))
def test_more_grants_permit_no_less(some: list[Grant], more: list[Grant], name: str) -> None:
    for verb in NAMED_VERBS:
        assert Grants([*some, *more]).allow(verb, name) >= Grants(some).allow(verb, name)
