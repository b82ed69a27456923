"""Which signed tokens are accepted and which are refused, whatever their headers claim.

Method: real keys and signatures, with forged headers and claims; and, for each key, each algorithm that a header may
name with each signature that an attacker who has only public keys, or another key, can make.
"""

import base64
import dataclasses
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tidelog_server.security.jwks import MAX_RSA_BITS, KeySet, KeySetError, RefusedKey, parse_key_set
from tidelog_server.security.jwt_tokens import (
    BadTokenError,
    Claims,
    ForgedTokenError,
    JwtPolicy,
    UnknownKeyError,
    key_of,
    verify,
)
from tidelog_testing.servers.certificates import AUDIENCE, ISSUER, Signer, forged

POLICY = JwtPolicy(ISSUER, AUDIENCE, leeway_s=30, max_lifetime_s=3_600)
SIGNER, OTHER, CURVE = Signer(), Signer("key-1"), Signer("key-2", kind="ES256")
RSA, PSS = Signer("key-3", kind="RS256"), Signer("key-4", kind="PS256")
SMALL = Signer("small", kind="RS256", bits=1_024)
SIGNERS = [SIGNER, CURVE, RSA, PSS]


def keys_of(*signers: Signer) -> KeySet:
    return parse_key_set(json.dumps({"keys": [signer.jwk for signer in signers]}).encode())


KEYS = keys_of(*SIGNERS, SMALL)


def checked(token: str, now_s: float | None = None, policy: JwtPolicy = POLICY) -> Claims:
    return verify(token, key_of(token, KEYS, policy), policy, time.time() if now_s is None else now_s)


@pytest.mark.parametrize("signer", SIGNERS, ids=lambda signer: signer.kind)
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
        {"kid": "x" * 300}, {"typ": "none"}, {"typ": None}, {"crit": ["exp"]}, {"kid": "key-2"}, {"kid": "key-3"},
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


def base64_text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def secrets_of(signer: Signer) -> list[bytes]:
    """Return all that a verifier could take for a secret although everybody knows it."""
    public = signer.key.public_key()
    jwk = signer.jwk
    forms = [signer.public_pem, signer.public_pem.strip(), json.dumps(jwk).encode(), b""]
    forms.append(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))
    return forms + [base64.urlsafe_b64decode(jwk[part] + "==") for part in ("n", "x") if part in jwk]


def signatures_of(text: bytes, target: Signer) -> list[bytes]:
    """Return signatures of a text, made with other keys of each kind, and with what is known of the target's key."""
    curve, number = ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65_537, 2_048)
    r, s = decode_dss_signature(curve.sign(text, ec.ECDSA(hashes.SHA256())))
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
    return [
        b"", bytes(64), bytes(256), b"\0" * 255 + b"\1", OTHER.key.sign(text),
        r.to_bytes(32, "big") + s.to_bytes(32, "big"),
        number.sign(text, padding.PKCS1v15(), hashes.SHA256()), number.sign(text, pss, hashes.SHA256()),
        *(hmac.new(secret, text, hashlib.sha256).digest() for secret in secrets_of(target)),
    ]  # fmt: skip


@pytest.mark.parametrize("target", SIGNERS, ids=lambda signer: signer.kind)
def test_no_algorithm_of_a_header_makes_a_forged_signature_valid(target: Signer) -> None:
    algorithms = [
        "none", "None", "nOnE", "", None, 1, "HS256", "HS384", "HS512", "hs256", "RS256", "RS384", "RS512", "PS256",
        "PS384", "ES256", "ES256K", "ES384", "EdDSA", "Ed25519",
    ]  # fmt: skip
    attacker = Signer(target.kid, kind=target.kind)
    own = {"jwk": attacker.jwk, "jku": "http://127.0.0.1:1/keys", "x5u": "http://127.0.0.1:1/a.pem", "x5c": ["AA"]}
    for algorithm in algorithms:
        for extra in ({}, own):
            header = {"alg": algorithm, "typ": "JWT", "kid": target.kid, **extra}
            body = forged(header, target.claims()).rpartition(".")[0]
            for signature in signatures_of(body.encode(), target):
                with pytest.raises(BadTokenError):
                    checked(f"{body}.{base64_text(signature)}")
    with pytest.raises(ForgedTokenError):
        checked(attacker.token(own))
    assert checked(target.token(own)).subject == "alice", "what the header carries is ignored"


@pytest.mark.parametrize("target", SIGNERS, ids=lambda signer: signer.kind)
@pytest.mark.parametrize("signer", SIGNERS, ids=lambda signer: signer.kind)
def test_a_key_of_the_set_signs_for_its_own_id_only(signer: Signer, target: Signer) -> None:
    token = signer.token({"kid": target.kid})
    if signer is target:
        assert checked(token).subject == "alice"
        return
    with pytest.raises(BadTokenError, match=f"is not {target.kind}, that of its key"):
        checked(token)


def test_an_rsa_key_signs_with_its_own_padding_only() -> None:
    for signer, other in ((RSA, "PS256"), (PSS, "RS256")):
        crossed = Signer.__new__(Signer)
        crossed.kid, crossed.kind, crossed.key = signer.kid, other, signer.key
        with pytest.raises(BadTokenError, match=f"is not {signer.kind}"):
            checked(crossed.token())


