"""The grants file: permissions of signed tokens and client certificates. Pure except for reading it.

A TOML file with roles, which tokens name, and principals, by full name::

    [roles]
    writer = ["append:orders.*", "read:orders.*"]

    [principals]
    "jwt:billing" = ["role:writer"]
    "mtls:spiffe://example.org/ingest" = ["append:orders"]
"""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tidelog_server.core.names import shown
from tidelog_server.security.certificates import CertificateError, read_file
from tidelog_server.security.grants import NOTHING, GrantError, Grants, parse_grants

_ROLE: Final = "role:"
_KINDS: Final = ("jwt:", "mtls:")


class GrantsFileError(ValueError):
    """The grants file is unusable; the message gives the place and the reason."""


class GrantsFile:
    """Grants of roles and principals."""

    def __init__(self, roles: Mapping[str, Grants], principals: Mapping[str, Grants]) -> None:
        self._roles = dict(roles)
        self._principals = dict(principals)

    def of(self, principal: str, roles: Iterable[str] = ()) -> Grants:
        """Return the grants of a principal and of its roles. Unknown roles permit nothing."""
        found = [self._principals.get(principal, NOTHING), *(self._roles.get(role, NOTHING) for role in roles)]
        return Grants(grant for grants in found for grant in grants.all)


NO_GRANTS: Final = GrantsFile({}, {})


def read_grants_file(path: Path) -> GrantsFile:
    """Return the grants in a file. Raises GrantsFileError."""
    try:
        tables = tomllib.loads(read_file(path).decode())
    except (CertificateError, ValueError) as error:
        raise GrantsFileError(f"the grants file {path} is unusable: {error}") from error
    if unknown := sorted(set(tables) - {"roles", "principals"}):
        raise GrantsFileError(f"the grants file {path} has [{shown(unknown[0])}]: expected [roles] and [principals]")
    roles = {name: _grants(path, name, texts, {}) for name, texts in _table(path, tables, "roles").items()}
    principals = {}
    for name, texts in _table(path, tables, "principals").items():
        if not name.startswith(_KINDS):
            raise GrantsFileError(
                f"the grants file {path} has the principal '{shown(name)}': expected a name that begins with "
                f"{' or '.join(_KINDS)}"
            )
        principals[name] = _grants(path, name, texts, roles)
    return GrantsFile(roles, principals)


def _table(path: Path, tables: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict):
        raise GrantsFileError(f"the grants file {path}: [{name}] is not a table")
    return table


def _grants(path: Path, name: str, texts: object, roles: Mapping[str, Grants]) -> Grants:
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise GrantsFileError(f"the grants file {path}: '{shown(name)}' is not a list of strings")
    found = NOTHING.all
    for text in texts:
        if text.startswith(_ROLE):
            role = roles.get(text.removeprefix(_ROLE))
            if role is None:
                raise GrantsFileError(f"the grants file {path}: '{shown(name)}' has the unknown role '{shown(text)}'")
            found |= role.all
        else:
            try:
                found |= parse_grants([text]).all
            except GrantError as error:
                raise GrantsFileError(f"the grants file {path}: '{shown(name)}': {error}") from error
    return Grants(found)
