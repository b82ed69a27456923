"""Authenticates callers by the credentials of a call. Lives on the event loop, and never waits."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple, TypeVar

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.errors.access import UnauthenticatedError
from tidelog_server.core.limits import KIB, MAX_REMEMBERED_CALLERS
from tidelog_server.runtime.buckets import Buckets
from tidelog_server.runtime.clock import Clock
from tidelog_server.security.bootstrap import Bootstrap
from tidelog_server.security.certificates import (
    CertificateError,
    ClientCertificate,
    DenyList,
    parse_client_certificate,
)
from tidelog_server.security.grants import ADMINISTRATION, EVERYTHING, Grant, Grants, Verb
from tidelog_server.security.jwks import KeySet, VerificationKey
from tidelog_server.security.jwt_tokens import (
    BadTokenError,
    Claims,
    ForgedTokenError,
    JwtPolicy,
    UnknownKeyError,
    key_of,
    verify,
)
from tidelog_server.security.roles import NO_GRANTS, GrantsFile
from tidelog_server.security.signatures import SignatureBudget
from tidelog_server.security.token_store import TokenStore
from tidelog_server.security.tokens import PREFIX

MAX_AUTHORIZATION_BYTES: Final = 4 * KIB
# Of each cache: verified and forged signed tokens, client certificates.
MAX_REMEMBERED_CREDENTIALS: Final = 4_096

_Value = TypeVar("_Value")

_BEARER: Final = "bearer "
_NEVER_S: Final = float("inf")
_ALL: Final = Grants(Grant(verb, EVERYTHING) for verb in Verb)


class Shown(NamedTuple):
    """The credentials and origin of a call.

    Attributes:
        authorization: Values of the metadata ``authorization``, as received.
        certificate: Client certificate in PEM, verified by TLS; empty without one.
        address: Origin of the call: a host, or the path of a socket.
        is_local: True if the origin is this machine.
        is_encrypted: True if the call came over TLS.
        connection: Key that distinguishes connections from the same address; empty if it does not matter.
    """

    authorization: tuple[str, ...]
    certificate: bytes
    address: str
    is_local: bool
    is_encrypted: bool
    connection: str = ""

    def __repr__(self) -> str:
        # Without credentials: a token must not appear in a log.
        return f"Shown(address={self.address!r})"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller.

    Attributes:
        name: ``token:<id>``, ``jwt:<subject>``, ``mtls:<name in the certificate>`` or ``bootstrap``.
        grants: Permissions of the caller.
        expires_s: Expiry of the credentials, in seconds of the wall clock.
    """

    name: str
    grants: Grants
    expires_s: float = _NEVER_S