def test_each_refusal_before_the_signature_has_its_own_reason() -> None:
    for token, reason in (
        (SMALL.token(), "its key has 1024 bits: expected 2048 to 8192"),
        (forged({"alg": "none", "typ": "JWT", "kid": "key-3"}, RSA.claims()), "it is not signed"),
        (forged({"typ": "JWT", "kid": "key-3"}, RSA.claims()), "it is not signed"),
        (forged({"alg": "HS256", "typ": "JWT", "kid": "key-3"}, RSA.claims()), "HS256, signs with a secret"),
        (RSA.token({"kid": "key-2"}), "its `alg` is not ES256"),
        (RSA.token({"kid": "key-9"}), "its `kid` is unknown"),
        (RSA.token({"typ": ""}), "`typ` is neither"),
    ):
        with pytest.raises(BadTokenError, match=reason):
            key_of(token, KEYS, POLICY)
    with pytest.raises(UnknownKeyError):
        key_of(RSA.token({"kid": "key-9"}), KEYS, POLICY)


def test_ids_and_types_are_optional_if_the_policy_says_so_and_checked_where_they_are() -> None:
    loose = dataclasses.replace(POLICY, needs_jti=False, needs_typ=False)
    assert checked(RSA.token({"typ": ""}, jti=None), policy=loose).subject == "alice"
    for token in (
        RSA.token(jti=7), RSA.token(jti=""), RSA.token({"typ": "logout+jwt"}),
        forged({"alg": "RS256", "typ": None, "kid": "key-3"}, RSA.claims()),
    ):  # fmt: skip
        with pytest.raises(BadTokenError, match=r"`jti`|`typ`"):
            checked(token, policy=loose)
    for token, reason in ((RSA.token(jti=None), "`jti`"), (RSA.token({"typ": ""}), "`typ`")):
        with pytest.raises(BadTokenError, match=reason):
            checked(token)


@pytest.mark.parametrize(
    ("path", "claims", "roles"),
    [
        (("groups",), {"groups": ["a", "b"]}, ("a", "b")), (("groups",), {}, ()),
        (("realm_access", "roles"), {"realm_access": {"roles": ["a"]}}, ("a",)),
        (("realm_access", "roles"), {"realm_access": {}}, ()), (("realm_access", "roles"), {}, ()),
        (("https://example.org/roles",), {"https://example.org/roles": ["a"]}, ("a",)),
        (("a", "b", "c"), {"a": {"b": {"c": ["d"]}}}, ("d",)),
    ],
    ids=str,
)  # fmt: skip
def test_roles_are_where_the_policy_says(path: tuple[str, ...], claims: dict[str, Any], roles: tuple[str, ...]) -> None:
    policy = dataclasses.replace(POLICY, roles=path)
    # The claim `roles` counts only if the policy names it.
    assert checked(RSA.token(roles=["admin"], **claims), policy=policy).roles == roles


@pytest.mark.parametrize(
    "claims",
    [
        {"realm_access": []}, {"realm_access": "roles"}, {"realm_access": {"roles": "writer"}},
        {"realm_access": {"roles": {"writer": True}}}, {"realm_access": {"roles": [1]}},
        {"realm_access": {"roles": [""]}},
        {"realm_access": {"roles": [f"r{number}" for number in range(65)]}},
    ],
    ids=str,
)  # fmt: skip
def test_roles_of_another_form_are_refused(claims: dict[str, Any]) -> None:
    policy = dataclasses.replace(POLICY, roles=("realm_access", "roles"))
    with pytest.raises(BadTokenError, match="realm_access"):
        checked(RSA.token(**claims), policy=policy)


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
    others = [
        {**RSA.jwk, "kid": "encryption", "use": "enc", "alg": "RSA-OAEP"}, {**RSA.jwk, "kid": "long", "alg": "RS512"},
        {**CURVE.jwk, "use": "enc"}, {"kty": "EC", "crv": "P-384", "kid": "p"}, {"kty": ["RSA"]}, SIGNER.jwk,
    ]  # fmt: skip
    assert parse_key_set(json.dumps({"keys": others}).encode()).keys() == {"key-1"}


def test_an_rsa_key_has_the_algorithm_that_the_set_names_and_else_rs256() -> None:
    unnamed = {name: value for name, value in RSA.jwk.items() if name != "alg"}
    keys = parse_key_set(json.dumps({"keys": [unnamed, PSS.jwk]}).encode())
    assert [getattr(keys[kid], "algorithm", None) for kid in ("key-3", "key-4")] == ["RS256", "PS256"]


def test_rsa_keys_outside_the_bounds_are_refused_one_by_one_and_a_set_of_them_as_a_whole() -> None:
    def jwk(kid: str, bits: int) -> dict[str, str]:
        number = (1 << bits) - 1
        return {"kty": "RSA", "kid": kid, "n": base64_text(number.to_bytes((bits + 7) // 8, "big")), "e": "AQAB"}

    refused = [jwk("tiny", 1), jwk("small", 2_047), jwk("large", MAX_RSA_BITS + 1), jwk("huge", 100_000)]
    keys = parse_key_set(json.dumps({"keys": [*refused, SMALL.jwk | {"kid": "old"}, RSA.jwk]}).encode())
    assert {kid for kid, key in keys.items() if isinstance(key, RefusedKey)} == {
        "tiny",
        "small",
        "large",
        "huge",
        "old",
    }
    with pytest.raises(KeySetError, match="no key for a supported algorithm"):
        parse_key_set(json.dumps({"keys": refused}).encode())


@pytest.mark.parametrize(
    "changed",
    [{"e": "AQ"}, {"e": "Ag"}, {"e": ""}, {"e": None}, {"n": None}, {"n": 7}, {"d": "AQ"}, {"kid": "key-4"}],
    ids=str,
)
def test_an_rsa_key_with_which_anybody_could_sign_or_that_is_not_one_refuses_the_set(changed: dict[str, Any]) -> None:
    with pytest.raises(KeySetError):
        parse_key_set(json.dumps({"keys": [{**RSA.jwk, **changed}, PSS.jwk]}).encode())
