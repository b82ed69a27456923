"""Callers: the principal of a call, and the client that it names.

Why tuples and not joined texts: both parts may hold any separator, and two callers must never compare equal.
"""

from typing import NamedTuple

from tidelog_server.core.names import shown


class Caller(NamedTuple):
    """Identifies the client to which a transaction belongs.

    Attributes:
        principal: Name of the principal; empty with authentication off.
        client_id: How the client names itself; empty for a client without a name.
    """

    principal: str
    client_id: str

    def __str__(self) -> str:
        """Return the caller as the log shows it."""
        return f"{shown(self.principal)} {shown(self.client_id)!r}".lstrip()


def is_clean(text: str) -> bool:
    """Return whether ``text`` can be part of an identity: it has no control characters and no lone surrogates."""
    return not any(char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff" for char in text)
