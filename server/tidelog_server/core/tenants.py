"""Tenants: the principals that own rows and have limits, as a hash of fixed length."""

from hashlib import blake2b
from typing import Final

TENANT_BYTES: Final = 16
Tenant = bytes
"""TENANT_BYTES bytes, or NO_TENANT."""

NO_TENANT: Final[Tenant] = b""
"""The tenant of everything with authentication off, and of rows written without a tenant."""


def tenant_of(principal: str) -> Tenant:
    """Return the tenant of a principal; NO_TENANT for an empty name.

    Why a hash: rows have the same size for every principal, and a name may contain surrogates, which UTF-8 cannot.
    """
    if not principal:
        return NO_TENANT
    return blake2b(principal.encode(errors="backslashreplace"), digest_size=TENANT_BYTES).digest()
