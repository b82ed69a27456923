"""Masks hide secrets in each form that a text has them in, and leave what is no secret."""

import json

import pytest

from tidelog_cli.output.masks import MASK, Masks, is_secret_name, passwords_in, without_passwords

KNOWN = 'p"4ss wörd/1'


@pytest.mark.parametrize(
    "text", [KNOWN, json.dumps(KNOWN), json.dumps(KNOWN, ensure_ascii=False), "p%224ss%20w%C3%B6rd%2F1"]
)
def test_a_known_secret_is_hidden_however_it_is_written(text: str) -> None:
    assert Masks.of([f"{KNOWN}\n"]).masked(f"<{text}>") in (f"<{MASK}>", f'<"{MASK}">')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://me:pw@host/x?a=b#c", f"https://{MASK}@host/x?{MASK}"),
        ("https://token@host", f"https://{MASK}@host"),
        ("me:pw@host:2379,other", f"{MASK}@host:2379,other"),
        ("tdl_0123456789ab_abcDEF-_", MASK),
        ("eyJhbGciOiJ.eyJpc3MiOi.c2ln", MASK),
        ("Authorization: Bearer abcdefgh", "Authorization: "),
        ("password=abc, x", f"password={MASK}, x"),
        ('{"api_key": "abc"}', f'{{"api_key": "{MASK}"}}'),
        ("-----BEGIN PRIVATE KEY-----\\nMII\\n-----END PRIVATE KEY----- x", f"{MASK} x"),
        ("-----BEGIN PRIVATE KEY-----\nMII", MASK),
    ],
)
def test_what_has_the_form_of_a_secret_is_hidden(text: str, expected: str) -> None:
    masked = Masks.of([]).masked(text)
    assert masked.startswith(expected)
    assert not {"pw", "abc", "MII", "abcdefgh"} & set(masked.replace('"', " ").replace("=", " ").split())
    assert Masks.of([]).masked(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "pulsar://127.0.0.1:6650", '{"key": "cluster.token_file", "value": "/etc/tidelog/token"}',
        'tidelog_append_ack_seconds_bucket{le="0.1"} 5.0', "2026-11-21T12:22:11.935Z orders/0", "the node is ready",
    ],
)  # fmt: skip
def test_what_is_no_secret_stays(text: str) -> None:
    assert Masks.of(["", "ab"]).masked(text) == text


def test_names_and_urls_with_secrets_are_known() -> None:
    assert all(map(is_secret_name, ("sasl.password", "token", "sasl.jaas.config")))
    assert not is_secret_name("sasl.mechanism")
    assert passwords_in("pulsar://u:one@a, https://b/c http://:two@d,u:three@e:1") == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://me:a:b@host:1/x?y=z", f"http://me:{MASK}@host:1/x?y=z"),
        ("me:pw@a:1,b:2,you:pw2@c", f"me:{MASK}@a:1,b:2,you:{MASK}@c"),
        ("api://me@host", "api://me@host"),
        ("pulsar://127.0.0.1:6650", "pulsar://127.0.0.1:6650"),
    ],
)
def test_only_passwords_of_addresses_are_hidden(text: str, expected: str) -> None:
    assert without_passwords(text) == expected
    assert without_passwords(expected) == expected
