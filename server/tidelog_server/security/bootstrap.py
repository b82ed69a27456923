"""The first token of a server: how its operator gets in before there is an administrator.

A server with authentication on that finds no valid token of an administrator writes one into a file that only its own
user can read. It is taken for 15 minutes and from this machine only, and is gone as soon as there is an administrator.
"""

import hmac
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog_server.core.limits import BOOTSTRAP_LIFETIME_MS
from tidelog_server.security.tokens import hash_of, make_token

FILE_NAME: Final = "bootstrap-token"
_ONLY_OWNER: Final = 0o600


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A first token that is open.

    Attributes:
        path: Where its text is.
        sha256: Of its text.
        expires_ms: Until when it is taken, on the wall clock.
    """

    path: Path
    sha256: str
    expires_ms: int

    def matches(self, text: str, now_ms: int) -> bool:
        """Tell whether ``text`` is this token, and in time."""
        return hmac.compare_digest(self.sha256, hash_of(text)) and now_ms < self.expires_ms

    def close(self) -> None:
        """Remove the file. Idempotent."""
        self.path.unlink(missing_ok=True)


def open_bootstrap(folder: Path, now_ms: int) -> Bootstrap:
    """Write a new token into ``folder``, in place of an older one. Raises OSError."""
    made = make_token()
    path = folder / FILE_NAME
    path.unlink(missing_ok=True)
    # Exclusive: nobody can have put a link or a file of his own there in between.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _ONLY_OWNER)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{made.text}\n")
    return Bootstrap(path, hash_of(made.text), now_ms + BOOTSTRAP_LIFETIME_MS)
