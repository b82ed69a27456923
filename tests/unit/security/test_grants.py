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


@pytest.mark.parametrize(
    ("pattern", "covered", "others"),
    [
        ("b@remote", ["b@remote"], ["b@remote2", "b", "b@remote/x"]),
        ("orders/*", ["orders/eu", "orders/eu/1", "orders/*", "orders/ "], ["orders", "orders/", "ordersx/eu"]),
        ("_own/*", ["_own/1"], ["_own"]),
        ("a.*", ["a.*"], ["a.b"]),
        ("a:b c", ["a:b c"], ["a"]),
        ("/*", ["/x"], ["/", "x"]),
        ("*", ["x", "_mailbox.1", "*", "gr\u00f6\u00dfe"], []),
    ],
)
def test_patterns_of_mailboxes_are_any_text(pattern: str, covered: list[str], others: list[str]) -> None:
    grant = parse_grant(f"mailbox.send:{pattern}")
    assert [name for name in [*covered, *others] if grant.covers(name)] == covered
    assert str(grant) == f"mailbox.send:{pattern}"


@pytest.mark.parametrize("pattern", ["", "a\n", "\u0085", "\ud800", "x" * 257])
def test_patterns_of_mailboxes_are_as_their_names(pattern: str) -> None:
    for text in (f"mailbox.read:{pattern}", "mailbox.read"):
        with pytest.raises(GrantError, match="is not a pattern of mailboxes"):
            parse_grant(text)
