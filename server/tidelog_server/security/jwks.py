"""The public keys of signed tokens: a JSON Web Key Set from a file, from a URL, or from where the issuer says.

The last is OpenID Connect Discovery 1.0, section 4: ``<issuer>/.well-known/openid-configuration`` names the URL.

Why not PyJWT's ``PyJWKClient``: it reads URLs only, follows redirects, reads an answer of any size, skips keys that it
cannot use instead of refusing the set, and fetches while a token is verified.
"""

import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tidelog_server.core.limits import KIB, MAX_JWT_FIELD_BYTES
from tidelog_server.core.names import shown
from tidelog_server.security.certificates import read_file

MAX_JWKS_BYTES: Final = 256 * KIB
"""Of a key set, and of a document of discovery."""
MAX_JWKS_KEYS: Final = 64
# Of each wait for a server: until it connects, and until its next bytes.
JWKS_TIMEOUT_S: Final = 5.0
# Smaller keys can be factored, or will be soon. A check of a larger one costs too much: 0.5 ms at 8,192 bits.
MIN_RSA_BITS: Final = 2_048
MAX_RSA_BITS: Final = 8_192

# The algorithms that a key may have; the first one if it names none. Those of a token never count.
_ALGORITHMS: Final = {
    ("OKP", "Ed25519"): ("EdDSA",), ("EC", "P-256"): ("ES256",), ("RSA", ""): ("RS256", "PS256"),
}  # fmt: skip
_SUPPORTED: Final = f"EdDSA (Ed25519), ES256 (P-256), RS256 or PS256 (RSA of {MIN_RSA_BITS} to {MAX_RSA_BITS} bits)"
_LOOPBACK_HOSTS: Final = frozenset(("127.0.0.1", "::1", "localhost"))
_DISCOVERY_PATH: Final = "/.well-known/openid-configuration"


class KeySetError(ValueError):
    """The key set is unusable; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key and its only algorithm."""

    algorithm: str
    key: Any


@dataclass(frozen=True, slots=True)
class RefusedKey:
    """A key of the set that no token may use. The reason is a predicate, such as ``has 1024 bits``."""

    reason: str


KeySet = Mapping[str, VerificationKey | RefusedKey]
"""Keys by id."""


def parse_key_set(text: bytes) -> KeySet:
    """Return the keys of a JSON Web Key Set, by id.

    Keys of other algorithms are skipped. RSA keys that are too small or too large are refused one by one, because an
    issuer may publish one beside others; each other fault refuses the set.

    Raises:
        KeySetError: The text is not a key set, or has a private key, a key without an id, a duplicate id, or no usable
            key.
    """
    entries = _object(text, "a JSON Web Key Set: expected an object with a list `keys`").get("keys")
    if not isinstance(entries, list) or len(entries) > MAX_JWKS_KEYS:
        raise KeySetError(f"`keys` is not a list of at most {MAX_JWKS_KEYS} keys")
    keys: dict[str, VerificationKey | RefusedKey] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            raise KeySetError("a key is not an object")
        algorithms = _ALGORITHMS.get((str(entry.get("kty")), str(entry.get("crv", ""))))
        if algorithms is None or entry.get("use", "sig") != "sig":
            continue
        if entry["kty"] == "RSA" and entry.get("alg", algorithms[0]) not in algorithms:
            # Issuers publish keys of RS512 and RSA-OAEP in the same set.
            continue
        kid = _id_of(entry)
        if kid in keys:
            raise KeySetError(f"the key id '{shown(kid)}' is not unique")
        keys[kid] = _key_of(entry, algorithms, kid)
    if not any(isinstance(key, VerificationKey) for key in keys.values()):
        raise KeySetError(f"it has no key for a supported algorithm: {_SUPPORTED}")
    return keys


def _object(text: bytes, expected: str) -> dict[str, Any]:
    """Return the JSON object in a text. Raises KeySetError."""
    if len(text) > MAX_JWKS_BYTES:
        raise KeySetError(f"it has more than {MAX_JWKS_BYTES} bytes, the maximum")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise KeySetError(f"it is not {expected}")
    return found


def _id_of(entry: Mapping[str, Any]) -> str:
    kid = entry.get("kid")
    if not isinstance(kid, str) or not 1 <= len(kid.encode("utf-8", "replace")) <= MAX_JWT_FIELD_BYTES:
        raise KeySetError(f"a key has no valid id: expected `kid` to be a string of 1 to {MAX_JWT_FIELD_BYTES} bytes")
    return kid


