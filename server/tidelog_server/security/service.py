"""Everything of security that lives as long as the server: credentials, files that are watched, first token."""

import asyncio
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from tidelog_server.core.errors import TidelogServerError
from tidelog_server.core.limits import (
    DENY_LIST_INTERVAL_S,
    JWKS_HURRIED_INTERVAL_S,
    JWKS_REFRESH_INTERVAL_S,
    SECURITY_CHECK_INTERVAL_S,
    TOKENS_RELOAD_INTERVAL_S,
)
from tidelog_server.metadata.store import MetadataStore
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.security.authenticator import Authenticator, Shown
from tidelog_server.security.bootstrap import open_bootstrap
from tidelog_server.security.certificates import (
    CertificateFiles,
    DenyList,
    ServerCertificate,
    load_server_certificate,
    parse_deny_list,
    read_file,
)
from tidelog_server.security.jwks import KeySetError, VerificationKey, fetch, is_url, parse_key_set
from tidelog_server.security.jwt_tokens import JwtPolicy
from tidelog_server.security.roles import GrantsFile, read_grants_file
from tidelog_server.security.token_store import TokenStore
from tidelog_server.security.watched import Watched

_log = structlog.get_logger()

_DAY_S: Final = 86_400.0
# Days before a certificate ends at which that is told.
_WARNINGS_DAYS: Final = (30, 7, 0)
# The metric tidelog_insecure tells it all the time.
INSECURE_REMINDER_S: Final = 86_400.0


class SecurityError(ValueError):
    """Something of the security settings cannot be used; the server does not start."""


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """What an operator has decided.

    Attributes:
        needs_credentials: Whether calls must say who makes them.
        tls: The server's certificate; None for plaintext.
        deny_list: File of certificates that are not taken.
        jwt: What signed tokens must be; None if there are none.
        jwks: File or URL of their keys.
        grants: File of what they and client certificates permit.
        max_failures_per_minute: Failed authentications from one address.
        is_exposed: Whether other machines are let in without TLS and credentials.
    """

    needs_credentials: bool
    tls: CertificateFiles | None
    deny_list: Path | None
    jwt: JwtPolicy | None
    jwks: str
    grants: Path | None
    max_failures_per_minute: int
    is_exposed: bool


