"""Sorted names find a part by patterns as a filter would; recent changes are those since a version, or unknown.

Method: property tests against a filter and against a list of all changes.
"""

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.recent_changes import MAX_RECENT_CHANGES, RecentChanges
from tidelog_server.core.sorted_names import NamePattern, SortedNames

NAMES = st.text("ab/", min_size=1, max_size=4)
PATTERNS = st.none() | st.lists(st.builds(NamePattern, NAMES | st.just(""), st.booleans()), max_size=3)


def covers(patterns: list[NamePattern] | None, name: str) -> bool:
    return patterns is None or any(
        name.startswith(each.text) if each.is_prefix else name == each.text for each in patterns
    )


@given(
    st.sets(NAMES, max_size=30), st.sets(NAMES, max_size=8), st.integers(1, 40), st.text("ab/", max_size=2),
    st.text("ab/", max_size=3), st.lists(PATTERNS, max_size=2),
)  # fmt: skip
def test_a_page_has_the_names_that_a_filter_would_choose(
    added: set[str], removed: set[str], limit: int, prefix: str, after: str, within: list[list[NamePattern] | None]
) -> None:
    names = SortedNames()
    for name in added:
        names.add(name)
        names.add(name)
    for name in removed:
        names.discard(name)
    left = added - removed
    expected = [
        name
        for name in sorted(left)
        if name.startswith(prefix) and name > after and all(covers(each, name) for each in within)
    ]

    assert names.page(limit, prefix=prefix, after=after, within=within) == expected[:limit]
    assert list(names) == sorted(left)
    assert len(names) == len(left)
    assert all((name in names) == (name in left) for name in added | removed)


@given(st.lists(NAMES, max_size=20), st.integers(0, 20))
def test_changes_since_a_version_are_the_last_of_each_name(noted: list[str], version: int) -> None:
    changes = RecentChanges()
    for name in noted:
        changes.note(name)
    assert changes.version == len(noted)
    assert changes.since(version) == list(dict.fromkeys(reversed(noted[version:])))


def test_changes_that_are_not_remembered_are_unknown() -> None:
    changes = RecentChanges()
    for number in range(MAX_RECENT_CHANGES + 2):
        changes.note(str(number))
    assert changes.since(1) is None
    found = changes.since(2)
    assert found is not None
    assert len(found) == MAX_RECENT_CHANGES
