"""The bootstrap token, with which the operator creates the first administrator.

A server with authentication on that has no valid administrator token writes a bootstrap token into a file that only
its own user can read. It is valid for 15 minutes, from this machine only, and is deleted once an administrator exists.
"""

import hmac
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog_server.security.tokens import hash_of, make_token

BOOTSTRAP_LIFETIME_MS: Final = 15 * 60 * 1_000

FILE_NAME: Final = "bootstrap-token"
_ONLY_OWNER: Final = 0o600


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A bootstrap token.

    Attributes:
        path: File with the token.
        sha256: SHA-256 of the token, hexadecimal.
        expires_ms: Expiry, in milliseconds of the wall clock.
    """

    path: Path
    sha256: str
    expires_ms: int

    def matches(self, text: str, now_ms: int) -> bool:
        """Return whether ``text`` is this token and has not expired."""
        return hmac.compare_digest(self.sha256, hash_of(text)) and now_ms < self.expires_ms

    def close(self) -> None:
        """Remove the file. Idempotent."""
        self.path.unlink(missing_ok=True)


def open_bootstrap(folder: Path, now_ms: int) -> Bootstrap:
    """Write a new token into ``folder``, replacing an older one. Raises OSError."""
    made = make_token()
    path = folder / FILE_NAME
    path.unlink(missing_ok=True)
    # Exclusive: fails if another process has created a link or file there meanwhile.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _ONLY_OWNER)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{made.text}\n")
    return Bootstrap(path, hash_of(made.text), now_ms + BOOTSTRAP_LIFETIME_MS)