class Security:
    """Credentials and certificates of a running server. Lives on the event loop.

    Attributes:
        certificate: What TLS connections are made with; None for plaintext.
        on_renewed: Called after the certificate was replaced, and may be set by whoever serves it.
        on_failure: Called with each failed authentication.
    """

    def __init__(self, settings: SecuritySettings, clock: Clock, metrics: Metrics) -> None:
        """Read all files.

        Raises:
            SecurityError: One of them cannot be used.
        """
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self.on_renewed: Callable[[ServerCertificate], None] = lambda _: None
        self.on_failure: Callable[[Shown, str], None] = lambda _, __: None
        self._told_days: int | None = None
        self._told_s = 0.0
        self._deny_list: Watched[DenyList] | None = None
        self._grants: Watched[GrantsFile] | None = None
        self._keys: Watched[dict[str, VerificationKey]] | None = None
        self._certificate: Watched[ServerCertificate] | None = None
        self.tokens: TokenStore
        self.authenticator: Authenticator
        try:
            self._read_files()
        except ValueError as error:
            raise SecurityError(str(error)) from error
        metrics.insecure.set(settings.is_exposed)

    def _read_files(self) -> None:
        settings, clock = self._settings, self._clock
        if (tls := settings.tls) is not None:
            paths = [path for path in (tls.cert, tls.key, tls.client_ca) if path is not None]
            self._certificate = Watched(
                "certificate", paths, lambda: load_server_certificate(tls, clock.wall_ms() / 1_000)
            )
            self._tell_expiry(self._certificate.content)
        if (deny_list := settings.deny_list) is not None:
            self._deny_list = Watched(
                "deny list", [deny_list], lambda: parse_deny_list(read_file(deny_list), deny_list)
            )
        if (grants := settings.grants) is not None:
            self._grants = Watched("grants", [grants], lambda: read_grants_file(grants))
        if settings.jwks and not is_url(settings.jwks):
            self._keys = Watched("JWKS", [Path(settings.jwks)], self._read_keys)

    def _read_keys(self) -> dict[str, VerificationKey]:
        try:
            return parse_key_set(fetch(self._settings.jwks))
        except KeySetError as error:
            raise KeySetError(f"the JSON Web Key Set {self._settings.jwks}: {error}") from error

    @property
    def certificate(self) -> ServerCertificate | None:
        """What TLS connections are made with; None for plaintext. Any thread may ask."""
        return None if self._certificate is None else self._certificate.content

    @property
    def files(self) -> CertificateFiles | None:
        """Where the certificate comes from; None for plaintext."""
        return self._settings.tls

    @property
    def needs_credentials(self) -> bool:
        """Whether calls must say who makes them."""
        return self._settings.needs_credentials

    @property
    def looks_at_calls(self) -> bool:
        """Whether there is anything to find out about a call at all."""
        tls = self._settings.tls
        return self._settings.needs_credentials or (tls is not None and tls.client_ca is not None)

    def now_ms(self) -> int:
        """Return the wall clock's time, by which credentials expire."""
        return self._clock.wall_ms()

    async def open(self, metadata: MetadataStore, root: str, folder: Path) -> None:
        """Load the tokens, and write a first one into ``folder`` if there is no administrator.

        Raises:
            DataLossError: A token's record cannot be read.
            OSError: The first token cannot be written.
        """
        settings = self._settings
        self.tokens = TokenStore(metadata, root, self._clock)
        await self.tokens.reload()
        self.authenticator = Authenticator(
            self.tokens, self._clock, needs_credentials=settings.needs_credentials, jwt=settings.jwt,
            max_failures_per_minute=settings.max_failures_per_minute,
            on_failure=self._authentication_failed,
        )  # fmt: skip
        self._take_over()
        if is_url(settings.jwks):
            await self._fetch_keys()
        if settings.needs_credentials and not self.tokens.has_administrator():
            await asyncio.to_thread(folder.mkdir, 0o700, parents=True, exist_ok=True)
            bootstrap = await asyncio.to_thread(open_bootstrap, folder, self._clock.wall_ms())
            self.authenticator.bootstrap = bootstrap
            _log.warning(
                "bootstrap_token_written", path=str(bootstrap.path), minutes=15,
                advice=f"create an administrator: tidelog --token-file {shlex.quote(str(bootstrap.path))} token create "
                "administrator -a admin.write -a admin.read -o text > admin.token",
            )  # fmt: skip

    def _authentication_failed(self, shown: Shown, reason: str) -> None:
        self.on_failure(shown, reason)

    async def close(self) -> None:
        """Take the first token back. Idempotent."""
        await self._close_bootstrap()

    async def administrator_made(self) -> None:
        """Note that a token was made: the first one has done its duty if that is an administrator's."""
        if self.tokens.has_administrator():
            await self._close_bootstrap()

    async def run(self) -> None:
        """Look for what changed, for ever."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        tokens, denied = _Every(TOKENS_RELOAD_INTERVAL_S, begun_s), _Every(DENY_LIST_INTERVAL_S, begun_s)
        keys, reminder = _Every(JWKS_REFRESH_INTERVAL_S, begun_s), _Every(INSECURE_REMINDER_S, begun_s)
        hurried = _Every(JWKS_HURRIED_INTERVAL_S, begun_s)
        if self._settings.is_exposed:
            _remind()
        while True:
            await asyncio.sleep(SECURITY_CHECK_INTERVAL_S)
            now_s = loop.time()
            await self._poll_files()
            if tokens.is_due(now_s):
                await self._reload_tokens()
            if denied.is_due(now_s) and self._deny_list is not None and await self._deny_list.poll():
                self._take_over()
            if is_url(self._settings.jwks):
                is_hurried = self.authenticator.wants_keys or not self.authenticator.keys
                if keys.is_due(now_s) or (is_hurried and hurried.is_due(now_s)):
                    await self._fetch_keys()
            if self._settings.is_exposed and reminder.is_due(now_s):
                _remind()

    async def _poll_files(self) -> None:
        if self._certificate is not None:
            if await self._certificate.poll():
                self.on_renewed(self._certificate.content)
            self._tell_expiry(self._certificate.content)
            self._metrics.tls_reload_failures.set(self._certificate.failures)
        changed = [await watched.poll() for watched in (self._grants, self._keys) if watched is not None]
        if any(changed):
            self._take_over()
        bootstrap = self.authenticator.bootstrap
        if bootstrap is not None and self._clock.wall_ms() >= bootstrap.expires_ms:
            await self._close_bootstrap()

    def _take_over(self) -> None:
        """Let the authenticator know what the files have."""
        if self._grants is not None:
            self.authenticator.grants_file = self._grants.content
        if self._keys is not None and self.authenticator.keys is not self._keys.content:
            self.authenticator.keys = self._keys.content
        if self._deny_list is not None:
            self.authenticator.deny_list = self._deny_list.content

    async def _reload_tokens(self) -> None:
        try:
            await self.tokens.reload()
        except (OSError, TidelogServerError) as error:
            # What is known stays known, and expires: data goes on while the metadata store is away.
            _log.warning("tokens_not_reloaded", cause=str(error))
        if self.authenticator.bootstrap is not None:
            await self.administrator_made()

    async def _fetch_keys(self) -> None:
        self.authenticator.wants_keys = False
        try:
            self.authenticator.keys = await asyncio.to_thread(self._read_keys)
        except KeySetError as error:
            _log.error("jwks_not_fetched", cause=str(error), kept=len(self.authenticator.keys))

    async def _close_bootstrap(self) -> None:
        bootstrap, self.authenticator.bootstrap = self.authenticator.bootstrap, None
        if bootstrap is not None:
            await asyncio.to_thread(bootstrap.close)

    def _tell_expiry(self, certificate: ServerCertificate) -> None:
        """Warn 30 and 7 days before the certificate ends, when it has ended, and each day from then on."""
        self._metrics.tls_certificate_expires.set(certificate.expires_s)
        now_s = self._clock.wall_ms() / 1_000
        left_days = (certificate.expires_s - now_s) / _DAY_S
        passed = [days for days in _WARNINGS_DAYS if left_days <= days]
        if not passed:
            self._told_days = None
            return
        if min(passed) == self._told_days and abs(now_s - self._told_s) < _DAY_S:
            return
        self._told_days, self._told_s = min(passed), now_s
        _log.warning("tls_certificate_expires", days=round(left_days, 1), serial=certificate.serial, advice="renew it")


class _Every:
    """Tells when something is to be done that is done every so many seconds."""

    def __init__(self, interval_s: float, now_s: float) -> None:
        self._interval_s = interval_s
        self._due_s = now_s + interval_s

    def is_due(self, now_s: float) -> bool:
        """Tell whether it is to be done now, and if so count from now on."""
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._interval_s
        return True


def _remind() -> None:
    _log.warning(
        "insecure",
        text="other machines are let in without TLS or without authentication",
        advice="set [tls] and auth.kind = on, then take server.insecure away",
    )
