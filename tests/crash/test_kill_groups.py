"""Consumer groups across SIGKILL: commits are not lost, and positions committed in a transaction moved exactly once.

Method: a producer, two members that append what they consume in transactions with their positions, and callers of
``consume`` that take messages immediately, all of them on servers that are killed in the middle and started again. The
log at the end shows whether anything was lost or duplicated.

Promises of docs/reference/guarantees.md: G31, G32, G33, G34.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, Message, PositionCommit, Retry
from tidelog_server.runtime.failpoints import VARIABLE, Failpoint
from tidelog_testing.loads.outage import InterruptedServer
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.soaks import Recorder, soak
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess

pytestmark = pytest.mark.crash

VCHANNELS = [f"orders/{index}" for index in range(4)]
PATIENT = Retry(base_s=0.02, cap_s=0.2)


@dataclass
class Run:
    """Events of all rounds.

    Attributes:
        taken: Messages that callers of ``consume`` received.
        committed: For each vchannel, the greatest position of group ``plain`` that was acknowledged.
        progress: Number of acknowledgements; ``moved`` is set with it.
    """

    random: random.Random
    taken: list[bytes] = field(default_factory=list)
    committed: dict[str, int] = field(default_factory=dict)
    progress: int = 0
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    is_ending: bool = False

    def note(self) -> None:
        self.progress += 1
        self.moved.set()

    async def until(self, progress: int) -> None:
        while self.progress < progress:
            self.moved.clear()
            await self.moved.wait()


async def produce(run: Run, client: AsyncClient) -> None:
    """Append numbers, each once, until the run is ending."""
    number = 0
    producers = [client.producer(vchannel) for vchannel in VCHANNELS]
    try:
        while not run.is_ending:
            for producer in producers:
                tickets = [await producer.send(b"%d" % (number + each)) for each in range(5)]
                number += 5
                await tickets[-1]
            run.note()
    finally:
        for producer in producers:
            await producer.aclose()


async def process(run: Run, client: AsyncClient) -> None:
    """Append the consumed messages to the output, with the positions, until the run is ending."""
    async with client.consumer("exact", "orders", auto_commit=False) as consumer:
        while True:
            batch = await anext(consumer)
            txn = client.txn(timeout_s=30)
            await txn.append("out", [Message(payload, key=batch.vchannel.encode()) for payload in batch.payloads])
            txn.commit_positions(consumer)
            # Another member has the vchannel now, or the server was restarted.
            with suppress(tidelog.GroupFencedError):
                await txn.commit()
                run.note()


async def take(run: Run, client: AsyncClient) -> None:
    """Take messages of one vchannel, each for one caller."""
    while True:
        got = await client.consume("once", "orders/0", run.random.randint(1, 9), commit=True, wait_s=0.2)
        run.taken += [message.payload for message in got.messages]
        if got:
            run.note()


async def commit_by_hand(run: Run, client: AsyncClient) -> None:
    """Consume and commit without members."""
    while True:
        for vchannel in VCHANNELS:
            got = await client.consume("plain", vchannel, 50)
            await client.commit_positions([PositionCommit("plain", vchannel, got.next_tick)])
            run.committed[vchannel] = got.next_tick
            run.note()


@asynccontextmanager
async def load(run: Run, endpoint: str) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run all of it; the tasks may end only by cancellation."""
    async with (
        AsyncClient(endpoint, retry=PATIENT, timeout_s=30, connect_timeout_s=30) as client,
        AsyncClient(endpoint, retry=PATIENT, timeout_s=30, connect_timeout_s=30) as other,
    ):
        await client.create_channel("orders", vchannels=4)
        await client.create_channel("out")
        for group in ("exact", "once", "plain"):
            await client.create_group(group, "orders")
        tasks = [
            asyncio.ensure_future(coroutine)
            for coroutine in (
                produce(run, client), process(run, client), process(run, other), take(run, client), take(run, other),
                commit_by_hand(run, client),
            )
        ]  # fmt: skip
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def until_consumed(client: AsyncClient) -> None:
    """Wait until the members and callers have received everything."""
    while (await client.describe_group("exact")).lag_messages:
        await asyncio.sleep(0.05)
    while (await client.describe_group("once")).positions["orders/0"].lag_messages:
        await asyncio.sleep(0.05)


