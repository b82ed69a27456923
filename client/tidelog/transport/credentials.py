"""Credentials of a client: TLS and tokens."""

import ipaddress
import logging
import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

_log: Final = logging.getLogger("tidelog")
_BEARER: Final = "Bearer "
_FILE_LOOK_INTERVAL_S: Final = 1.0

TokenSource = str | Callable[[], str]
"""A token, or a function that returns the current one; called once per RPC, so it must be fast."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Options of a TLS connection. The client always verifies the server's certificate and name.

    Attributes:
        ca: PEM file of the authorities to trust. Default None: gRPC's own.
        cert: PEM file of the client's certificate with its chain, for servers that require one.
        key: PEM file of its private key.
    """

    ca: str | os.PathLike[str] | None = None
    cert: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("only one of cert and key is set: a client certificate requires both")

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return the gRPC credentials. Reads the files; raises OSError."""
        ca, key, cert = (None if path is None else Path(path).read_bytes() for path in (self.ca, self.key, self.cert))
        return grpc.ssl_channel_credentials(ca, key, cert)


class TokenFile:
    """A TokenSource that reads a file, and reads it again when it changes: replace the file to renew the token.

    It checks the file at most once a second. If other users of the machine can read the file, it logs a warning on the
    logger ``tidelog`` and uses the token.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._looked_s = float("-inf")
        self._token = ""
        self._has_warned = False

    def __call__(self) -> str:
        """Return the token. Raises OSError if the file cannot be read and never was."""
        now_s = time.monotonic()
        if now_s < self._looked_s + _FILE_LOOK_INTERVAL_S:
            return self._token
        try:
            found = self._path.stat()
            seen = found.st_mtime_ns, found.st_size, found.st_ino
            if seen != self._seen:
                # A file that is being replaced may be empty for a moment: the previous token is still valid.
                self._token = self._path.read_text(encoding="ascii").strip() or self._token
                self._seen = seen
                self._warn_if_open(found.st_mode)
        except OSError:
            if not self._token:
                raise
        self._looked_s = now_s
        return self._token

    def _warn_if_open(self, mode: int) -> None:
        # Group permissions are not checked: sharing a token with a group is a deliberate choice.
        is_open = bool(mode & stat.S_IROTH)
        if is_open and not self._has_warned:
            _log.warning(
                "the token file %s has mode %04o, so every user of this machine can read the token: run chmod 600 on "
                "it, and replace the token if others may have read it",
                self._path, stat.S_IMODE(mode),
            )  # fmt: skip
        self._has_warned = is_open


def authorization(token: TokenSource) -> tuple[str, str]:
    """Return the metadata that carries a token. Raises ValueError if the token is malformed."""
    text = token if isinstance(token, str) else token()
    if not text or not text.isascii() or not text.isprintable():
        # Never include the text, which may be part of a secret.
        raise ValueError("the token is malformed: expected printable ASCII characters, at least one")
    return "authorization", _BEARER + text


def check_endpoint(endpoint: str, *, has_token: bool, has_tls: bool) -> None:
    """Raise ValueError if a token would travel unencrypted to another machine."""
    if has_token and not has_tls and not _is_local(endpoint):
        raise ValueError(
            f"refusing to send a token unencrypted to {endpoint}, which may be another machine: set tls as well"
        )


def _is_local(endpoint: str) -> bool:
    if endpoint.startswith("unix:"):
        return True
    host = endpoint.rpartition(":")[0].strip("[]") or endpoint
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
