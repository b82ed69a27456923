"""A backup renews the lease of its checkpoint as long as the lease lasts.

Method: a client whose server is away for a time, and short pauses instead of the real ones.
"""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from tidelog import AsyncClient, CheckpointDescription, CheckpointNotFoundError, UnavailableError
from tidelog_server.commands import backup

LEASE_S = 0.4


class Server:
    """Answers renewals with the error that ``error_at`` returns for the time since the start, in seconds."""

    def __init__(self, error_at: Callable[[float], Exception | None]) -> None:
        self._error_at = error_at
        self._begin_s = asyncio.get_running_loop().time()
        self.renewed = 0

    def seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._begin_s

    async def keep_checkpoint(self, checkpoint_id: str) -> None:
        assert checkpoint_id == "c"
        if (error := self._error_at(self.seconds())) is not None:
            raise error
        self.renewed += 1


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "_KEEP_EVERY_S", LEASE_S / 6)
    monkeypatch.setattr(backup, "_RENEW_AGAIN_S", LEASE_S / 60)


async def keep(server: Server) -> None:
    checkpoint = CheckpointDescription("c", "", 0, 0, b"", b"", 0, 0, LEASE_S)
    ends_s = asyncio.get_running_loop().time() + LEASE_S
    await backup.keep(cast("AsyncClient", server), checkpoint, ends_s)


async def test_a_server_that_is_away_for_less_than_the_lease_ends_no_backup() -> None:
    server = Server(lambda seconds: UnavailableError("away") if seconds < LEASE_S / 2 else None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3 * LEASE_S):
            await keep(server)
    assert server.renewed > 0


async def test_a_server_that_is_away_for_the_whole_lease_ends_the_backup() -> None:
    server = Server(lambda _: UnavailableError("away"))
    with pytest.raises(UnavailableError):
        await keep(server)
    assert server.seconds() >= LEASE_S


async def test_a_checkpoint_that_is_gone_ends_the_backup_at_once() -> None:
    server = Server(lambda _: CheckpointNotFoundError("gone"))
    with pytest.raises(CheckpointNotFoundError):
        await keep(server)
    assert server.seconds() < LEASE_S
