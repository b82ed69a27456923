"""Tenants: the principals to which rows and limits belong, as a hash of fixed length."""

from hashlib import blake2b
from typing import Final

TENANT_BYTES: Final = 16
Tenant = bytes
"""TENANT_BYTES bytes, or NO_TENANT."""

NO_TENANT: Final[Tenant] = b""
"""The tenant of everything while authentication is off, and of rows that were written without a tenant."""


def tenant_of(principal: str) -> Tenant:
    """Return the tenant for the name of a principal; NO_TENANT for an empty name.

    Why a hash: a row has the same size for every principal, and a name may hold surrogates, which UTF-8 cannot.
    """
    if not principal:
        return NO_TENANT
    return blake2b(principal.encode(errors="backslashreplace"), digest_size=TENANT_BYTES).digest()
