"""The tokens of a node while it reloads them."""

import asyncio

from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.metadata.store import Versioned
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.security.grants import Grants
from tidelog_server.security.token_store import TokenStore


class SlowMetadata(MemoryMetadataStore):
    """A store whose list is read before ``may_answer`` is set, and returned after."""

    def __init__(self) -> None:
        super().__init__()
        self.has_read, self.may_answer = asyncio.Event(), asyncio.Event()

    async def list(self, prefix: str) -> dict[str, Versioned]:
        found = await super().list(prefix)
        self.has_read.set()
        await self.may_answer.wait()
        return found


async def test_what_changes_during_a_reload_is_not_undone() -> None:
    metadata = SlowMetadata()
    tokens, other = (TokenStore(metadata, "root", SystemClock()) for _ in range(2))
    grants = Grants()
    revoked, _ = await tokens.create("revoked", grants, 60_000, "me")
    elsewhere, _ = await other.create("elsewhere", grants, 60_000, "me")
    reload = asyncio.create_task(tokens.reload())
    await metadata.has_read.wait()

    await tokens.revoke(revoked.token_id)
    created, _ = await tokens.create("created", grants, 60_000, "me")
    metadata.may_answer.set()
    await reload

    assert tokens.find(revoked.text) is None
    assert tokens.find(created.text) is not None
    assert tokens.find(elsewhere.text) is not None
