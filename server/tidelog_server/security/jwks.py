"""The public keys of signed tokens: a JSON Web Key Set from a file or a URL."""

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidelog_server.core.limits import JWKS_TIMEOUT_S, MAX_JWKS_BYTES, MAX_JWKS_KEYS, MAX_JWT_FIELD_BYTES
from tidelog_server.core.names import shown

# The algorithm of a key follows from the key, never from a token.
_ALGORITHMS: Final = {("OKP", "Ed25519"): "EdDSA", ("EC", "P-256"): "ES256"}
_LOOPBACK_HOSTS: Final = frozenset(("127.0.0.1", "::1", "localhost"))


class KeySetError(ValueError):
    """The key set is unusable; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key and its only algorithm."""

    algorithm: str
    key: Any


def parse_key_set(text: bytes) -> dict[str, VerificationKey]:
    """Return the keys of a JSON Web Key Set, by id. Keys that are neither Ed25519 nor P-256 are skipped.

    Raises:
        KeySetError: The text is not a key set, or has a private key, a key without an id, a duplicate id, or no usable
            key.
    """
    if len(text) > MAX_JWKS_BYTES:
        raise KeySetError(f"it has {len(text)} bytes, at most {MAX_JWKS_BYTES} are allowed")
    try:
        entries = json.loads(text)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise KeySetError("it is not a JSON Web Key Set: expected an object with a list `keys`") from None
    if not isinstance(entries, list) or len(entries) > MAX_JWKS_KEYS:
        raise KeySetError(f"`keys` is not a list of at most {MAX_JWKS_KEYS} keys")
    keys: dict[str, VerificationKey] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            raise KeySetError("a key is not an object")
        algorithm = _ALGORITHMS.get((str(entry.get("kty")), str(entry.get("crv"))))
        if algorithm is None or entry.get("use", "sig") != "sig":
            continue
        kid = _id_of(entry)
        if kid in keys:
            raise KeySetError(f"the key id '{shown(kid)}' is not unique")
        keys[kid] = VerificationKey(algorithm, _public_key(entry, algorithm, kid))
    if not keys:
        raise KeySetError("it has no key for a supported algorithm: EdDSA (Ed25519) or ES256 (P-256)")
    return keys


def _id_of(entry: Mapping[str, Any]) -> str:
    kid = entry.get("kid")
    if not isinstance(kid, str) or not 1 <= len(kid.encode("utf-8", "replace")) <= MAX_JWT_FIELD_BYTES:
        raise KeySetError(f"a key has no valid id: expected `kid` to be a string of 1 to {MAX_JWT_FIELD_BYTES} bytes")
    return kid


def _public_key(entry: Mapping[str, Any], algorithm: str, kid: str) -> Any:
    # Imported here: most servers have no such keys, and start faster without it.
    import jwt

    if "d" in entry:
        raise KeySetError(f"the key '{shown(kid)}' is private: create a new key, and publish only its public part")
    if entry.get("alg", algorithm) != algorithm:
        raise KeySetError(f"the `alg` of the key '{shown(kid)}' does not fit its type: expected {algorithm}")
    try:
        return jwt.PyJWK(dict(entry), algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        raise KeySetError(f"the key '{shown(kid)}' cannot be read: {error}") from error


def is_url(source: str) -> bool:
    """Return whether ``source`` is a URL and not a file."""
    return source.startswith(("https://", "http://"))


def check_url(url: str) -> str:
    """Return ``url`` if keys may be fetched from it. Raises KeySetError.

    An attacker who can change keys in transit can forge any token.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK_HOSTS:
        raise KeySetError("keys are fetched over https only, or from a loopback address")
    return url


def fetch(source: str) -> bytes:
    """Return the content of a file or URL. Blocks, with a timeout of JWKS_TIMEOUT_S. Raises KeySetError."""
    try:
        if not is_url(source):
            with Path(source).open("rb") as file:
                return file.read(MAX_JWKS_BYTES + 1)
        request = urllib.request.Request(check_url(source), headers={"Accept": "application/json"})
        # No redirects: they could lead away from https.
        opener = urllib.request.build_opener(
            _NoRedirects, urllib.request.HTTPSHandler(context=ssl.create_default_context())
        )
        with opener.open(request, timeout=JWKS_TIMEOUT_S) as response:
            found: bytes = response.read(MAX_JWKS_BYTES + 1)
            return found
    except (OSError, ValueError) as error:
        raise KeySetError(f"it cannot be read: {error}") from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: the response becomes an error."""
