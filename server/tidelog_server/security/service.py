"""Security of a running server: credentials, watched files and the bootstrap token."""

import asyncio
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from tidelog_server.core.errors import TidelogServerError
from tidelog_server.core.limits import SECURITY_CHECK_INTERVAL_S
from tidelog_server.metadata.store import MetadataStore
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.security.authenticator import Authenticator
from tidelog_server.security.bootstrap import open_bootstrap
from tidelog_server.security.certificates import (
    CertificateFiles,
    DenyList,
    ServerCertificate,
    load_server_certificate,
    parse_deny_list,
    read_file,
)
from tidelog_server.security.jwks import KeySet, KeySetError, KeySource
from tidelog_server.security.jwt_tokens import JwtPolicy
from tidelog_server.security.roles import GrantsFile, read_grants_file
from tidelog_server.security.token_store import TokenStore
from tidelog_server.security.watched import Watched

# Interval at which revocations by other nodes are looked for.
TOKENS_RELOAD_INTERVAL_S: Final = 2.0
# Interval at which changed files are read again.
DENY_LIST_INTERVAL_S: Final = 10.0
JWKS_REFRESH_INTERVAL_S: Final = 300.0
# Interval with an unknown key, or after a failed attempt.
JWKS_HURRIED_INTERVAL_S: Final = 10.0

_log = structlog.get_logger()

_DAY_S: Final = 86_400.0
# Days before the expiry of the certificate at which a warning is logged.
_WARNINGS_DAYS: Final = (30, 7, 0)
# Interval of the warning in the log; the metric tidelog_insecure is always set.
INSECURE_REMINDER_S: Final = 86_400.0


class SecurityError(ValueError):
    """A file of the security settings is unusable; the server does not start."""


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """The operator's security settings.

    Attributes:
        needs_credentials: True if calls need credentials.
        tls: Files of the server's certificate; None for plaintext.
        deny_list: File of client certificates that are refused.
        jwt: Requirements for signed tokens; None to refuse them.
        keys: Source of the keys of signed tokens; None to refuse them.
        grants: File of grants for signed tokens and client certificates.
        max_failures_per_minute: Maximum failed authentications per address.
        is_exposed: True if the server accepts other machines without TLS or without credentials.
    """

    needs_credentials: bool
    tls: CertificateFiles | None
    deny_list: Path | None
    jwt: JwtPolicy | None
    keys: KeySource | None
    grants: Path | None
    max_failures_per_minute: int
    is_exposed: bool


