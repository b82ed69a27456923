"""The tokens of a cluster, in the metadata store.

Each node has all tokens in memory and reloads them every ``TOKENS_RELOAD_INTERVAL_S``, so that checking a token needs
no call. One key per token::

    <root>/token/<id>    one record, JSON
"""

from dataclasses import replace
from typing import Final

from tidelog_server.core.errors import InvalidRequestError, RateLimitRejectedError
from tidelog_server.core.errors.access import TokenNotExistError
from tidelog_server.core.limits import MAX_CHANGES_PER_COMMIT
from tidelog_server.metadata.record_table import RecordTable
from tidelog_server.metadata.store import Change, Delete, MetadataStore, Put, RevisionConflictError
from tidelog_server.runtime.clock import Clock
from tidelog_server.security.grants import Grants, Verb
from tidelog_server.security.tokens import NewToken, TokenRecord, hash_of, id_of, make_token

# Tokens of a cluster are in the memory of each node, about 1 kB each.
MAX_TOKENS: Final = 10_000
# Time that expired and revoked tokens are still listed.
TOKEN_KEPT_MS: Final = 30 * 24 * 60 * 60 * 1_000

_ATTEMPTS: Final = 8


class TokenStore(RecordTable[TokenRecord]):
    """Creates, finds and revokes tokens. Lives on the event loop.

    Its records, by id, include revoked and expired tokens, which are kept for TOKEN_KEPT_MS.
    """

    def __init__(self, metadata: MetadataStore, root: str, clock: Clock) -> None:
        prefix = f"{root}/token/"
        super().__init__(metadata, prefix, lambda token_id, *stored: TokenRecord.decode(prefix + token_id, *stored))
        self._clock = clock

    async def reload(self) -> None:
        """Load the tokens from the metadata. Raises DataLossError if a record cannot be read."""
        before = {token_id: self.revision_of(token_id) for token_id in self.records}
        found = {
            key.removeprefix(self.prefix): value for key, value in (await self._metadata.list(self.prefix)).items()
        }
        for token_id in before.keys() | found.keys():
            known, value = self.revision_of(token_id), found.get(token_id)
            if known != before.get(token_id, 0):
                # This node has created, revoked or deleted it since: the list may be older than that.
                continue
            if value is None:
                self.forget(token_id)
            elif value.revision != known:
                self.learn(self._decode(token_id, value.value, value.revision))

    def has_administrator(self) -> bool:
        """Return whether there is a valid token that may create tokens."""
        now_ms = self._clock.wall_ms()
        return any(
            record.is_valid(now_ms) and record.grants.allow_somewhere(Verb.ADMIN_WRITE)
            for record in self.records.values()
        )

    def find(self, text: str) -> TokenRecord | None:
        """Return the record of a token; None if the token is unknown, expired or revoked."""
        token_id = id_of(text)
        record = None if token_id is None else self.records.get(token_id)
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
        if len(self.records) >= MAX_TOKENS:
            raise RateLimitRejectedError(
                f"there are {len(self.records)} tokens, at most {MAX_TOKENS} are allowed: revoke unused ones, which "
                "are deleted 30 days later",
                tokens=len(self.records), max_tokens=MAX_TOKENS,
            )  # fmt: skip
        made, now_ms = make_token(), self._clock.wall_ms()
        record = TokenRecord(
            made.token_id, hash_of(made.text), description, grants, now_ms, now_ms + lifetime_ms, created_by
        )
        # A collision among 2^48 ids is not bad luck but a bug, so the conflict propagates.
        return made, await self._put(record, 0)

    async def revoke(self, token_id: str) -> TokenRecord:
        """Revoke a token, durably. Raises TokenNotExistError."""
        for _ in range(_ATTEMPTS):
            record = self.records.get(token_id)
            if record is None:
                raise TokenNotExistError(token_id)
            try:
                return await self._put(record.revoked(self._clock.wall_ms()), record.revision)
            except RevisionConflictError:
                # Another node changed the record: retry with the current one.
                await self.reload()
        raise InvalidRequestError(f"other nodes changed the token {token_id} at the same time: retry")

    async def _put(self, record: TokenRecord, expected_revision: int) -> TokenRecord:
        revision = await self._metadata.commit([Put(self.key(record.token_id), record.encode(), expected_revision)])
        stored = replace(record, revision=revision)
        self.learn(stored)
        return stored

    async def _forget_old(self) -> None:
        """Delete tokens that ended more than TOKEN_KEPT_MS ago, so that their number stays bounded."""
        end_ms = self._clock.wall_ms() - TOKEN_KEPT_MS
        old = [
            record
            for record in self.records.values()
            if min(record.expires_ms, record.revoked_ms or record.expires_ms) < end_ms
        ][:MAX_CHANGES_PER_COMMIT]
        if not old:
            return
        changes: list[Change] = [Delete(self.key(record.token_id), record.revision) for record in old]
        try:
            await self._metadata.commit(changes)
        except RevisionConflictError:
            # Another node deletes the same tokens.
            await self.reload()
            return
        for record in old:
            self.forget(record.token_id)
