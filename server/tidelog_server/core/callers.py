"""Callers: the principal of a call and its client id; and tenants, the principals that own rows and have limits.

Why tuples and not joined texts: both parts may contain any separator, and different callers must not compare equal.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

from tidelog_server.core.names import shown

TENANT_BYTES: Final = 16
Tenant = bytes
"""TENANT_BYTES bytes, or NO_TENANT."""

NO_TENANT: Final[Tenant] = b""
"""The tenant of everything with authentication off, and of rows written without a tenant."""


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


def tenant_of(principal: str) -> Tenant:
    """Return the tenant of a principal; NO_TENANT for an empty name.

    Why a hash: rows have the same size for every principal, and a name may contain surrogates, which UTF-8 cannot.
    """
    if not principal:
        return NO_TENANT
    return blake2b(principal.encode(errors="backslashreplace"), digest_size=TENANT_BYTES).digest()
