"""Addresses in URLs and lists. Method: examples, and hypothesis for any texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.settings.addresses import Addresses, addresses_of, is_url


@pytest.mark.parametrize(
    ("text", "endpoints", "needs_tls"),
    [
        ("localhost:7420", ("localhost:7420",), False),
        ("a:1, b:2,a:1,", ("a:1", "b:2"), False),
        ("tidelog://a:1", ("a:1",), False),
        ("tidelogs://a:1,b:2/", ("a:1", "b:2"), True),
        ("tidelogs://[::1]:7420", ("[::1]:7420",), True),
        ("unix:/run/tidelog.sock", ("unix:/run/tidelog.sock",), False),
    ],
)
def test_an_address_is_a_list_or_a_url(text: str, endpoints: tuple[str, ...], needs_tls: bool) -> None:
    assert addresses_of(text) == Addresses(endpoints, needs_tls=needs_tls)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "there is no endpoint"),
        (" , ", "there is no endpoint"),
        ("tidelog://", "there is no endpoint"),
        ("tidelog://a", "has no port"),
        ("tidelog://a:1/path", "has '/path' after the address"),
        ("tidelog://a:1?tls=no", r"has '\?tls=no' after the address"),
        ("tidelog://a:1#x", "has '#x' after the address"),
        ("http://a:1", "is a URL"),
        ("tidelogs://tidelog://a:1", "has '//a:1' after the address"),
        ("TIDELOG://a:1", "is a URL"),
    ],
)
def test_anything_else_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        addresses_of(text)


@given(st.text(alphabet="abcdefgh123", min_size=8), st.sampled_from(("tidelog", "tidelogs")))
def test_what_precedes_an_at_sign_is_never_in_an_error(secret: str, scheme: str) -> None:
    with pytest.raises(ValueError, match="has an '@'") as refused:
        addresses_of(f"{scheme}://{secret}@log:7420")
    assert secret not in str(refused.value)


@given(st.text(max_size=40))
def test_any_text_is_addresses_or_a_value_error(text: str) -> None:
    try:
        found = addresses_of(text)
    except ValueError:
        return
    assert found.endpoints
    assert len(set(found.endpoints)) == len(found.endpoints)
    assert found.needs_tls <= is_url(text.strip())