def _key_of(entry: Mapping[str, Any], algorithms: tuple[str, ...], kid: str) -> VerificationKey | RefusedKey:
    # Imported here: most servers have no such keys, and start faster without it.
    import jwt
    from jwt.utils import from_base64url_uint

    if "d" in entry:
        raise KeySetError(f"the key '{shown(kid)}' is private: create a new key, and publish only its public part")
    algorithm = entry.get("alg", algorithms[0])
    if algorithm not in algorithms:
        raise KeySetError(f"the `alg` of the key '{shown(kid)}' does not fit its type: expected {algorithms[0]}")
    try:
        if entry["kty"] == "RSA":
            # Before the key is made: of some sizes, none can be.
            bits = from_base64url_uint(entry["n"]).bit_length()
            if not MIN_RSA_BITS <= bits <= MAX_RSA_BITS:
                return RefusedKey(f"has {bits} bits: expected {MIN_RSA_BITS} to {MAX_RSA_BITS}")
        return VerificationKey(algorithm, jwt.PyJWK(dict(entry), algorithm=algorithm).key)
    except (jwt.PyJWTError, KeyError, ValueError, TypeError) as error:
        raise KeySetError(f"the key '{shown(kid)}' cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where the keys of signed tokens are.

    Attributes:
        location: A file or a URL; empty to ask the issuer.
        issuer: The issuer of the tokens.
        ca: Certificates of the authorities for https, PEM; None for those that the system trusts.
    """

    location: str
    issuer: str
    ca: Path | None = None

    def __str__(self) -> str:
        return self.location or f"of the issuer {self.issuer}"

    @property
    def is_remote(self) -> bool:
        """Whether the keys are fetched."""
        return not self.location or is_url(self.location)

    def context(self) -> ssl.SSLContext:
        """Return the terms of connections over https. Raises KeySetError, or CertificateError if ``ca`` is unusable."""
        if self.ca is None:
            return ssl.create_default_context()
        context, content = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), read_file(self.ca)
        try:
            context.load_verify_locations(cadata=content.decode())
        except (ssl.SSLError, ValueError) as error:
            raise KeySetError(f"{self.ca} contains no certificates in PEM: {error}") from error
        return context

    def read(self) -> KeySet:
        """Return the keys. Blocks; of the network, each wait at most JWKS_TIMEOUT_S. Raises KeySetError."""
        try:
            if not self.is_remote:
                with Path(self.location).open("rb") as file:
                    return parse_key_set(file.read(MAX_JWKS_BYTES + 1))
            return parse_key_set(self._fetch(self.location or self._discovered()))
        except OSError as error:
            raise KeySetError(f"the JSON Web Key Set {self} cannot be read: {error}") from error
        except ValueError as error:
            raise KeySetError(f"the JSON Web Key Set {self}: {error}") from error

    def _discovered(self) -> str:
        """Return the URL of the keys that the issuer names. Raises KeySetError."""
        url = discovery_url(self.issuer)
        try:
            found = _object(self._fetch(url), "a JSON object")
            if found.get("issuer") != self.issuer:
                # OpenID Connect Discovery 1.0, section 4.3: another issuer's keys must not vouch for this one's tokens.
                raise KeySetError(f"its `issuer` is '{shown(str(found.get('issuer')))}', expected '{self.issuer}'")
            keys_url = found.get("jwks_uri")
            if not isinstance(keys_url, str):
                raise KeySetError("it has no `jwks_uri`")
            return check_url(keys_url, needs_https=url.startswith("https:"))
        except KeySetError as error:
            raise KeySetError(f"the document {url}: {error}") from error

    def _fetch(self, url: str) -> bytes:
        """Return what a URL has, up to the byte after the maximum. Raises KeySetError, or as ``context``."""
        request = urllib.request.Request(check_url(url), headers={"Accept": "application/json"})
        # No redirects: they could lead away from https. No proxy without it: the answer would not be of this machine.
        proxies = urllib.request.ProxyHandler(None if request.type == "https" else {})
        https = urllib.request.HTTPSHandler(context=self.context())
        opener = urllib.request.build_opener(_NoRedirects, proxies, https)
        try:
            with opener.open(request, timeout=JWKS_TIMEOUT_S) as response:
                found: bytes = response.read(MAX_JWKS_BYTES + 1)
                return found
        except (OSError, http.client.HTTPException) as error:
            raise KeySetError(f"{url} cannot be read: {error}") from error


def is_url(location: str) -> bool:
    """Return whether ``location`` is a URL and not a file."""
    return location.startswith(("https://", "http://"))


def check_url(url: str, *, needs_https: bool = False) -> str:
    """Return ``url`` if keys may be fetched from it: over https, or from a loopback address. Raises KeySetError.

    An attacker who can change keys in transit can forge any token.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        is_local = parts.scheme == "http" and parts.hostname in _LOOPBACK_HOSTS and not needs_https
        if is_local or (parts.scheme == "https" and parts.hostname):
            return url
        problem = "is not an https URL, nor one of a loopback address"
    except ValueError as error:
        problem = f"is not a URL: {error}"
    raise KeySetError(f"'{shown(url)}' {problem}")


def discovery_url(issuer: str) -> str:
    """Return the URL of the document in which an issuer names its keys. Raises KeySetError."""
    parts = urllib.parse.urlsplit(check_url(issuer))
    if parts.query or parts.fragment or parts.username is not None:
        raise KeySetError(f"the issuer '{shown(issuer)}' has more than a scheme, a host and a path")
    return issuer.rstrip("/") + _DISCOVERY_PATH


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect: the response becomes an error."""
