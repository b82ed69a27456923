"""Patterns of permissions: which are valid, and which names they cover."""

import pytest

from tidelog_server.security.grants import GrantError, parse_grant


@pytest.mark.parametrize("verb", ["group.consume", "group.manage"])
def test_patterns_of_groups_may_have_capitals_as_their_names_may(verb: str) -> None:
    exact, below = parse_grant(f"{verb}:by-dev-dataNode-3"), parse_grant(f"{verb}:By.dev.*")

    assert exact.covers("by-dev-dataNode-3")
    assert not exact.covers("by-dev-datanode-3")
    assert below.covers("By.dev.Node")
    assert not below.covers("by.dev.Node")


@pytest.mark.parametrize("pattern", ["Orders", "Orders.*"])
def test_patterns_of_channels_may_not(pattern: str) -> None:
    with pytest.raises(GrantError, match="is not a pattern"):
        parse_grant(f"read:{pattern}")
