"""Types of the calls about tokens."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TokenDescription:
    """Description of a token, without its text.

    Attributes:
        token_id: Id of the token, 12 hexadecimal digits.
        description: The user or program that it is for.
        grants: Its permissions, such as ``append:orders.*`` or ``admin.read``.
        created_time_ms: Time of creation, in milliseconds since the epoch.
        expires_time_ms: Time from which the server refuses it, in milliseconds since the epoch.
        revoked_time_ms: Time of revocation, in milliseconds since the epoch; None if it was not revoked.
        created_by: Principal that created it.
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
    """A newly created token.

    Attributes:
        token: Its text. Store it as a secret; it cannot be retrieved again.
        description: Its description.
    """

    token: str = field(repr=False)
    description: TokenDescription
