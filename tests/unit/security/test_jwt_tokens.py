"""Which signed tokens are accepted and which are refused, whatever their headers claim.

Method: real keys and signatures, with forged headers and claims.
"""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest

from tidelog_server.security.jwks import KeySetError, VerificationKey, parse_key_set
from tidelog_server.security.jwt_tokens import BadTokenError, Claims, JwtPolicy, verify
from tidelog_testing.servers.certificates import AUDIENCE, ISSUER, Signer, forged

POLICY = JwtPolicy(ISSUER, AUDIENCE, leeway_s=30, max_lifetime_s=3_600)
SIGNER, OTHER, CURVE = Signer(), Signer("key-1"), Signer("key-2", kind="ES256")


def keys_of(*signers: Signer) -> dict[str, VerificationKey]:
    return parse_key_set(json.dumps({"keys": [signer.jwk for signer in signers]}).encode())


KEYS = keys_of(SIGNER, CURVE)


def checked(token: str, now_s: float | None = None) -> Claims:
    return verify(token, KEYS, POLICY, time.time() if now_s is None else now_s)


@pytest.mark.parametrize("signer", [SIGNER, CURVE], ids=lambda signer: signer.kind)
def test_a_good_token_tells_who_has_it(signer: Signer) -> None:
    claims = checked(signer.token(sub="bob", roles=["a", "b"]))
    assert (claims.subject, claims.roles) == ("bob", ("a", "b"))


@pytest.mark.parametrize("claim", ["iss", "aud", "sub", "iat", "exp", "jti"])
def test_every_claim_is_required(claim: str) -> None:
    with pytest.raises(BadTokenError):
        checked(SIGNER.token(**{claim: None}))


def at(offset_s: float, kind: type = int) -> Callable[[], Any]:
    """Return a function that returns the time ``offset_s`` seconds after its call."""
    return lambda: kind(int(time.time()) + offset_s)


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://other.example"}, {"aud": "other"}, {"aud": []}, {"aud": 1}, {"sub": ""}, {"sub": 7},
        {"exp": at(-31), "iat": at(-600)}, {"iat": at(60), "exp": at(660)}, {"exp": at(3_700)}, {"exp": at(-31)},
        {"exp": 1e308}, {"exp": at(60, str)}, {"exp": at(60.5, float)}, {"iat": True}, {"iat": at(0, str)},
        {"nbf": at(60)}, {"nbf": "now"}, {"jti": ""}, {"jti": 1}, {"roles": "admin"}, {"roles": [1]},
        {"sub": "x" * 300}, {"exp": -5, "iat": -10}, {"sub": "admin\u200b"}, {"sub": "admin "}, {"sub": "a\u2028"},
        {"roles": ["\u202erole"]},
    ],
    ids=",".join,
)  # fmt: skip
def test_wrong_claims_are_refused(changed: dict[str, Any]) -> None:
    # Times are relative to the run of the test, not to its collection.
    claims = {name: value() if callable(value) else value for name, value in changed.items()}
    with pytest.raises(BadTokenError):
        checked(SIGNER.token(**claims))


@pytest.mark.parametrize(
    "header",
    [
        {"kid": "unknown"}, {"kid": None}, {"kid": "../../etc/passwd"}, {"kid": "key-1' OR '1'='1"}, {"kid": 1},
        {"kid": "x" * 300}, {"typ": "none"}, {"typ": None}, {"crit": ["exp"]}, {"kid": "key-2"},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_headers_are_refused(header: dict[str, Any]) -> None:
    claims = SIGNER.claims()
    whole = {"alg": "EdDSA", "typ": "JWT", "kid": "key-1", **header}
    signed = jwt.encode(claims, SIGNER.key, "EdDSA").split(".")
    body = forged({name: value for name, value in whole.items() if value is not None}, claims).split(".")
    # Signed over the forged header, so that only the header is invalid.
    signature = SIGNER.key.sign(f"{body[0]}.{body[1]}".encode())
    assert signed[2]
    with pytest.raises(BadTokenError):
        checked(".".join([body[0], body[1], base64.urlsafe_b64encode(signature).rstrip(b"=").decode()]))


def test_the_same_with_a_right_header_is_taken() -> None:
    claims = SIGNER.claims()
    head, body, _ = forged({"alg": "EdDSA", "typ": "JWT", "kid": "key-1"}, claims).split(".")
    signature = base64.urlsafe_b64encode(SIGNER.key.sign(f"{head}.{body}".encode())).rstrip(b"=").decode()
    assert checked(f"{head}.{body}.{signature}").subject == "alice"


def test_the_algorithm_is_that_of_the_key_and_not_of_the_token() -> None:
    claims = SIGNER.claims()
    for algorithm in ("none", "None", "HS256", "ES256", "RS256"):
        with pytest.raises(BadTokenError):
            checked(forged({"alg": algorithm, "typ": "JWT", "kid": "key-1"}, claims))
    for secret in (SIGNER.public_pem, base64.urlsafe_b64decode(SIGNER.jwk["x"] + "=")):
        head, body, _ = forged({"alg": "HS256", "typ": "JWT", "kid": "key-1"}, claims).split(".")
        mac = hmac.new(secret, f"{head}.{body}".encode(), hashlib.sha256).digest()
        with pytest.raises(BadTokenError):
            checked(f"{head}.{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}")


def test_another_key_under_the_same_id_is_refused() -> None:
    with pytest.raises(BadTokenError):
        checked(OTHER.token())


def test_the_leeway_counts_both_ways() -> None:
    token = SIGNER.token()
    expires_s = jwt.decode(token, options={"verify_signature": False})["exp"]
    assert checked(token, expires_s + 29).subject == "alice"
    with pytest.raises(BadTokenError):
        checked(token, expires_s + 30)


@pytest.mark.parametrize("text", ["", "a", "a.b", "a.b.c", "...", "é.b.c", "a" * 5_000])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(BadTokenError):
        checked(text)


def test_a_key_set_is_taken_whole_or_not_at_all() -> None:
    private = {**SIGNER.jwk, "d": "AAAA"}
    for keys in (
        [private],
        [SIGNER.jwk, SIGNER.jwk],
        [{**SIGNER.jwk, "kid": None}],
        [{"kty": "oct", "k": "AA"}],
        [],
        3,
    ):
        with pytest.raises(KeySetError):
            parse_key_set(json.dumps({"keys": keys}).encode())
    for text in (b"", b"[]", b"{}", b"\xff", b"[" * 100_000):
        with pytest.raises(KeySetError):
            parse_key_set(text)
    # Keys for other purposes and of other types are allowed in the set.
    found = keys_of(SIGNER) | {}
    others = [{"kty": "RSA", "kid": "r", "n": "AQ", "e": "AQAB"}, {**CURVE.jwk, "use": "enc"}, SIGNER.jwk]
    assert parse_key_set(json.dumps({"keys": others}).encode()).keys() == found.keys()