async def storm(folder: Path, seed: int, rounds: int) -> None:
    run = Run(random.Random(seed))
    server = InterruptedServer(folder)
    try:
        async with load(run, server.grpc) as tasks:
            for _ in range(rounds):
                await run.until(run.progress + run.random.randint(20, 120))
                await asyncio.to_thread(server.kill)
                before = dict(run.committed)
                await server.start_again()
                async with AsyncClient(server.grpc) as client:
                    positions = (await client.describe_group("plain")).positions
                    assert all(tick <= positions[vchannel].next_tick for vchannel, tick in before.items())
                assert [task.exception() for task in tasks if task.done()] == []
            run.is_ending = True
            async with AsyncClient(server.grpc) as client:
                await tasks[0]
                await until_consumed(client)
                appended = [payload for vchannel in VCHANNELS for payload in await payloads(client, vchannel)]
                output = await payloads(client, "out")
                first = await payloads(client, "orders/0")
        assert [task.exception() for task in tasks if not task.cancelled()] == [None]
    finally:
        server.kill()
    assert len(set(appended)) == len(appended) > 0
    assert Counter(output) == Counter(appended)
    assert Counter(run.taken) == Counter(first)


@pytest.mark.parametrize(("seed", "rounds"), [(None, 4), *(soak(seed, 40, timeout_s=880) for seed in range(3))])
async def test_nothing_is_lost_or_doubled_whatever_dies(
    tmp_path: Path, seed: int | None, rounds: int, record_property: Recorder
) -> None:
    seed = random.randrange(1 << 32) if seed is None else seed
    record_property("seed", seed)
    await storm(tmp_path / "log", seed, rounds=rounds)


@pytest.mark.parametrize("point", [point for point in Failpoint if point.startswith("group")])
async def test_a_group_is_made_or_destroyed_wholly_once_it_is_asked_again(tmp_path: Path, point: Failpoint) -> None:
    folder = tmp_path / "log"
    with ServerProcess(folder) as server:
        async with AsyncClient(server.grpc) as client:
            await client.create_channel("orders", vchannels=3)
            await client.create_group("kept", "orders")
    with ServerProcess(folder, env={VARIABLE: f"{point}:1"}) as server:
        async with AsyncClient(server.grpc, timeout_s=2, retry=Retry(give_up_s=1)) as client:
            with pytest.raises(tidelog.TidelogError) as unknown:
                await client.create_group("new", "orders")
                await client.destroy_group("new")
            assert unknown.value.effect == "unknown"
    with ServerProcess(folder) as server:
        async with AsyncClient(server.grpc) as client:
            again = await client.create_group("new", "orders", if_not_exists=True)
            assert list(again.positions) == ["orders/0", "orders/1", "orders/2"]
            assert await client.destroy_group("new")
            assert [group.name async for group in client.list_groups()] == ["kept"]
    with ServerProcess(folder) as server:
        async with AsyncClient(server.grpc) as client:
            assert [group.name async for group in client.list_groups()] == ["kept"]


@pytest.mark.not_on_engine(reason="opens a store on RocksDB itself")
def test_a_start_refuses_positions_without_a_group(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    with ServerProcess(folder) as server, tidelog.Client(server.grpc) as client:
        client.create_channel("orders")
        client.create_group("billing", "orders")
        server.terminate()
        assert server.wait() == 0
    _forget_record(folder, "tidelog/group/billing")
    with pytest.raises(ServerDiedError) as died:
        ServerProcess(folder)
    assert "group 'billing' has a position on orders/0 but no record" in died.value.errors


def _forget_record(folder: Path, key: str) -> None:
    """Remove a record from the metadata as if it had never existed."""
    from tidelog_server.metadata import embedded
    from tidelog_server.metadata.store import Delete
    from tidelog_server.storage.recovery.open import open_rocksdb_log_store

    store = open_rocksdb_log_store(folder)
    try:
        table = store.metadata_rows()
        summary, rows = embedded._load(table)
        metadata = embedded.EmbeddedMetadataStore(table, None, None, summary, rows)  # type: ignore[arg-type]  # Not used.
        metadata._commit([Delete(key, None)], syncs=True)
    finally:
        store.close()
