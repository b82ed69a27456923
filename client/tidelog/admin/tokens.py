"""Token calls of the asynchronous client, and their types."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from tidelog.transport.service_calls import ServiceCalls
from tidelog.v1 import token_service_pb2 as pb
from tidelog.wire.durations import Duration, seconds_or


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


class AsyncTokenCalls(ServiceCalls):
    """Tokens, for ``AsyncClient``."""

    async def create_token(
        self, description: str, grants: Iterable[str], *, lifetime_s: Duration | None = None
    ) -> NewToken:
        """Create a token, durably. Requires ``admin.write``.

        Args:
            description: Purpose or holder of the token, for operators: 1 to 256 bytes.
            grants: Permissions: ``verb:pattern``, where the pattern is a name, ``name.*`` or ``*``, or an
                administrative verb alone, such as ``admin.read``.
            lifetime_s: Seconds until the token expires, at most 366 days. Default None: 30 days.

        Raises:
            InvalidRequestError: A grant is invalid, or a value is out of range.
        """
        request = pb.CreateTokenRequest(
            description=description, grants=grants, lifetime_ms=round(seconds_or("lifetime_s", lifetime_s, 0.0) * 1_000)
        )
        answer = await self._change(self._services.tokens.CreateToken, request)
        return NewToken(answer.token, _description(answer.description))

    async def list_tokens(self, *, everything: bool = False) -> AsyncIterator[TokenDescription]:
        """Yield tokens in order of id; with ``everything`` also revoked and expired ones. Requires ``admin.read``."""
        request = pb.ListTokensRequest(all=everything)
        async for answer in self._pages(lambda services: services.tokens.ListTokens, request):
            for described in answer.tokens:
                yield _description(described)

    async def revoke_token(self, token_id: str) -> TokenDescription:
        """Revoke a token permanently, durably. Calls in progress under it end within 5 s. Idempotent.

        Requires ``admin.write``.

        Raises:
            TokenNotFoundError: There is no token with this id.
            InvalidRequestError: ``token_id`` is not a valid id.
        """
        request = pb.RevokeTokenRequest(token_id=token_id)
        answer = await self._change(self._services.tokens.RevokeToken, request, is_idempotent=True)
        return _description(answer.description)


def _description(wire: pb.TokenDescription) -> TokenDescription:
    return TokenDescription(
        token_id=wire.token_id,
        description=wire.description,
        grants=tuple(wire.grants),
        created_time_ms=wire.created_time_ms,
        expires_time_ms=wire.expires_time_ms,
        revoked_time_ms=wire.revoked_time_ms or None,
        created_by=wire.created_by,
    )
