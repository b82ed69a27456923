"""What one principal does to the tables and limits that all share takes nothing from another principal.

Method: a server with authentication in this process, whose tables are small; a hoarder fills them, and another
principal repeats what it did before.

Promises of GUARANTEES.md: G18, G25, G47.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from tidelog import AsyncClient, ProducerForgottenError
from tidelog.v1 import broadcast_service_pb2 as broadcasts
from tidelog.v1 import (
    broadcast_service_pb2_grpc,
    message_pb2,
    transaction_service_pb2_grpc,
    wal_service_pb2,
    wal_service_pb2_grpc,
)
from tidelog.v1 import transaction_service_pb2 as txns
from tidelog_server.broker import broadcast_table
from tidelog_server.log import app_commits, producers, txn_table
from tidelog_testing.secured import Secured, secured_server

HOARD = 60
MAXIMUM = 20


@dataclass(frozen=True)
class Tenant:
    """A principal with a channel of its own.

    Attributes:
        name: Of the channel.
        client: Shows its token.
        metadata: Shows its token in bare calls.
    """

    name: str
    client: AsyncClient
    metadata: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Scene:
    """A server, the principal that takes all it can get, and another one."""

    secured: Secured
    hoarder: Tenant
    other: Tenant
    channel: grpc.aio.Channel

    @property
    def wal(self) -> Any:
        stub: Any = wal_service_pb2_grpc.WalServiceStub
        return stub(self.channel)

    @property
    def transactions(self) -> Any:
        stub: Any = transaction_service_pb2_grpc.TransactionServiceStub
        return stub(self.channel)

    @property
    def broadcasts(self) -> Any:
        stub: Any = broadcast_service_pb2_grpc.BroadcastServiceStub
        return stub(self.channel)

    def evictions(self, table: str) -> float:
        """Return how many entries of a table were evicted before their time."""
        found = self.secured.server._metrics.registry.get_sample_value("tidelog_evictions_total", {"table": table})
        return found or 0.0


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with secured_server(tmp_path, quota__requests_per_s=0) as secured, secured.channel() as channel:
        tenants = []
        async with secured.client() as admin:
            for name in ("a", "b"):
                await admin.create_channel(name)
                grants = [f"{verb}:{name}" for verb in ("append", "read", "txn", "broadcast")]
                made = await admin.create_token(name, [*grants, f"group.manage:{name}.*", f"group.consume:{name}.*"])
                metadata = (("authorization", f"Bearer {made.token}"),)
                tenants.append(Tenant(name, secured.client(made.token), metadata))
        yield Scene(secured, tenants[0], tenants[1], channel)
        for tenant in tenants:
            await tenant.client.aclose()


async def load(client: AsyncClient, vchannel: str, batches: list[bytes]) -> int:
    """Append numbered batches behind those that are there, as the README does; return how many were new."""
    position = await client.open_producer(vchannel, "nightly-load")
    new = 0
    for number, batch in enumerate(batches, 1):
        if position.last_sequence < number:
            new += not (await client.append(vchannel, batch, producer=position.sequence(number))).duplicate
    return new


async def payloads(client: AsyncClient, channel: str) -> list[bytes]:
    return [bytes(payload) async for batch in client.scan(channel) for payload in batch.payloads]


async def test_producers_of_one_principal_evict_none_of_another(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "MAX_PRODUCERS", MAXIMUM)
    hoarder, other = scene.hoarder, scene.other
    batches = [b"1", b"2", b"3", b"4", b"5"]
    assert await load(other.client, "b", batches) == 5
    async with other.client.producer("b") as running:
        await (await running.send(b"before"))

        for number in range(HOARD):
            await hoarder.client.open_producer("a", f"p{number}", accept_forgotten=True)

        await (await running.send(b"behind"))
    assert await load(other.client, "b", batches) == 0
    assert await payloads(other.client, "b") == [*batches, b"before", b"behind"]
    assert scene.evictions("producers") == HOARD + 2 - MAXIMUM
    # The hoarder itself is told what it has lost, and loses nothing twice.
    with pytest.raises(ProducerForgottenError):
        await hoarder.client.open_producer("a", "p0")
    assert (await hoarder.client.open_producer("a", "p0", accept_forgotten=True)).last_sequence == 0


async def commit_app(scene: Scene, tenant: Tenant, app_id: str, version: int, *, is_last: bool = False) -> bool:
    """Begin, stage, prepare and commit a transaction; return whether the version was there before."""
    begun = await scene.transactions.BeginTxn(txns.BeginTxnRequest(), metadata=tenant.metadata)
    options = wal_service_pb2.AppendOptions(txn_id=begun.txn_id)
    message = wal_service_pb2.AppendRequest(vchannel=tenant.name, options=options)
    message.messages.add(payload=app_id.encode())
    await scene.wal.Append(message, metadata=tenant.metadata)
    prepare = txns.PrepareTxnRequest(txn_id=begun.txn_id, app_id=app_id)
    await scene.transactions.PrepareTxn(prepare, metadata=tenant.metadata)
    request = txns.CommitPreparedTxnsRequest(
        txns=[txns.PreparedTxn(txn_id=begun.txn_id)], app_id=app_id, app_version=version, is_last=is_last
    )
    answer = await scene.transactions.CommitPreparedTxns(request, metadata=tenant.metadata)
    return bool(answer.duplicate)


@pytest.mark.parametrize("is_last", [False, True])
async def test_applications_of_one_principal_evict_none_of_another(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_last: bool
) -> None:
    for name in ("MAX_APPS", "MAX_FINISHED_APPS"):
        monkeypatch.setattr(app_commits, name, MAXIMUM)
    assert not await commit_app(scene, scene.other, "stream", 7, is_last=is_last)

    for number in range(HOARD):
        request = txns.CommitPreparedTxnsRequest(app_id=f"a{number}", is_last=is_last, is_first=True)
        await scene.transactions.CommitPreparedTxns(request, metadata=scene.hoarder.metadata)

    assert await commit_app(scene, scene.other, "stream", 7, is_last=is_last)
    assert await payloads(scene.other.client, "b") == [b"stream"]
    table = "finished_applications" if is_last else "applications"
    assert scene.evictions(table) == HOARD + 1 - MAXIMUM
    # Of the hoarder, an application that is unknown may have committed before.
    with pytest.raises(grpc.aio.AioRpcError, match="is_first"):
        await scene.transactions.CommitPreparedTxns(
            txns.CommitPreparedTxnsRequest(app_id="a0", is_last=is_last), metadata=scene.hoarder.metadata
        )


async def begin_and_stage(scene: Scene, tenant: Tenant) -> int:
    begun = await scene.transactions.BeginTxn(txns.BeginTxnRequest(), metadata=tenant.metadata)
    message = wal_service_pb2.AppendRequest(
        vchannel=tenant.name, options=wal_service_pb2.AppendOptions(txn_id=begun.txn_id)
    )
    message.messages.add(payload=b"x")
    await scene.wal.Append(message, metadata=tenant.metadata)
    return int(begun.txn_id)


async def commit_txn(scene: Scene, tenant: Tenant, txn_id: int) -> int:
    answer = await scene.transactions.CommitTxn(txns.CommitTxnRequest(txn_id=txn_id), metadata=tenant.metadata)
    return int(answer.result.first_tick)


async def test_outcomes_of_one_principal_evict_none_of_another(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txn_table, "MAX_TXN_OUTCOMES", MAXIMUM)
    mine = await begin_and_stage(scene, scene.other)
    first_tick = await commit_txn(scene, scene.other, mine)
    theirs = []
    for _ in range(HOARD):
        theirs.append(await begin_and_stage(scene, scene.hoarder))
        await commit_txn(scene, scene.hoarder, theirs[-1])

    assert await commit_txn(scene, scene.other, mine) == first_tick
    assert scene.evictions("outcomes") == HOARD + 1 - MAXIMUM
    with pytest.raises(grpc.aio.AioRpcError, match="only those from id"):
        await commit_txn(scene, scene.hoarder, theirs[0])
    # Of an id of the other one that was never begun the server is still sure.
    with pytest.raises(grpc.aio.AioRpcError, match="was not begun"):
        await commit_txn(scene, scene.other, theirs[0] - 1)


async def test_finished_broadcasts_of_one_principal_evict_none_of_another(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast_table, "MAX_TOMBSTONES", MAXIMUM)
    request = broadcasts.BroadcastRequest(vchannels=["b"], message=message_pb2.Message(payload=b"mine"))
    mine = await scene.broadcasts.Broadcast(request, metadata=scene.other.metadata)
    await scene.other.client.ack(mine.broadcast_id, "b")
    for _ in range(HOARD):
        theirs = await scene.hoarder.client.broadcast(["a"], b"theirs")
        await scene.hoarder.client.ack(theirs.broadcast_id, "a")
    async with asyncio.timeout(10):
        while scene.evictions("broadcasts") < HOARD + 1 - MAXIMUM:
            await asyncio.sleep(0.01)

    request.broadcast_id = mine.broadcast_id
    again = await scene.broadcasts.Broadcast(request, metadata=scene.other.metadata)
    assert (again.duplicate, again.tick) == (True, mine.tick)
    assert await payloads(scene.other.client, "b") == [b"mine"]
