"""Journals across SIGKILL: a request that a kill interrupts is applied as a whole or not at all.

Method: a server kills itself between the steps of one request that creates, changes and deletes journals; the next one
shows the journals, their channels and their frames. Then a load of such requests on servers that are killed at random.

Promises of docs/reference/guarantees.md: G3.
"""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, Retry
from tidelog.journals.labels import LabelSet
from tidelog.journals.types import JournalChange, JournalDelete, JournalUpsert
from tidelog_server.runtime.failpoints import VARIABLE, Failpoint
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.servers.processes import ServerProcess

pytestmark = pytest.mark.crash

IMPATIENT = Retry(give_up_s=0.1)
OLD, NEW = LabelSet.of({"state": "old"}), LabelSet.of({"state": "new"})
ROUNDS = 6


async def state(client: AsyncClient) -> dict[str, str]:
    """Return the journals with their label, after a check that channels and journals belong together."""
    journals = (await client.journals.list()).journals
    channels = [each.name async for each in client.list_channels("_journal.")]
    assert sorted(channels) == sorted(journal.channel for journal in journals)
    for journal in journals:
        await payloads(client, f"{journal.channel}/0")
    return {journal.name: journal.labels.value_of("state") for journal in journals}


@pytest.mark.parametrize("point", [Failpoint.JOURNAL_MID_APPLY, Failpoint.JOURNAL_MID_DELETE, Failpoint.MID_DROP])
async def test_a_server_that_dies_between_the_steps_has_applied_everything(tmp_path: Path, point: Failpoint) -> None:
    with ServerProcess(tmp_path / "log") as server:
        async with AsyncClient(server.grpc) as client:
            kept, _ = await client.journals.apply([JournalUpsert("kept/journal", OLD), JournalUpsert("gone/journal")])
            await client.append(f"{kept.channel}/0", b"frame\n")
    with ServerProcess(tmp_path / "log", env={VARIABLE: str(point)}) as server:
        async with AsyncClient(server.grpc, retry=IMPATIENT) as client:
            changes: list[JournalChange] = [
                JournalUpsert("new/journal", NEW, 0),
                JournalUpsert("kept/journal", NEW, kept.revision),
                JournalDelete("gone/journal"),
            ]
            with pytest.raises(tidelog.TidelogError) as unknown:
                await client.journals.apply(changes)
            assert unknown.value.effect == "unknown"
    with ServerProcess(tmp_path / "log") as server:
        async with AsyncClient(server.grpc) as client:
            assert await state(client) == {"kept/journal": "new", "new/journal": "new"}
            assert await payloads(client, f"{kept.channel}/0") == [b"frame\n"]
            for journal in (await client.journals.list()).journals:
                await client.append(f"{journal.channel}/0", b"more\n")


async def change(client: AsyncClient, seed: int) -> None:
    """Create and delete pairs of journals until the server is killed; a pair exists as a whole or not at all."""
    chance = random.Random(seed)
    while True:
        pair = chance.randrange(4)
        names = [f"pairs/{seed}/{pair}/a", f"pairs/{seed}/{pair}/b"]
        creates = chance.random() < 0.5
        await client.journals.apply([JournalUpsert(name) if creates else JournalDelete(name) for name in names])


async def test_pairs_stay_pairs_when_servers_are_killed_at_random(tmp_path: Path) -> None:
    chance = random.Random(random.randrange(1 << 32))
    for _ in range(ROUNDS):
        with ServerProcess(tmp_path / "log") as server:
            async with AsyncClient(server.grpc, retry=IMPATIENT) as client:
                found = await state(client)
                assert {name[:-1] + "a" for name in found} == {name[:-1] + "a" for name in found if name[-1] == "b"}
                load = [asyncio.ensure_future(change(client, seed)) for seed in range(3)]
                await asyncio.wait(load, timeout=chance.uniform(0.05, 0.4))
                server.kill()
                for task in load:
                    with suppress(tidelog.TidelogError):
                        await task
