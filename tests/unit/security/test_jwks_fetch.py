"""Key sets come from a file, from https, or from this machine, and from where the issuer says; never from a redirect.

Method: a web server on a thread, with answers that the test chooses.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog_server.security.certificates import CertificateError
from tidelog_server.security.jwks import (
    MAX_JWKS_BYTES,
    KeySetError,
    KeySource,
    check_url,
    discovery_url,
    is_url,
)
from tidelog_testing.servers.certificates import ISSUER, Authority, Signer, make_pair, write_key_set
from tidelog_testing.servers.issuer import DOCUMENT, KEYS_PATH, Issuer

SIGNER = Signer("web")
ENDLESS = (200, b" " * (MAX_JWKS_BYTES + 10))


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer(SIGNER) as running:
        yield running


def test_keys_are_fetched_from_this_machine_and_from_files(issuer: Issuer, tmp_path: Path) -> None:
    assert KeySource(f"{issuer.base}/keys", ISSUER).read().keys() == {"web"}
    file = write_key_set(tmp_path / "keys.json", Signer("file"))
    assert KeySource(str(file), ISSUER).read().keys() == {"file"}


@pytest.mark.parametrize(
    ("status", "content", "told"),
    [(302, b"", "cannot be read"), (404, b"", "cannot be read"), (0, b"", "cannot be read"), (*ENDLESS, "bytes"),
     (200, b"<html>", "not a JSON Web Key Set"), (200, b"\xff", "not a JSON Web Key Set")],
)  # fmt: skip
@pytest.mark.parametrize("location", ["", "/other"], ids=["discovered", "url"])
def test_an_answer_that_is_no_key_set_is_refused(
    issuer: Issuer, location: str, status: int, content: bytes, told: str
) -> None:
    issuer.answers[location or KEYS_PATH] = (status, content)
    if not location and status == 302:
        # The redirect must not be one to itself.
        issuer.describe(jwks_uri=f"{issuer.base}/moved")
        issuer.answers["/moved"] = (302, b"")
        issuer.publish(SIGNER)
    with pytest.raises(KeySetError, match=told):
        KeySource(location and issuer.base + location, issuer.url).read()


def test_what_is_on_this_machine_does_not_come_through_a_proxy(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert KeySource("", issuer.url).read().keys() == {"web"}


def test_what_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    for location in (str(tmp_path / "missing"), "http://127.0.0.1:1/keys"):
        with pytest.raises(KeySetError, match="cannot be read"):
            KeySource(location, ISSUER).read()


def test_keys_do_not_come_in_plaintext_from_another_machine() -> None:
    assert check_url("https://example.org/keys")
    for url in (
        "http://example.org/keys", "file:///etc/passwd", "ftp://127.0.0.1/keys", "https:///keys", "keys", "",
        "https://[::1", "http://127.0.0.1.example.org/", "http://127.0.0.1@example.org/", "data:application/json,{}",
    ):  # fmt: skip
        with pytest.raises(KeySetError):
            check_url(url)
    assert not is_url("keys.json")


def test_the_document_of_an_issuer_is_below_its_path() -> None:
    for issuer in ("https://id.example/realms/acme", "https://id.example/realms/acme/"):
        assert discovery_url(issuer) == f"https://id.example/realms/acme{DOCUMENT}"
    for issuer in ("https://id.example/?a=b", "https://id.example/#a", "https://user@id.example", "issuer"):
        with pytest.raises(KeySetError):
            discovery_url(issuer)


def test_the_issuer_names_its_keys() -> None:
    with Issuer(SIGNER, path="/realms/acme") as issuer:
        assert KeySource("", issuer.url).read().keys() == {"web"}
        assert issuer.asked == [f"/realms/acme{DOCUMENT}", KEYS_PATH]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"issuer": "https://other.example"}, "its `issuer` is 'https://other.example'"),
        ({"issuer": None}, "`issuer`"),
        ({"issuer": ["a"]}, "`issuer`"), ({"jwks_uri": None}, "no `jwks_uri`"), ({"jwks_uri": 7}, "no `jwks_uri`"),
        ({"jwks_uri": "file:///etc/passwd"}, "not an https URL"), ({"jwks_uri": "http://a.example/k"}, "not an https"),
        ({"jwks_uri": "http://127.0.0.1:1/\r\nHost: a"}, "cannot be read"), ({"jwks_uri": "https://[::1"}, "not a URL"),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_document_is_refused(issuer: Issuer, changed: dict[str, object], told: str) -> None:
    issuer.describe(**changed)
    with pytest.raises(KeySetError, match=told):
        KeySource("", issuer.url).read()


@pytest.mark.parametrize(("status", "content"), [(302, b""), (404, b""), (500, b"{}"), (0, b""), ENDLESS, (200, b"[]")])
def test_an_answer_that_is_no_document_is_refused(issuer: Issuer, status: int, content: bytes) -> None:
    issuer.answers[DOCUMENT] = (status, content)
    with pytest.raises(KeySetError):
        KeySource("", issuer.url).read()
    assert issuer.asked == [DOCUMENT]


def test_an_issuer_with_a_slash_at_its_end_has_it_in_its_document(issuer: Issuer) -> None:
    with pytest.raises(KeySetError, match="`issuer`"):
        KeySource("", f"{issuer.url}/").read()
    issuer.describe(issuer=f"{issuer.url}/")
    assert KeySource("", f"{issuer.url}/").read().keys() == {"web"}


def test_over_https_only_the_named_authority_counts(tmp_path: Path) -> None:
    authority, stranger = Authority.make(tmp_path), Authority.make(tmp_path, "stranger")
    pair = make_pair("issuer", authority.pair, has_loopback=True).write(tmp_path, "issuer")
    with Issuer(SIGNER, pair=pair) as issuer:
        assert KeySource("", issuer.url, authority.ca).read().keys() == {"web"}
        for ca in (None, stranger.ca):
            with pytest.raises(KeySetError, match="CERTIFICATE_VERIFY_FAILED"):
                KeySource("", issuer.url, ca).read()
        # The name counts too.
        other = issuer.url.replace("127.0.0.1", "[::1]")
        with pytest.raises(KeySetError):
            KeySource(f"{other}/keys", other, authority.ca).read()
        # What an issuer on https names is on https, also on this machine.
        issuer.describe(jwks_uri=issuer.base.replace("https", "http") + KEYS_PATH)
        with pytest.raises(KeySetError, match="not an https URL"):
            KeySource("", issuer.url, authority.ca).read()


def test_a_file_without_authorities_is_refused(tmp_path: Path) -> None:
    for name, content in (("empty", b""), ("text", b"none"), ("bytes", b"\xff\xfe")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(KeySetError, match="no certificates"):
            KeySource("", ISSUER, tmp_path / name).context()
    with pytest.raises(CertificateError, match="cannot be read"):
        KeySource("", ISSUER, tmp_path / "missing").context()


def test_one_small_key_does_not_take_the_others_away(issuer: Issuer) -> None:
    small = {"kty": "RSA", "kid": "small", "use": "sig", "n": "AQ", "e": "AQAB"}
    issuer.answers[KEYS_PATH] = (200, json.dumps({"keys": [small, SIGNER.jwk]}).encode())
    assert KeySource("", issuer.url).read().keys() == {"small", "web"}
