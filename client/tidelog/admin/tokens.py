"""Token calls of the asynchronous client."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable

from tidelog.admin.token_types import NewToken, TokenDescription
from tidelog.transport.transport import Transport
from tidelog.v1 import token_service_pb2 as pb


class AsyncTokenCalls(ABC):
    """Tokens, for ``AsyncClient``.

    Attributes:
        timeout_s: Timeout of a call in seconds.
    """

    timeout_s: float

    @abstractmethod
    def _transport(self) -> Transport:
        """Return the transport of this event loop."""

    async def create_token(
        self, description: str, grants: Iterable[str], *, lifetime_s: float | None = None
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
        transport = self._transport()
        request = pb.CreateTokenRequest(
            description=description, grants=grants, lifetime_ms=0 if lifetime_s is None else round(lifetime_s * 1_000)
        )
        answer = await transport.call(transport.tokens.CreateToken, request, timeout_s=self.timeout_s, is_read=False)
        return NewToken(answer.token, _description(answer.description))

    async def list_tokens(self, *, everything: bool = False) -> AsyncIterator[TokenDescription]:
        """Yield tokens in order of id; with ``everything`` also revoked and expired ones. Requires ``admin.read``."""
        page_token = ""
        while True:
            transport = self._transport()
            request = pb.ListTokensRequest(all=everything, page_token=page_token)
            answer = await transport.call(transport.tokens.ListTokens, request, timeout_s=self.timeout_s, is_read=True)
            for described in answer.tokens:
                yield _description(described)
            page_token = answer.next_page_token
            if not page_token:
                return

    async def revoke_token(self, token_id: str) -> TokenDescription:
        """Revoke a token permanently, durably. Calls in progress under it end within 5 s. Idempotent.

        Requires ``admin.write``.

        Raises:
            TokenNotFoundError: There is no token with this id.
            InvalidRequestError: ``token_id`` is not a valid id.
        """
        transport = self._transport()
        request = pb.RevokeTokenRequest(token_id=token_id)
        answer = await transport.call(
            transport.tokens.RevokeToken, request, timeout_s=self.timeout_s, is_read=False, is_idempotent=True
        )
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
