"""TokenService."""

from typing import Final

from tidelog.v1 import token_service_pb2 as pb
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.message_checks import check_at_most, check_within
from tidelog_server.core.names import is_plain, shown
from tidelog_server.log.node import LogNode
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.lists.looks import Looks
from tidelog_server.rpc.lists.pages import ANYTHING, Found, page_of
from tidelog_server.security.access import current_access
from tidelog_server.security.grants import GrantError, parse_grants
from tidelog_server.security.service import Security
from tidelog_server.security.tokens import TokenRecord, is_token_id

MAX_TOKEN_DESCRIPTION_BYTES: Final = 256
DEFAULT_TOKEN_LIFETIME_MS: Final = 30 * 24 * 60 * 60 * 1_000
MAX_TOKEN_LIFETIME_MS: Final = 366 * 24 * 60 * 60 * 1_000


class TokenService:
    """Handlers of TokenService."""

    def __init__(self, security: Security, node: LogNode) -> None:
        self._security = security
        self._node = node

    async def create_token(self, request: pb.CreateTokenRequest, _: Context) -> pb.CreateTokenResponse:
        """Create a token."""
        size_bytes = len(request.description.encode())
        check_within(
            size_bytes,
            1,
            MAX_TOKEN_DESCRIPTION_BYTES,
            "description",
            "the description has {value} bytes",
            advice=": name the owner of the token",
        )
        if not is_plain(request.description):
            raise InvalidRequestError(
                f"the description '{shown(request.description)}' has control or format characters, or blanks at its "
                "ends: use one line of text",
                field="description",
            )
        lifetime_ms = request.lifetime_ms or DEFAULT_TOKEN_LIFETIME_MS
        check_at_most(lifetime_ms, MAX_TOKEN_LIFETIME_MS, "lifetime_ms")
        try:
            grants = parse_grants(request.grants)
        except GrantError as error:
            raise InvalidRequestError(str(error), field="grants") from error
        if not grants.all:
            raise InvalidRequestError("the token has no grants: set at least one", field="grants")
        access = current_access()
        created_by = "anybody" if access is None else access.principal.name
        made, record = await self._security.tokens.create(request.description, grants, lifetime_ms, created_by)
        await self._security.administrator_made()
        return pb.CreateTokenResponse(token=made.text, description=_description(record))

    async def list_tokens(self, request: pb.ListTokensRequest, context: Context) -> pb.ListTokensResponse:
        """List a page of tokens."""
        now_ms, tokens = self._security.clock.wall_ms(), self._security.tokens

        def find(token_id: str) -> Found[pb.TokenDescription]:
            record = tokens.records.get(token_id)
            if record is None or not (request.all or record.is_valid(now_ms)):
                return None, 0
            return _description(record), 1 + len(record.grants.all)

        page = await page_of(request, tokens.names, ANYTHING, find, Looks.of(self._node, context))
        return pb.ListTokensResponse(tokens=page.items, next_page_token=page.next_token)

    async def revoke_token(self, request: pb.RevokeTokenRequest, _: Context) -> pb.RevokeTokenResponse:
        """Revoke a token."""
        if not is_token_id(request.token_id):
            raise InvalidRequestError(
                "the token id is invalid: expected 12 hexadecimal digits as ListTokens returns them, not the token",
                field="token_id",
            )
        return pb.RevokeTokenResponse(description=_description(await self._security.tokens.revoke(request.token_id)))


def _description(record: TokenRecord) -> pb.TokenDescription:
    return pb.TokenDescription(
        token_id=record.token_id,
        description=record.description,
        grants=sorted(map(str, record.grants.all)),
        created_time_ms=record.created_ms,
        expires_time_ms=record.expires_ms,
        revoked_time_ms=record.revoked_ms,
        created_by=record.created_by,
    )
