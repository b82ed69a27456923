"""Opaque tokens: their format and their stored records. Pure except for the random numbers.

A token is ``tdl_<id>_<secret>``, with 256 random bits in the secret. Only its SHA-256 is stored: a secret of this
length cannot be guessed from it, so a slow hash would cost time in every call without a gain.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from tidelog_server.metadata.json_records import decode_record, encode_record
from tidelog_server.security.grants import Grants, parse_grants

PREFIX: Final = "tdl_"
_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32
_TOKEN: Final = re.compile(rf"{PREFIX}([0-9a-f]{{{2 * _ID_BYTES}}})_[A-Za-z0-9_-]{{43}}", re.ASCII)
_ID: Final = re.compile(f"[0-9a-f]{{{2 * _ID_BYTES}}}", re.ASCII)
# Part of every stored record.
_RECORD_VERSION: Final = 1


class NewToken(NamedTuple):
    """A new token. Its text is not stored anywhere else."""

    token_id: str
    text: str

    def __repr__(self) -> str:
        return f"NewToken({self.token_id})"


def make_token() -> NewToken:
    """Return a new random token."""
    token_id = secrets.token_hex(_ID_BYTES)
    return NewToken(token_id, f"{PREFIX}{token_id}_{secrets.token_urlsafe(_SECRET_BYTES)}")


def id_of(text: str) -> str | None:
    """Return the id in a token; None if the text is not an opaque token."""
    found = _TOKEN.fullmatch(text)
    return found[1] if found else None


def is_token_id(text: str) -> bool:
    """Return whether ``text`` has the format of a token id."""
    return _ID.fullmatch(text) is not None


def hash_of(text: str) -> str:
    """Return the hash of a token that is stored."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """The stored record of a token.

    Attributes:
        token_id: Id of the token.
        sha256: SHA-256 of the token, hexadecimal.
        description: Purpose or owner of the token.
        grants: Permissions of the token.
        created_ms, expires_ms: Creation and expiry, in milliseconds of the wall clock.
        created_by: Name of the principal that created it.
        revoked_ms: Time of revocation; 0 if it is not revoked.
        revision: Metadata revision of its last change.
    """

    token_id: str
    sha256: str
    description: str
    grants: Grants
    created_ms: int
    expires_ms: int
    created_by: str
    revoked_ms: int = 0
    revision: int = field(default=0, compare=False)

    @property
    def name(self) -> str:
        """Its id, by which records are found."""
        return self.token_id

    def matches(self, text: str) -> bool:
        """Return whether ``text`` is this token, in constant time."""
        return hmac.compare_digest(self.sha256, hash_of(text))

    def is_valid(self, now_ms: int) -> bool:
        """Return whether the token is neither expired nor revoked."""
        return not self.revoked_ms and now_ms < self.expires_ms

    def revoked(self, now_ms: int) -> "TokenRecord":
        """Return the record with ``revoked_ms`` set; the time of an earlier revocation is unchanged."""
        return replace(self, revoked_ms=self.revoked_ms or now_ms)

    def encode(self) -> bytes:
        """Return the stored form of the record."""
        fields = {
            "token_id": self.token_id, "sha256": self.sha256, "description": self.description,
            "grants": sorted(map(str, self.grants.all)), "created_ms": self.created_ms,
            "expires_ms": self.expires_ms, "created_by": self.created_by, "revoked_ms": self.revoked_ms,
        }  # fmt: skip
        return encode_record(_RECORD_VERSION, fields)

    @classmethod
    def decode(cls, key: str, value: bytes, revision: int = 0) -> "TokenRecord":
        """Return the record in ``value``, as ``encode`` writes it. Raises DataLossError if it is invalid."""

        def parse(fields: dict[str, Any]) -> TokenRecord:
            return cls(**{**fields, "grants": parse_grants(fields["grants"])}, revision=revision)

        return decode_record(value, _RECORD_VERSION, parse, key, key=key)
