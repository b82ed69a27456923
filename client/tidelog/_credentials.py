"""What a client shows of itself and checks of the server: TLS and tokens."""

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
"""A token, or what returns the one to show now: called for each call, so it must be quick."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Encrypts the connection, and proves to the client who the server is. The server's name is always checked.

    Attributes:
        ca: File of the authorities that may vouch for the server, PEM. Default None: those that gRPC trusts.
        cert: File of the client's own certificate with its chain, PEM, for servers that ask for one.
        key: File of its private key, PEM.
    """

    ca: str | os.PathLike[str] | None = None
    cert: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            raise ValueError("a client's certificate needs both: cert and key")

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Return what gRPC makes of it; reads the files. Raises OSError."""
        ca, key, cert = (None if path is None else Path(path).read_bytes() for path in (self.ca, self.key, self.cert))
        return grpc.ssl_channel_credentials(ca, key, cert)


class TokenFile:
    """Reads a token from a file, again when it changes: whoever renews the token replaces the file.

    A TokenSource; looks at the file once a second at most. Each file that other users of the machine can read is used
    with a warning on the logger ``tidelog``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int, int] | None = None
        self._looked_s = float("-inf")
        self._token = ""
        self._has_warned = False

    def __call__(self) -> str:
        """Return the token. Raises OSError if there never was one to read."""
        now_s = time.monotonic()
        if now_s < self._looked_s + _FILE_LOOK_INTERVAL_S:
            return self._token
        try:
            found = self._path.stat()
            seen = found.st_mtime_ns, found.st_size, found.st_ino
            if seen != self._seen:
                # A file that is being written is empty for a moment: the token before is still good.
                self._token = self._path.read_text(encoding="ascii").strip() or self._token
                self._seen = seen
                self._warn_if_open(found.st_mode)
        except OSError:
            if not self._token:
                raise
        self._looked_s = now_s
        return self._token

    def _warn_if_open(self, mode: int) -> None:
        # Not of its group: an administrator who shares a token with a group has meant that.
        is_open = bool(mode & stat.S_IROTH)
        if is_open and not self._has_warned:
            _log.warning(
                "the token file %s has mode %04o, so every user of this machine can read the token: chmod 600 it, and "
                "replace the token if others may have read it",
                self._path, stat.S_IMODE(mode),
            )  # fmt: skip
        self._has_warned = is_open


def authorization(token: TokenSource) -> tuple[str, str]:
    """Return the metadata that shows a token. Raises ValueError for what cannot be one."""
    text = token if isinstance(token, str) else token()
    if not text or not text.isascii() or not text.isprintable():
        # Never the text itself, which may be part of a secret.
        raise ValueError("the token is no token: expected visible ASCII characters")
    return "authorization", _BEARER + text


def check_endpoint(endpoint: str, *, has_token: bool, has_tls: bool) -> None:
    """Raise ValueError if a token would travel unencrypted to another machine."""
    if has_token and not has_tls and not _is_local(endpoint):
        raise ValueError(
            f"a token is sent over TLS only, or to this machine, and {endpoint} may be another one: give tls as well"
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
