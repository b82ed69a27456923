"""What calls about tokens take and return."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TokenDescription:
    """What the server tells of a token.

    Attributes:
        token_id: Its id, 12 hexadecimal digits.
        description: Whom it is for.
        grants: What it permits, ``append:orders.*`` or ``admin.read`` each.
        created_time_ms: When it was made, in milliseconds since the epoch.
        expires_time_ms: From when on it is refused.
        revoked_time_ms: When it was revoked; None if it was not.
        created_by: Who made it.
    """

    token_id: str
    description: str
    grants: tuple[str, ...]
    created_time_ms: int
    expires_time_ms: int
    revoked_time_ms: int | None
    created_by: str


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made.

    Attributes:
        token: Its text: keep it as a secret, nobody can tell it again.
        description: What it is.
    """

    token: str = field(repr=False)
    description: TokenDescription
