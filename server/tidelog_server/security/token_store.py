"""The tokens of a cluster, in the metadata store.

Each node has all tokens in memory and reloads them every ``TOKENS_RELOAD_INTERVAL_S``, so that checking a token needs
no call. One key per token::

    <root>/token/<id>    one record, JSON
"""

from collections.abc import Mapping
from typing import Final

from tidelog_server.core.errors import InvalidRequestError, RateLimitRejectedError
from tidelog_server.core.errors.access import TokenNotExistError
from tidelog_server.core.limits import MAX_CHANGES_PER_COMMIT, MAX_TOKENS, TOKEN_KEPT_MS
from tidelog_server.core.sorted_names import SortedNames
from tidelog_server.metadata.store import Change, Delete, MetadataStore, Put, RevisionConflictError
from tidelog_server.runtime.clock import Clock
from tidelog_server.security.grants import Grants, Verb
from tidelog_server.security.tokens import NewToken, TokenRecord, hash_of, id_of, make_token

_ATTEMPTS: Final = 8


class TokenStore:
    """Creates, finds and revokes tokens. Lives on the event loop.

    Attributes:
        ids: The ids of all tokens.
    """

    def __init__(self, metadata: MetadataStore, root: str, clock: Clock) -> None:
        self._metadata = metadata
        self._prefix = f"{root}/token/"
        self._clock = clock
        self._records: dict[str, TokenRecord] = {}
        self._revisions: dict[str, int] = {}
        self.ids = SortedNames()

    async def reload(self) -> None:
        """Load the tokens from the metadata. Raises DataLossError if a record cannot be read."""
        found = await self._metadata.list(self._prefix)
        for key, value in found.items():
            token_id = key.removeprefix(self._prefix)
            if self._revisions.get(token_id) != value.revision:
                self._records[token_id] = TokenRecord.decode(key, value.value)
                self._revisions[token_id] = value.revision
                self.ids.add(token_id)
        for token_id in [token_id for token_id in self._records if self._prefix + token_id not in found]:
            self._forget(token_id)

    def _forget(self, token_id: str) -> None:
        del self._records[token_id], self._revisions[token_id]
        self.ids.discard(token_id)

    @property
    def records(self) -> Mapping[str, TokenRecord]:
        """All tokens by id, including revoked and expired ones, which are kept for TOKEN_KEPT_MS."""
        return self._records

    def has_administrator(self) -> bool:
        """Return whether there is a valid token that may create tokens."""
        now_ms = self._clock.wall_ms()
        return any(
            record.is_valid(now_ms) and record.grants.allow_somewhere(Verb.ADMIN_WRITE)
            for record in self._records.values()
        )

    def find(self, text: str) -> TokenRecord | None:
        """Return the record of a token; None if the token is unknown, expired or revoked."""
        token_id = id_of(text)
        record = None if token_id is None else self._records.get(token_id)
        if record is None or not record.matches(text) or not record.is_valid(self._clock.wall_ms()):
            return None
        return record

    async def create(
        self, description: str, grants: Grants, lifetime_ms: int, created_by: str
    ) -> tuple[NewToken, TokenRecord]:
        """Create a token, durably.

        Raises:
            RateLimitRejectedError: There are MAX_TOKENS tokens.
        """
        await self._forget_old()
        if len(self._records) >= MAX_TOKENS:
            raise RateLimitRejectedError(
                f"there are {len(self._records)} tokens, at most {MAX_TOKENS} are allowed: revoke unused ones, which "
                "are deleted 30 days later",
                tokens=len(self._records), max_tokens=MAX_TOKENS,
            )  # fmt: skip
        made, now_ms = make_token(), self._clock.wall_ms()
        record = TokenRecord(
            made.token_id, hash_of(made.text), description, grants, now_ms, now_ms + lifetime_ms, created_by
        )
        # A collision among 2^48 ids is not bad luck but a bug, so the conflict propagates.
        await self._put(record, 0)
        return made, record

    async def revoke(self, token_id: str) -> TokenRecord:
        """Revoke a token, durably. Raises TokenNotExistError."""
        for _ in range(_ATTEMPTS):
            record = self._records.get(token_id)
            if record is None:
                raise TokenNotExistError(token_id)
            try:
                return await self._put(record.revoked(self._clock.wall_ms()), self._revisions[token_id])
            except RevisionConflictError:
                # Another node changed the record: retry with the current one.
                await self.reload()
        raise InvalidRequestError(f"other nodes changed the token {token_id} at the same time: retry")

    async def _put(self, record: TokenRecord, expected_revision: int) -> TokenRecord:
        key = self._prefix + record.token_id
        self._revisions[record.token_id] = await self._metadata.commit([Put(key, record.encode(), expected_revision)])
        self._records[record.token_id] = record
        self.ids.add(record.token_id)
        return record

    async def _forget_old(self) -> None:
        """Delete tokens that ended more than TOKEN_KEPT_MS ago, so that their number stays bounded."""
        end_ms = self._clock.wall_ms() - TOKEN_KEPT_MS
        old = [
            token_id
            for token_id, record in self._records.items()
            if min(record.expires_ms, record.revoked_ms or record.expires_ms) < end_ms
        ][:MAX_CHANGES_PER_COMMIT]
        if not old:
            return
        changes: list[Change] = [Delete(self._prefix + token_id, self._revisions[token_id]) for token_id in old]
        try:
            await self._metadata.commit(changes)
        except RevisionConflictError:
            # Another node deletes the same tokens.
            await self.reload()
            return
        for token_id in old:
            self._forget(token_id)