class Security:
    """Credentials and certificates of a running server. Lives on the event loop.

    Attributes:
        settings: The operator's settings.
        certificate: Certificate of TLS connections; None for plaintext.
        on_renewed: Callback after the certificate was replaced; set by the server that uses it.
        clock: The clock by which credentials expire.
    """

    def __init__(self, settings: SecuritySettings, clock: Clock, metrics: Metrics) -> None:
        """Read all files.

        Raises:
            SecurityError: A file is unusable.
        """
        self.settings = settings
        self.clock = clock
        self._metrics = metrics
        self.on_renewed: Callable[[ServerCertificate], None] = lambda _: None
        self._told_days: int | None = None
        self._told_s = 0.0
        self._deny_list: Watched[DenyList] | None = None
        self._grants: Watched[GrantsFile] | None = None
        self._keys: Watched[KeySet] | None = None
        self._certificate: Watched[ServerCertificate] | None = None
        self.tokens: TokenStore
        self.authenticator: Authenticator
        try:
            self._read_files()
        except ValueError as error:
            raise SecurityError(str(error)) from error
        metrics.insecure.set(settings.is_exposed)

    def _read_files(self) -> None:
        settings, clock = self.settings, self.clock
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
        if (keys := settings.keys) is not None and keys.is_remote:
            # The keys themselves are fetched later: a start does not depend on the issuer.
            keys.context()
        elif keys is not None:
            self._keys = Watched("JWKS", [Path(keys.location)], keys.read)

    @property
    def _remote_keys(self) -> KeySource | None:
        keys = self.settings.keys
        return keys if keys is not None and keys.is_remote else None

    @property
    def certificate(self) -> ServerCertificate | None:
        """Certificate of TLS connections; None for plaintext. Thread-safe."""
        return None if self._certificate is None else self._certificate.content

    @property
    def looks_at_calls(self) -> bool:
        """True if calls must be authenticated or have client certificates to check."""
        tls = self.settings.tls
        return self.settings.needs_credentials or (tls is not None and tls.client_ca is not None)

    async def open(self, metadata: MetadataStore, root: str, folder: Path) -> None:
        """Load the tokens, and write a bootstrap token into ``folder`` if there is no administrator.

        Raises:
            DataLossError: The record of a token cannot be read.
            OSError: The bootstrap token cannot be written.
        """
        settings = self.settings
        self.tokens = TokenStore(metadata, root, self.clock)
        await self.tokens.reload()
        self.authenticator = Authenticator(
            self.tokens, self.clock, needs_credentials=settings.needs_credentials, jwt=settings.jwt,
            max_failures_per_minute=settings.max_failures_per_minute,
        )  # fmt: skip
        self._take_over()
        if (keys := self._remote_keys) is not None:
            await self._fetch_keys(keys)
        if settings.needs_credentials and not self.tokens.has_administrator():
            await asyncio.to_thread(folder.mkdir, 0o700, parents=True, exist_ok=True)
            bootstrap = await asyncio.to_thread(open_bootstrap, folder, self.clock.wall_ms())
            self.authenticator.bootstrap = bootstrap
            _log.warning(
                "bootstrap_token_written", path=str(bootstrap.path), minutes=15,
                advice=f"create an administrator: tidelog --token-file {shlex.quote(str(bootstrap.path))} token create "
                "administrator -a admin.write -a admin.read -o text > admin.token",
            )  # fmt: skip

    async def administrator_made(self) -> None:
        """Delete the bootstrap token if an administrator exists. Call after a token was created."""
        if self.tokens.has_administrator():
            await self.close()

    async def run(self) -> None:
        """Poll files and tokens for changes. Never returns."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        tokens, denied = _Every(TOKENS_RELOAD_INTERVAL_S, begun_s), _Every(DENY_LIST_INTERVAL_S, begun_s)
        reminder = _Every(INSECURE_REMINDER_S, begun_s)
        if self.settings.is_exposed:
            _remind()
        while True:
            await asyncio.sleep(SECURITY_CHECK_INTERVAL_S)
            now_s = loop.time()
            await self._poll_files()
            if tokens.is_due(now_s):
                await self._reload_tokens()
            if denied.is_due(now_s) and self._deny_list is not None and await self._deny_list.poll():
                self._take_over()
            if self.settings.is_exposed and reminder.is_due(now_s):
                _remind()

    async def run_keys(self) -> None:
        """Fetch the keys of signed tokens whenever they are due. Never returns.

        A task of its own: an issuer that does not answer must not delay revocations.
        """
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        due, hurried = _Every(JWKS_REFRESH_INTERVAL_S, begun_s), _Every(JWKS_HURRIED_INTERVAL_S, begun_s)
        while True:
            await asyncio.sleep(SECURITY_CHECK_INTERVAL_S)
            if (keys := self._remote_keys) is not None:
                is_hurried = self.authenticator.wants_keys or not self.authenticator.keys
                now_s = loop.time()
                if due.is_due(now_s) or (is_hurried and hurried.is_due(now_s)):
                    await self._fetch_keys(keys)

    async def _poll_files(self) -> None:
        if self._certificate is not None:
            failures = self._certificate.failures
            if await self._certificate.poll():
                self.on_renewed(self._certificate.content)
            self._tell_expiry(self._certificate.content)
            self._metrics.tls_reload_failures.inc(self._certificate.failures - failures)
        changed = [await watched.poll() for watched in (self._grants, self._keys) if watched is not None]
        if any(changed):
            self._take_over()
        bootstrap = self.authenticator.bootstrap
        if bootstrap is not None and self.clock.wall_ms() >= bootstrap.expires_ms:
            await self.close()

    def _take_over(self) -> None:
        """Pass the content of the files to the authenticator."""
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
            # The cached tokens stay valid until they expire, so that calls succeed while the metadata store is down.
            _log.warning("tokens_not_reloaded", cause=str(error))
        if self.authenticator.bootstrap is not None:
            await self.administrator_made()

    async def _fetch_keys(self, source: KeySource) -> None:
        self.authenticator.wants_keys = False
        try:
            self.authenticator.keys = await asyncio.to_thread(source.read)
        except KeySetError as error:
            _log.error("jwks_not_fetched", cause=str(error), kept=len(self.authenticator.keys))

    async def close(self) -> None:
        """Delete the bootstrap token. Idempotent."""
        bootstrap, self.authenticator.bootstrap = self.authenticator.bootstrap, None
        if bootstrap is not None:
            await asyncio.to_thread(bootstrap.close)

    def _tell_expiry(self, certificate: ServerCertificate) -> None:
        """Warn 30 and 7 days before the certificate expires, when it expires, and daily after the first warning."""
        self._metrics.tls_certificate_expiry.set(certificate.expires_s)
        now_s = self.clock.wall_ms() / 1_000
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
    """A timer of a periodic job."""

    def __init__(self, interval_s: float, now_s: float) -> None:
        self._interval_s = interval_s
        self._due_s = now_s + interval_s

    def is_due(self, now_s: float) -> bool:
        """Return whether the job is due; if so, schedule the next run one interval from now."""
        if now_s < self._due_s:
            return False
        self._due_s = now_s + self._interval_s
        return True


def _remind() -> None:
    _log.warning(
        "insecure",
        text="the server accepts other machines without TLS or without authentication",
        advice="set [tls] and auth.kind = on, then remove server.insecure",
    )
