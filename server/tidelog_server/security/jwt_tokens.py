"""Signed tokens (JWT). Pure: the caller passes keys and time.

No claim of a token is trusted until its signature is checked, with the algorithm of the key and not that of the token.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelog_server.core.limits import MAX_JWT_FIELD_BYTES
from tidelog_server.core.names import is_plain
from tidelog_server.security.jwks import KeySet, RefusedKey, VerificationKey

_TYPES: Final = frozenset(("jwt", "at+jwt"))
_REQUIRED: Final = ["iss", "aud", "sub", "iat", "exp"]
_SECRET_ALGORITHMS: Final = ("HS256", "HS384", "HS512")
# Roles are looked up one by one.
_MAX_ROLES: Final = 64
# This module checks times itself: with our clock, as integers, and with a maximum lifetime.
_OPTIONS: Final[Any] = {
    "require": _REQUIRED, "verify_exp": False, "verify_iat": False, "verify_nbf": False, "verify_jti": False,
    "verify_sub": False, "strict_aud": False,
}  # fmt: skip


class BadTokenError(Exception):
    """A token is refused. The reason is for the server's log only: it is not sent to the client."""


class UnknownKeyError(BadTokenError):
    """There is no key with the id that a token names; a newer key set may have one."""


class ForgedTokenError(BadTokenError):
    """The signature was not made with the key that the token names; valid only if that key is replaced."""


@dataclass(frozen=True, slots=True)
class JwtPolicy:
    """Requirements for tokens.

    Attributes:
        issuer: Required ``iss``.
        audience: Required element of ``aud``.
        leeway_s: Allowed clock difference, in seconds.
        max_lifetime_s: Maximum of ``exp - iat``, in seconds.
        roles: Path of the claim with the roles, such as ``("realm_access", "roles")``.
        needs_jti: Whether ``jti`` is required.
        needs_typ: Whether ``typ`` is required in the header.
    """

    issuer: str
    audience: str
    leeway_s: int
    max_lifetime_s: int
    roles: tuple[str, ...] = ("roles",)
    needs_jti: bool = True
    needs_typ: bool = True


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a verified token.

    Attributes:
        subject: Owner of the token.
        roles: Names of roles in the grants file.
        expires_s: Expiry including the leeway, in seconds of the wall clock.
    """

    subject: str
    roles: tuple[str, ...]
    expires_s: float


def key_of(token: str, keys: KeySet, policy: JwtPolicy) -> VerificationKey:
    """Return the key that must have signed a token. Costs no check of a signature.

    Keys and URLs in the header (``jwk``, ``jku``, ``x5u``, ``x5c``) are ignored: an attacker can write them.

    Raises:
        UnknownKeyError: The header names a key that is not in ``keys``.
        BadTokenError: The header is invalid, or the token cannot have been signed with the key that it names.
    """
    # Imported here and below: most servers receive no such tokens, and start faster without it.
    import jwt

    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise BadTokenError("not a JWT") from error
    _check_header(header, policy)
    key = keys.get(header["kid"])
    if key is None:
        raise UnknownKeyError("its `kid` is unknown")
    if isinstance(key, RefusedKey):
        raise BadTokenError(f"its key {key.reason}")
    algorithm = header["alg"]
    if algorithm in _SECRET_ALGORITHMS:
        # The classic attack signs with the public key as the secret.
        raise BadTokenError(f"its `alg`, {algorithm}, signs with a secret: its key is a public one for {key.algorithm}")
    if algorithm != key.algorithm:
        raise BadTokenError(f"its `alg` is not {key.algorithm}, that of its key")
    return key


def _check_header(header: Mapping[str, Any], policy: JwtPolicy) -> None:
    if "crit" in header:
        raise BadTokenError("its header has `crit`")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm.lower() == "none":
        raise BadTokenError("it is not signed: its header has no `alg`, or `none`")
    if policy.needs_typ or "typ" in header:
        kind = header.get("typ")
        if not isinstance(kind, str) or kind.lower() not in _TYPES:
            raise BadTokenError("its header's `typ` is neither JWT nor at+jwt")
    kid = header.get("kid")
    if not isinstance(kid, str) or len(kid) > MAX_JWT_FIELD_BYTES:
        raise BadTokenError("its header has no `kid`")


def verify(token: str, key: VerificationKey, policy: JwtPolicy, now_s: float) -> Claims:
    """Return the claims of a token if it is valid; ``key`` is that of ``key_of``. Raises BadTokenError."""
    import jwt

    try:
        claims = jwt.decode(
            token, key.key, algorithms=[key.algorithm], audience=policy.audience, issuer=policy.issuer, options=_OPTIONS
        )
    except jwt.InvalidSignatureError as error:
        raise ForgedTokenError("its signature is invalid") from error
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
        # Only the type: messages may contain parts of the token.
        raise BadTokenError(type(error).__name__) from error
    return _checked(claims, policy, now_s)


def _checked(claims: Mapping[str, Any], policy: JwtPolicy, now_s: float) -> Claims:
    issued_s, expires_s = _time(claims, "iat"), _time(claims, "exp")
    if not 0 < expires_s - issued_s <= policy.max_lifetime_s:
        raise BadTokenError(f"its lifetime is not 1 to {policy.max_lifetime_s} s")
    if now_s >= expires_s + policy.leeway_s:
        raise BadTokenError("it has expired")
    if issued_s > now_s + policy.leeway_s:
        raise BadTokenError("it was issued in the future")
    if "nbf" in claims and _time(claims, "nbf") > now_s + policy.leeway_s:
        raise BadTokenError("it is not valid yet")
    if policy.needs_jti or "jti" in claims:
        _text(claims.get("jti"), "jti")
    return Claims(_text(claims["sub"], "sub"), _roles(claims, policy.roles), expires_s + policy.leeway_s)


def _roles(claims: Mapping[str, Any], path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the roles at ``path``; none if a claim of it is missing."""
    name, found = ".".join(path), claims
    for part in path[:-1]:
        found = found.get(part, {})
        if not isinstance(found, dict):
            raise BadTokenError(f"its `{part}`, of `{name}`, is not an object")
    roles = found.get(path[-1], [])
    if not isinstance(roles, list) or len(roles) > _MAX_ROLES:
        raise BadTokenError(f"its `{name}` is not a list of at most {_MAX_ROLES}")
    return tuple(_text(role, name) for role in roles)


def _time(claims: Mapping[str, Any], name: str) -> int:
    value = claims[name]
    # In Python a bool is an int too.
    if type(value) is not int or not 0 <= value < 1 << 40:
        raise BadTokenError(f"its `{name}` is not an integer number of seconds")
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value.encode("utf-8", "replace")) <= MAX_JWT_FIELD_BYTES:
        raise BadTokenError(f"its `{name}` is not a string of 1 to {MAX_JWT_FIELD_BYTES} bytes")
    if not is_plain(value):
        raise BadTokenError(f"its `{name}` has control or format characters, lone surrogates, or blanks at its ends")
    return value
