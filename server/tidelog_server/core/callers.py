"""Callers: the principal of a call and its client id.

Why tuples and not joined texts: both parts may contain any separator, and different callers must not compare equal.
"""

from typing import NamedTuple

from tidelog_server.core.names import shown


class Caller(NamedTuple):
    """Identifies the client that owns a transaction.

    Attributes:
        principal: Name of the principal; empty with authentication off.
        client_id: Id sent by the client; empty if it sent none.
    """

    principal: str
    client_id: str

    def __str__(self) -> str:
        """Return the caller for log messages."""
        return f"{shown(self.principal)} {shown(self.client_id)!r}".lstrip()


def is_clean(text: str) -> bool:
    """Return whether ``text`` has no control characters and no lone surrogates, so it can be part of an identity."""
    return not any(char < " " or "\x7f" <= char <= "\x9f" or "\ud800" <= char <= "\udfff" for char in text)