class Authenticator:
    """Checks credentials of all kinds.

    Attributes:
        keys: Keys of signed tokens, by id; replaced after a reload.
        grants_file: Grants of signed tokens and certificates; replaced after a reload.
        deny_list: Certificates that are refused; replaced after a reload.
        bootstrap: The first token of a server that has no administrator yet.
        wants_keys: Set when a token named an unknown key.
        on_failure: Called for each failed authentication, with the reason.
    """

    def __init__(
        self,
        tokens: TokenStore,
        clock: Clock,
        *,
        needs_credentials: bool,
        jwt: JwtPolicy | None,
        max_failures_per_minute: int,
    ) -> None:
        self._tokens = tokens
        self._clock = clock
        self._needs_credentials = needs_credentials
        self._jwt = jwt
        self.on_failure: Callable[[Shown, str], None] = lambda _, __: None
        self._failures = Buckets(max_failures_per_minute / 60, max_failures_per_minute, MAX_REMEMBERED_CALLERS)
        self._signatures = SignatureBudget(clock.monotonic_s())
        self._verified: OrderedDict[bytes, Claims] = OrderedDict()
        # A client that repeats the same bad token costs only a look-up.
        self._forged: OrderedDict[bytes, None] = OrderedDict()
        self._certificates: OrderedDict[bytes, ClientCertificate] = OrderedDict()
        self._keys: KeySet = {}
        self.grants_file: GrantsFile = NO_GRANTS
        self.deny_list = DenyList()
        self.bootstrap: Bootstrap | None = None
        self.wants_keys = False

    @property
    def keys(self) -> KeySet:
        """Keys of signed tokens, by id."""
        return self._keys

    @keys.setter
    def keys(self, keys: KeySet) -> None:
        self._keys = keys
        # A removed key no longer vouches for the tokens that it signed.
        self._verified.clear()
        self._forged.clear()

    def authenticate(self, shown: Shown) -> Principal:
        """Return the principal that makes a call.

        Raises:
            UnauthenticatedError: The credentials are missing or invalid.
            RateLimitRejectedError: The credentials are invalid, and the address exceeds its limit of failures; or the
                signature was not checked, see SignatureBudget.
        """
        now_s = self._clock.monotonic_s()
        # Failures of an address count against its next credentials, but not against those known to be valid.
        is_suspect = self._failures.wait_s(shown.address, now_s, 1) > 0
        try:
            return self._identify(shown, is_suspect=is_suspect)
        except BadTokenError as reason:
            bucket = self._failures.of(shown.address, now_s)
            if (wait_s := bucket.wait_s(now_s, 1)) > 0:
                raise RateLimitRejectedError(
                    "too many calls from this address had no valid credentials: correct them, and retry later",
                    retry_after_ms=ceil(wait_s * 1_000),
                ) from None
            bucket.take(1, now_s)
            self.on_failure(shown, str(reason))
            raise UnauthenticatedError from None

    def renew(self, shown: Shown) -> Principal | None:
        """Return the current principal of a running call; None if its credentials are no longer valid."""
        try:
            return self._identify(shown, is_suspect=False)
        except BadTokenError:
            return None

    def _identify(self, shown: Shown, *, is_suspect: bool) -> Principal:
        certificate = self._certificate(shown.certificate) if shown.certificate else None
        if certificate is not None:
            self._check_certificate(certificate)
        if not self._needs_credentials:
            name = "anybody" if certificate is None else f"mtls:{certificate.name}"
            return Principal(name, _ALL)
        if shown.authorization:
            return self._identify_token(shown, is_suspect=is_suspect)
        if certificate is None or not certificate.name:
            raise BadTokenError("the call has neither a token nor a client certificate with a name")
        name = f"mtls:{certificate.name}"
        return Principal(name, self.grants_file.of(name), certificate.expires_s)

    def _identify_token(self, shown: Shown, *, is_suspect: bool) -> Principal:
        token = token_of(shown)
        if token.startswith(PREFIX):
            return self._opaque(token, shown)
        if self._jwt is None:
            raise BadTokenError("it is not a token of this server, and signed tokens are not configured")
        claims = self._claims(token, self._jwt, shown.connection if is_suspect else None)
        name = f"jwt:{claims.subject}"
        return Principal(name, self.grants_file.of(name, claims.roles), claims.expires_s)

    def _opaque(self, token: str, shown: Shown) -> Principal:
        now_ms = self._clock.wall_ms()
        if shown.is_local and self.bootstrap is not None and self.bootstrap.matches(token, now_ms):
            return Principal("bootstrap", ADMINISTRATION, self.bootstrap.expires_ms / 1_000)
        record = self._tokens.find(token)
        if record is None:
            raise BadTokenError("the token is unknown, revoked or expired")
        return Principal(f"token:{record.token_id}", record.grants, record.expires_ms / 1_000)

    def _claims(self, token: str, policy: JwtPolicy, connection: str | None) -> Claims:
        """Return the claims of a signed token. Raises BadTokenError.

        ``connection`` is set if the address exceeds its limit of failures.
        """
        now_s = self._clock.wall_ms() / 1_000
        # Cached by hash, so that no token stays in memory longer than its call.
        digest = hashlib.sha256(token.encode()).digest()
        claims = self._verified.get(digest)
        if claims is not None:
            if now_s >= claims.expires_s:
                raise BadTokenError("it has expired")
            self._verified.move_to_end(digest)
            return claims
        if digest in self._forged:
            raise BadTokenError("its signature is invalid, as before")
        try:
            key = key_of(token, self._keys, policy)
        except UnknownKeyError:
            self.wants_keys = True
            raise
        claims = self._verify(token, key, policy, connection, digest)
        _remember(self._verified, digest, claims)
        return claims

    def _verify(
        self, token: str, key: VerificationKey, policy: JwtPolicy, connection: str | None, digest: bytes
    ) -> Claims:
        """Check the signature of a token within the budget, and return its claims. Raises BadTokenError."""
        if connection is not None:
            self._signatures.check(connection, self._clock.monotonic_s())
        try:
            return verify(token, key, policy, self._clock.wall_ms() / 1_000)
        except BadTokenError as error:
            if connection is not None:
                self._signatures.note_bad(connection, self._clock.monotonic_s())
            if isinstance(error, ForgedTokenError):
                _remember(self._forged, digest, None)
            raise

    def _certificate(self, pem: bytes) -> ClientCertificate:
        found = self._certificates.get(pem)
        if found is None:
            try:
                found = parse_client_certificate(pem)
            except CertificateError as error:
                raise BadTokenError(str(error)) from error
            _remember(self._certificates, pem, found)
        return found

    def _check_certificate(self, certificate: ClientCertificate) -> None:
        if self.deny_list.denies(certificate):
            raise BadTokenError(f"the certificate {certificate.serial} is on the deny list")
        # TLS checked the expiry when the connection was made, which may be long ago.
        if self._clock.wall_ms() / 1_000 >= certificate.expires_s:
            raise BadTokenError(f"the certificate {certificate.serial} has expired")


def token_of(shown: Shown) -> str:
    """Return the token of a call. Raises BadTokenError."""
    if len(shown.authorization) != 1:
        raise BadTokenError("`authorization` occurs several times")
    (value,) = shown.authorization
    if len(value) > MAX_AUTHORIZATION_BYTES:
        raise BadTokenError(f"`authorization` has more than {MAX_AUTHORIZATION_BYTES} bytes")
    if not (shown.is_encrypted or shown.is_local):
        raise BadTokenError("a token was sent unencrypted over the network: consider it stolen, and revoke it")
    if not value[: len(_BEARER)].lower() == _BEARER or not value.isascii():
        raise BadTokenError("`authorization` is not of the form `Bearer TOKEN`")
    return value[len(_BEARER) :].strip()


def authorization_of(values: Sequence[str | bytes]) -> tuple[str, ...]:
    """Return the values of the metadata ``authorization`` as strings."""
    return tuple(value if isinstance(value, str) else value.decode("latin-1") for value in values)


def _remember(memory: OrderedDict[bytes, _Value], key: bytes, value: _Value) -> None:
    if len(memory) >= MAX_REMEMBERED_CREDENTIALS:
        memory.popitem(last=False)
    memory[key] = value
