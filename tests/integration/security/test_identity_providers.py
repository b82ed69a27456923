"""Tokens of Keycloak, Entra ID and Kubernetes are accepted by their set-ups, and forged ones are refused by name.

Method: real servers, with an issuer on this machine that publishes its keys over HTTPS as these systems do, and tokens
in their exact form; the settings are those of docs/operate/identity-providers.md.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tidelog import At, PermissionDeniedError, UnauthenticatedError
from tidelog_server.security import jwks, service
from tidelog_testing.parts import provider_tokens
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.servers.certificates import AUDIENCE, Authority, Signer, forged, make_pair
from tidelog_testing.servers.issuer import DOCUMENT, Issuer
from tidelog_testing.servers.processes import ROOT
from tidelog_testing.servers.secured import Secured, secured_server, until

PAGE = ROOT / "docs" / "operate" / "identity-providers.md"
GRANTS = f"""
[roles]
writer = ["append:orders"]
[principals]
"jwt:{provider_tokens.KUBERNETES_SUBJECT}" = ["role:writer"]
"""
PATHS = {
    "Keycloak": ("/realms/acme", "/realms/acme/protocol/openid-connect/certs"),
    "Entra ID": (f"/{provider_tokens.ENTRA_TENANT}/v2.0", f"/{provider_tokens.ENTRA_TENANT}/discovery/v2.0/keys"),
    "Kubernetes": ("", "/openid/v1/jwks"),
}
FORMS: dict[str, list[Callable[[Signer, str], str]]] = {
    "Keycloak": [lambda signer, issuer: provider_tokens.keycloak(signer, issuer, "tidelog")],
    "Entra ID": [
        lambda signer, issuer: provider_tokens.entra(signer, issuer, lifetime_s=3_900),
        lambda signer, issuer: provider_tokens.entra(signer, issuer, lifetime_s=5_700, has_x5t=True),
    ],
    "Kubernetes": [
        lambda signer, issuer: provider_tokens.kubernetes(signer, issuer, "tidelog"),
        lambda signer, issuer: provider_tokens.kubernetes(signer, issuer, "tidelog", has_jti=False),
    ],
}


def documented(provider: str) -> dict[str, object]:
    """Return the settings that the page has for a provider."""
    chapter = PAGE.read_text().partition(f"\n## {provider}\n")[2].partition("\n## ")[0]
    found = re.search(r"^```toml\n(\[auth\].*?)^```", chapter, re.MULTILINE | re.DOTALL)
    assert found is not None, provider
    settings: dict[str, object] = tomllib.loads(found[1])["auth"]
    return {f"auth__{name}": value for name, value in settings.items()}


@asynccontextmanager
async def trusting(
    folder: Path, provider: str, *signers: Signer, **settings: object
) -> AsyncIterator[tuple[Secured, Issuer]]:
    """Run a server that trusts an issuer on this machine by the documented settings, and has the channel ``orders``."""
    path, keys_path = PATHS[provider]
    authority = Authority.make(folder, "issuer")
    pair = make_pair("id-server", authority.pair, has_loopback=True).write(folder, "id-server")
    grants = folder / "grants.toml"
    grants.write_text(GRANTS)
    with Issuer(*signers, path=path, keys_path=keys_path, pair=pair) as issuer:
        own = {"auth__jwt_issuer": issuer.url, "auth__jwt_ca": authority.ca, "auth__grants": grants}
        async with secured_server(folder, **{**documented(provider), **own, **settings}) as secured:
            async with secured.client() as admin:
                await admin.create_channel("orders")
            yield secured, issuer


@pytest.mark.parametrize("provider", sorted(FORMS))
async def test_a_token_of_the_exact_form_is_accepted_and_may_do_what_its_roles_permit(
    tmp_path: Path, provider: str
) -> None:
    signer = Signer("4NnWzoI0gdBNvTZLAa2R8o0RpB0hUVuJPoYo7XTRyRo", kind="RS256")
    async with trusting(tmp_path, provider, signer) as (secured, issuer):
        for form in FORMS[provider]:
            async with secured.client(form(signer, issuer.url)) as client:
                await client.append("orders", b"x")
                with pytest.raises(PermissionDeniedError):
                    await client.trim("orders", everything=True)
        path, keys_path = PATHS[provider]
        assert issuer.asked[:2] == [path + DOCUMENT, keys_path]


async def unauthenticated(secured: Secured, count: int) -> list[str]:
    """Return the first reasons in the audit log, which is written behind the refusals."""
    reasons: list[str] = []
    async with secured.client() as admin, asyncio.timeout(60):
        async for batch in admin.scan("_audit", until=At.follow()):
            events = map(json.loads, map(bytes, batch.payloads))
            reasons += [event["reason"] for event in events if event["event"] == "unauthenticated"]
            if len(reasons) >= count:
                break
    return reasons


def signed_with_secret(signer: Signer, secret: bytes) -> str:
    """Return a token whose signature is made with a public key as the secret."""
    body = forged({"alg": "HS256", "typ": "JWT", "kid": signer.kid}, signer.claims()).rpartition(".")[0]
    mac = hmac.new(secret, body.encode(), hashlib.sha256).digest()
    return f"{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


async def test_each_forgery_is_refused_and_has_its_own_reason_in_the_audit_log(tmp_path: Path) -> None:
    good, weak = Signer("good", kind="RS256"), Signer("weak", kind="RS256", bits=1_024)
    curve, attacker = Signer("curve", kind="ES256"), Signer("good", kind="RS256")
    async with trusting(tmp_path, "Keycloak", good, weak, curve) as (secured, issuer):

        def token(signer: Signer, **header: Any) -> str:
            claims = signer.claims(iss=issuer.url, aud="tidelog", roles=None, realm_access={"roles": ["writer"]})
            return signer.signed({"typ": "JWT", "kid": signer.kid, **header}, claims)

        refusals = {
            token(weak): "its key has 1024 bits: expected 2048 to 8192",
            forged({"alg": "none", "typ": "JWT", "kid": "good"}, good.claims()): (
                "it is not signed: its header has no `alg`, or `none`"
            ),
            signed_with_secret(good, good.public_pem): (
                "its `alg`, HS256, signs with a secret: its key is a public one for RS256"
            ),
            token(Signer("unknown", kind="RS256")): "its `kid` is unknown",
            token(good, kid="curve"): "its `alg` is not ES256, that of its key",
            token(attacker, jwk=attacker.jwk): "its signature is invalid",
        }
        for text in refusals:
            async with secured.client(text) as client:
                with pytest.raises(UnauthenticatedError):
                    await client.append("orders", b"x")
        for signer in (good, curve):
            async with secured.client(token(signer)) as client:
                await client.append("orders", b"x")
        assert await unauthenticated(secured, len(refusals)) == list(refusals.values())
        assert len(set(refusals.values())) == len(refusals)


@pytest.mark.parametrize(
    ("provider", "setting", "value", "reason"),
    [
        ("Entra ID", "jwt_require_jti", True, "its `jti` is not a string of 1 to 256 bytes"),
        ("Entra ID", "jwt_max_lifetime_s", 3_600, "its lifetime is not 1 to 3600 s"),
        ("Kubernetes", "jwt_require_typ", True, "its header's `typ` is neither JWT nor at+jwt"),
        ("Keycloak", "jwt_audience", AUDIENCE, "InvalidAudienceError"),
    ],
)
async def test_each_setting_of_a_provider_is_needed(
    tmp_path: Path, provider: str, setting: str, value: object, reason: str
) -> None:
    signer = Signer("key", kind="RS256")
    async with trusting(tmp_path, provider, signer, **{f"auth__{setting}": value}) as (secured, issuer):
        async with secured.client(FORMS[provider][0](signer, issuer.url)) as client:
            with pytest.raises(UnauthenticatedError):
                await client.append("orders", b"x")
        assert await unauthenticated(secured, 1) == [reason]


async def test_a_new_key_of_the_issuer_is_fetched_and_an_old_one_no_longer_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "JWKS_HURRIED_INTERVAL_S", 0.1)
    old, new = Signer("old", kind="RS256"), Signer("new", kind="PS256")
    async with trusting(tmp_path, "Keycloak", old) as (secured, issuer):
        authenticator = secured.server._security.authenticator
        issuer.publish(new)
        async with secured.client(provider_tokens.keycloak(new, issuer.url, "tidelog")) as client:
            with pytest.raises(UnauthenticatedError):
                await client.append("orders", b"x")
            await until(lambda: "new" in authenticator.keys)
            await client.append("orders", b"x")
        async with secured.client(provider_tokens.keycloak(old, issuer.url, "tidelog")) as client:
            with pytest.raises(UnauthenticatedError):
                await client.append("orders", b"x")
        assert await unauthenticated(secured, 2) == ["its `kid` is unknown"] * 2


async def test_an_issuer_that_answers_wrongly_or_not_at_all_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "JWKS_HURRIED_INTERVAL_S", 0.1)
    signer = Signer("key", kind="RS256")
    async with trusting(tmp_path, "Keycloak", signer) as (secured, issuer):
        security = secured.server._security
        token = provider_tokens.keycloak(signer, issuer.url, "tidelog")
        for status, content in ((0, b""), (200, b"[]"), (302, b"")):
            issuer.answers[PATHS["Keycloak"][0] + DOCUMENT] = (status, content)
            asked = len(issuer.asked)
            security.authenticator.wants_keys = True
            await until(lambda asked=asked: len(issuer.asked) > asked)  # type: ignore[misc]  # mypy: a default
            async with secured.client(token) as client:
                await client.append("orders", b"x")
        # Longer than this test waits for anything.
        monkeypatch.setattr(jwks, "JWKS_TIMEOUT_S", 300.0)
        issuer.may_answer.clear()
        asked = len(issuer.asked)
        security.authenticator.wants_keys = True
        await until(lambda: len(issuer.asked) > asked)
        before = security.authenticator.grants_file
        (tmp_path / "grants.toml").write_text("")
        await until(lambda: security.authenticator.grants_file is not before)
        assert len(issuer.asked) == asked + 1, "the request still waits"
        issuer.may_answer.set()


async def test_a_server_starts_while_its_issuer_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "JWKS_HURRIED_INTERVAL_S", 0.1)
    signer = Signer("key", kind="RS256")
    with Issuer(signer) as issuer:
        right = issuer.answers.pop(DOCUMENT)
        settings: dict[str, Any] = {
            "auth__kind": "on", "auth__jwt_jwks": "discover", "auth__jwt_audience": AUDIENCE,
        }  # fmt: skip
        async with running_server(tmp_path / "data", auth__jwt_issuer=issuer.url, **settings) as server:
            assert server._security.authenticator.keys == {}
            issuer.answers[DOCUMENT] = right
            await until(lambda: "key" in server._security.authenticator.keys)
