"""Opaque tokens: how they look, and what is kept of them. Pure but for the chance that makes them.

A token is ``tdl_<id>_<secret>``, with 256 bits of chance in its secret. What is kept is its SHA-256 only: a secret that
long cannot be guessed from it, so a slow hash would cost every call and gain nothing.
"""

import hashlib
import hmac
import json
import re
import secrets
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tidelog_server.core.errors import DataLossError
from tidelog_server.security.grants import Grants, parse_grants

PREFIX: Final = "tdl_"
_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32
_TOKEN: Final = re.compile(rf"{PREFIX}([0-9a-f]{{{2 * _ID_BYTES}}})_[A-Za-z0-9_-]{{43}}", re.ASCII)
_ID: Final = re.compile(f"[0-9a-f]{{{2 * _ID_BYTES}}}", re.ASCII)
# In the metadata since tokens exist.
_RECORD_VERSION: Final = 1


class NewToken(NamedTuple):
    """A token that was just made: the only place that has its text."""

    token_id: str
    text: str

    def __repr__(self) -> str:
        return f"NewToken({self.token_id})"


def make_token() -> NewToken:
    """Return a token that nobody can guess."""
    token_id = secrets.token_hex(_ID_BYTES)
    return NewToken(token_id, f"{PREFIX}{token_id}_{secrets.token_urlsafe(_SECRET_BYTES)}")


def id_of(text: str) -> str | None:
    """Return the id that a token names; None if it is none of ours."""
    found = _TOKEN.fullmatch(text)
    return found[1] if found else None


def is_token_id(text: str) -> bool:
    """Tell whether ``text`` looks like the id of a token."""
    return _ID.fullmatch(text) is not None


def hash_of(text: str) -> str:
    """Return what is kept of a token."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """What is kept of a token.

    Attributes:
        token_id: Its id.
        sha256: Of its text, hexadecimal.
        description: Whom it is for.
        grants: What it permits.
        created_ms, expires_ms: From when until when, on the wall clock.
        created_by: Who made it.
        revoked_ms: When it was revoked; 0 if it was not.
    """

    token_id: str
    sha256: str
    description: str
    grants: Grants
    created_ms: int
    expires_ms: int
    created_by: str
    revoked_ms: int = 0

    def matches(self, text: str) -> bool:
        """Tell whether ``text`` is this token, in a time that does not depend on where it differs."""
        return hmac.compare_digest(self.sha256, hash_of(text))

    def is_valid(self, now_ms: int) -> bool:
        """Tell whether it is neither expired nor revoked."""
        return not self.revoked_ms and now_ms < self.expires_ms

    def revoked(self, now_ms: int) -> "TokenRecord":
        """Return the record of the same token, revoked; the time of the first revocation stays."""
        return replace(self, revoked_ms=self.revoked_ms or now_ms)

    def encode(self) -> bytes:
        """Return the record as it is stored."""
        fields = {
            "version": _RECORD_VERSION, "token_id": self.token_id, "sha256": self.sha256,
            "description": self.description, "grants": sorted(map(str, self.grants.all)),
            "created_ms": self.created_ms, "expires_ms": self.expires_ms, "created_by": self.created_by,
            "revoked_ms": self.revoked_ms,
        }  # fmt: skip
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, key: str, value: bytes) -> "TokenRecord":
        """Return the record that ``encode`` made. Raises DataLossError if it is none."""
        try:
            fields = json.loads(value)
            version = fields.pop("version")
            fields["grants"] = parse_grants(fields["grants"])
            record = cls(**fields)
        except (ValueError, TypeError, KeyError) as error:
            raise DataLossError(f"the metadata record {key} cannot be read ({error})", key=key) from error
        if version != _RECORD_VERSION:
            raise DataLossError(f"the metadata record {key} has the unknown version {version}", key=key)
        return record
