"""Token calls of the synchronous client."""

from collections.abc import Iterable, Iterator

from tidelog.admin.token_types import NewToken, TokenDescription
from tidelog.admin.tokens import AsyncTokenCalls
from tidelog.transport.background import background


class TokenCalls:
    """Tokens, for ``Client``. See ``AsyncTokenCalls``."""

    _client: AsyncTokenCalls

    def create_token(self, description: str, grants: Iterable[str], *, lifetime_s: float | None = None) -> NewToken:
        """Create a token, durably. See ``AsyncClient.create_token``."""
        return background.run(self._client.create_token(description, grants, lifetime_s=lifetime_s))

    def list_tokens(self, *, everything: bool = False) -> Iterator[TokenDescription]:
        """Yield tokens in order of id. See ``AsyncClient.list_tokens``."""
        tokens = self._client.list_tokens(everything=everything)

        async def following() -> TokenDescription | None:
            return await anext(tokens, None)

        while (token := background.run(following())) is not None:
            yield token

    def revoke_token(self, token_id: str) -> TokenDescription:
        """Revoke a token permanently, durably. See ``AsyncClient.revoke_token``."""
        return background.run(self._client.revoke_token(token_id))
