"""What one principal does to the tables and limits that all share takes nothing from another principal.

Method: a server with authentication in this process, whose tables are small; a hoarder fills them, and another
principal repeats what it did before.

Promises of docs/reference/guarantees.md: G18, G25, G34, G41, G47.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc.aio
import pytest

from tidelog import (
    AsyncClient,
    At,
    BroadcastNotFoundError,
    Consumed,
    ConsumeForgottenError,
    OverloadedError,
    PermissionDeniedError,
    ProducerForgottenError,
    ResourceAcquiredError,
    ResourceKey,
    Retry,
)
from tidelog.v1 import broadcast_service_pb2 as broadcasts
from tidelog.v1 import (
    message_pb2,
    wal_service_pb2,
)
from tidelog.v1 import transaction_service_pb2 as txns
from tidelog_server.broadcast import table as broadcast_table
from tidelog_server.log import producers
from tidelog_server.txn import applications
from tidelog_server.txn import table as txn_table
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.grpc_calls import Client
from tidelog_testing.parts.waiting import until
from tidelog_testing.servers.secured import ONCE, Secured, secured_server

HOARD = 60
MAXIMUM = 20


@dataclass(frozen=True)
class Tenant:
    """A principal with a channel of its own.

    Attributes:
        name: Of the channel.
        client: Shows its token.
        token: Its token.
    """

    name: str
    client: AsyncClient
    token: str

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The token, in the metadata of bare calls."""
        return (("authorization", f"Bearer {self.token}"),)


@dataclass(frozen=True)
class Scene:
    """A server, the principal that takes all it can get, and another one."""

    secured: Secured
    hoarder: Tenant
    other: Tenant
    calls: Client

    def evictions(self, table: str) -> float:
        """Return how many entries of a table were evicted before their time."""
        found = self.secured.server._metrics.registry.get_sample_value("tidelog_evictions_total", {"table": table})
        return found or 0.0


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with (
        secured_server(tmp_path, quota__requests_per_s=0, quota__shared_calls_per_s=0) as secured,
        secured.channel() as channel,
    ):
        tenants = []
        async with secured.client() as admin:
            for name in ("a", "b"):
                await admin.create_channel(name)
                grants = [f"{verb}:{name}" for verb in ("append", "read", "txn", "broadcast")]
                grants.append(f"broadcast.key:{name}-keys")
                made = await admin.create_token(name, [*grants, f"group.manage:{name}.*", f"group.consume:{name}.*"])
                tenants.append(Tenant(name, secured.client(made.token, retry=ONCE), made.token))
        yield Scene(secured, tenants[0], tenants[1], Client(channel))
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
    # The hoarder itself receives an error for what it has lost, and loses nothing twice.
    with pytest.raises(ProducerForgottenError):
        await hoarder.client.open_producer("a", "p0")
    assert (await hoarder.client.open_producer("a", "p0", accept_forgotten=True)).last_sequence == 0


async def begin_and_stage(scene: Scene, tenant: Tenant, payload: bytes = b"x") -> int:
    begun = await scene.calls.transactions.BeginTxn(txns.BeginTxnRequest(), metadata=tenant.metadata)
    message = wal_service_pb2.AppendRequest(
        vchannel=tenant.name, options=wal_service_pb2.AppendOptions(txn_id=begun.txn_id)
    )
    message.messages.add(payload=payload)
    await scene.calls.wal.Append(message, metadata=tenant.metadata)
    return int(begun.txn_id)


async def commit_app(scene: Scene, tenant: Tenant, app_id: str, version: int, *, is_last: bool = False) -> bool:
    """Begin, stage, prepare and commit a transaction; return whether the version was there before."""
    txn_id = await begin_and_stage(scene, tenant, app_id.encode())
    prepare = txns.PrepareTxnRequest(txn_id=txn_id, app_id=app_id)
    await scene.calls.transactions.PrepareTxn(prepare, metadata=tenant.metadata)
    request = txns.CommitPreparedTxnsRequest(
        txns=[txns.PreparedTxn(txn_id=txn_id)], app_id=app_id, app_version=version, is_last=is_last
    )
    answer = await scene.calls.transactions.CommitPreparedTxns(request, metadata=tenant.metadata)
    return bool(answer.duplicate)


@pytest.mark.parametrize("is_last", [False, True])
async def test_applications_of_one_principal_evict_none_of_another(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, is_last: bool
) -> None:
    for name in ("MAX_APPS", "MAX_FINISHED_APPS"):
        monkeypatch.setattr(applications, name, MAXIMUM)
    assert not await commit_app(scene, scene.other, "stream", 7, is_last=is_last)

    for number in range(HOARD):
        request = txns.CommitPreparedTxnsRequest(app_id=f"a{number}", is_last=is_last, is_first=True)
        await scene.calls.transactions.CommitPreparedTxns(request, metadata=scene.hoarder.metadata)

    assert await commit_app(scene, scene.other, "stream", 7, is_last=is_last)
    assert await payloads(scene.other.client, "b") == [b"stream"]
    table = "finished_applications" if is_last else "applications"
    assert scene.evictions(table) == HOARD + 1 - MAXIMUM
    # Of the hoarder, an application that is unknown may have committed before.
    with pytest.raises(grpc.aio.AioRpcError, match="is_first"):
        await scene.calls.transactions.CommitPreparedTxns(
            txns.CommitPreparedTxnsRequest(app_id="a0", is_last=is_last), metadata=scene.hoarder.metadata
        )


async def commit_txn(scene: Scene, tenant: Tenant, txn_id: int) -> int:
    answer = await scene.calls.transactions.CommitTxn(txns.CommitTxnRequest(txn_id=txn_id), metadata=tenant.metadata)
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
    with pytest.raises(grpc.aio.AioRpcError, match="only outcomes from id"):
        await commit_txn(scene, scene.hoarder, theirs[0])
    # Of an id of the other one that was never begun the server is still sure.
    with pytest.raises(grpc.aio.AioRpcError, match="was not begun"):
        await commit_txn(scene, scene.other, theirs[0] - 1)


async def test_finished_broadcasts_of_one_principal_evict_none_of_another(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broadcast_table, "MAX_TOMBSTONES", MAXIMUM)
    request = broadcasts.BroadcastRequest(vchannels=["b"], message=message_pb2.Message(payload=b"mine"))
    mine = await scene.calls.broadcasts.Broadcast(request, metadata=scene.other.metadata)
    await scene.other.client.ack(mine.broadcast_id, "b")
    for _ in range(HOARD):
        theirs = await scene.hoarder.client.broadcast(["a"], b"theirs")
        await scene.hoarder.client.ack(theirs.broadcast_id, "a")
    await until(lambda: scene.evictions("broadcasts") >= HOARD + 1 - MAXIMUM, within_s=10)

    request.broadcast_id = mine.broadcast_id
    again = await scene.calls.broadcasts.Broadcast(request, metadata=scene.other.metadata)
    assert (again.duplicate, again.tick) == (True, mine.tick)
    assert await payloads(scene.other.client, "b") == [b"mine"]


# -- What all need ---------------------------------------------------------------------------------------------


async def test_open_transactions_of_one_principal_leave_room_for_another(scene: Scene) -> None:
    server = scene.secured.server
    maximum = server._log.admission.limits.max_open_txns
    begun = 0
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        for number in range(maximum):
            # Under any number of names.
            metadata = (*scene.hoarder.metadata, ("tidelog-client-id", f"c{number // 100}"))
            await scene.calls.transactions.BeginTxn(txns.BeginTxnRequest(keepalive_us=60_000_000), metadata=metadata)
            begun += 1
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "this principal uses 500 open transactions" in (refused.value.details() or "")
    assert begun == maximum // 2
    txn_id = await begin_and_stage(scene, scene.other)
    assert await commit_txn(scene, scene.other, txn_id)


async def test_what_one_principal_stages_leaves_room_for_another(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txn_table, "MAX_STAGED_BATCHES", 40)
    begun = await scene.calls.transactions.BeginTxn(txns.BeginTxnRequest(), metadata=scene.hoarder.metadata)
    message = wal_service_pb2.AppendRequest(vchannel="a", options=wal_service_pb2.AppendOptions(txn_id=begun.txn_id))
    message.messages.add(payload=b"x")
    with pytest.raises(grpc.aio.AioRpcError, match="this principal uses 20 batches of open transactions"):
        for _ in range(40):
            await scene.calls.wal.Append(message, metadata=scene.hoarder.metadata)
    assert await commit_txn(scene, scene.other, await begin_and_stage(scene, scene.other))


async def test_broadcasts_that_nobody_acknowledges_leave_room_for_another(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog_server.broadcast.admission.MAX_OPEN_BROADCASTS", MAXIMUM)
    for _ in range(MAXIMUM // 2):
        await scene.hoarder.client.broadcast(["a"], b"theirs")
    with pytest.raises(OverloadedError, match="this principal uses 10 broadcasts"):
        await scene.hoarder.client.broadcast(["a"], b"theirs", timeout_s=1)
    assert (await scene.other.client.broadcast(["b"], b"mine")).tick


async def test_groups_of_one_principal_leave_room_for_another(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_server.groups.catalog.MAX_GROUPS", MAXIMUM)
    for number in range(MAXIMUM // 2):
        await scene.hoarder.client.create_group(f"a.g{number}", ["a"])
    with pytest.raises(OverloadedError, match="this principal uses 10 groups"):
        await scene.hoarder.client.create_group("a.more", ["a"])
    await scene.other.client.create_group("b.g", ["b"])
    # What is given back can be used again.
    await scene.hoarder.client.destroy_group("a.g0")
    await scene.hoarder.client.create_group("a.more", ["a"])


async def test_positions_of_one_principal_leave_room_for_another(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_server.groups.groups.MAX_GROUP_POSITIONS", 4)
    for number in range(2):
        await scene.hoarder.client.create_group(f"a.g{number}", ["a"])
    with pytest.raises(OverloadedError, match="this principal uses 2 positions of groups"):
        await scene.hoarder.client.create_group("a.more", ["a"])
    await scene.other.client.create_group("b.g", ["b"])


async def test_a_key_needs_a_permission_for_its_domain(scene: Scene) -> None:
    keys = [ResourceKey("b-keys", "orders")]
    with pytest.raises(PermissionDeniedError, match=r"broadcast\.key"):
        await scene.hoarder.client.broadcast(["a"], b"x", resource_keys=keys)
    with pytest.raises(PermissionDeniedError):
        await scene.hoarder.client.wait_acked(keys[0], timeout_s=1)
    mine = await scene.other.client.broadcast(["b"], b"mine", resource_keys=keys)
    await scene.other.client.ack(mine.broadcast_id, "b")
    await scene.other.client.wait_acked(keys[0])


async def test_waiting_and_refusals_name_no_broadcasts_of_others(scene: Scene) -> None:
    key = ResourceKey("shared", "schema")
    wire_key = broadcasts.ResourceKey(domain=key.domain, key=key.key)
    async with scene.secured.client() as admin:
        tokens = [
            (await admin.create_token("with a key", [f"{verb}:{name}" for verb in ("append", "read", "broadcast")]
                                      + ["broadcast.key:shared"])).token
            for name in ("a", "b")
        ]  # fmt: skip
    async with scene.secured.client(tokens[0]) as stranger, scene.secured.client(tokens[1]) as owner:
        mine = await owner.broadcast(["b"], b"mine", resource_keys=[key])
        with pytest.raises(ResourceAcquiredError) as refused:
            await stranger.broadcast(["a"], b"x", resource_keys=[key])
        assert refused.value.broadcast_id == 0
        assert str(mine.broadcast_id) not in str(refused.value)
        with pytest.raises(ResourceAcquiredError) as own:
            await owner.broadcast(["b"], b"more", resource_keys=[key])
        assert own.value.broadcast_id == mine.broadcast_id
        for token, expected in zip(tokens, ([], [mine.broadcast_id]), strict=True):
            request = broadcasts.WaitAckedRequest(resource_key=wire_key, mode=broadcasts.ACK_MODE_ALL)
            metadata = (("authorization", f"Bearer {token}"),)
            answer = await scene.calls.broadcasts.WaitAcked(request, metadata=metadata)
            assert (answer.acked, list(answer.broadcast_ids)) == (False, expected)
        with pytest.raises(BroadcastNotFoundError):
            await stranger.wait_acked(mine.broadcast_id, timeout_s=1)
        waiting = asyncio.create_task(stranger.wait_acked(key, timeout_s=30))
        await owner.ack(mine.broadcast_id, "b")
        await waiting
        with pytest.raises(BroadcastNotFoundError):
            await stranger.wait_acked(mine.broadcast_id, timeout_s=1)
        await owner.wait_acked(mine.broadcast_id)


def payloads_of(consumed: Consumed) -> list[bytes]:
    return [bytes(payload) for batch in consumed.batches for payload in batch.payloads]


async def test_a_group_holds_retention_back_only_with_a_permission_of_the_channel(scene: Scene) -> None:
    node = scene.secured.server._node
    async with scene.secured.client() as admin:
        grants = ["read:b", "group.manage:r.*", "group.consume:r.*"]
        reader = (await admin.create_token("a reader", grants)).token
        holder = (await admin.create_token("a holder", [*grants, "retention.hold:b"])).token
        async with scene.secured.client(reader) as client:
            await client.create_group("r.reads", ["b"])
            assert node.groups.pinned_tick("b/0") is None
            (position,) = (await client.describe_group("r.reads")).positions.values()
            assert not position.holds_retention
            # A seek and a commit change nothing of that.
            await client.seek_group("r.reads", At.latest())
            assert node.groups.pinned_tick("b/0") is None
        async with scene.secured.client(holder) as client:
            group = await client.create_group("r.holds", ["b"])
            assert all(position.holds_retention for position in group.positions.values())
            held = node.groups.pinned_tick("b/0")
            assert held is not None
            assert held[1] == "r.holds"


async def test_calls_of_consume_of_one_principal_evict_none_of_another(scene: Scene) -> None:
    async with scene.secured.client() as admin:
        await admin.create_group("shared", ["b"])
        grants = ["read:b", "group.consume:shared"]
        tokens = [(await admin.create_token("a consumer", grants)).token for _ in range(2)]
    for number in range(40):
        await scene.other.client.append("b", b"%d" % number)
    async with scene.secured.client(tokens[0]) as hoarder, scene.secured.client(tokens[1]) as other:
        caller = 7 << 24
        first = await other.consume("shared", "b", 1, commit=True, consume_id=caller + 1)
        for number in range(30):
            await hoarder.consume("shared", "b", 1, commit=True, consume_id=((100 + number) << 24) + 1)
        again = await other.consume("shared", "b", 1, commit=True, consume_id=caller + 1, is_repeated=True)
        assert [bytes(each) for each in again.batches[0].payloads] == [
            bytes(each) for each in first.batches[0].payloads
        ]
        assert scene.evictions("consumes") == 30 + 1 - 16
        with pytest.raises(ConsumeForgottenError):
            await hoarder.consume("shared", "b", 1, commit=True, consume_id=(100 << 24) + 1, is_repeated=True)


async def test_channels_of_one_principal_leave_room_for_another(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_server.channels.catalog.MAX_CHANNELS", MAXIMUM)
    async with scene.secured.client() as admin:
        tokens = [(await admin.create_token(name, [f"channel.create:{name}.*"])).token for name in ("x", "y")]
    async with scene.secured.client(tokens[0], retry=ONCE) as hoarder, scene.secured.client(tokens[1]) as other:
        created = 0
        with pytest.raises(OverloadedError, match="this principal uses 9 channels"):
            for number in range(MAXIMUM):
                await hoarder.create_channel(f"x.c{number}")
                created += 1
        # Three were there before: those of the two principals and the audit log.
        assert created == 9
        await other.create_channel("y.mine")


async def test_members_of_one_principal_leave_room_for_another(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_server.groups.sessions.MAX_MEMBERS", 4)
    async with AsyncExitStack() as stack:
        for number in range(2):
            await stack.enter_async_context(scene.hoarder.client.consumer(f"a.g{number}", "a"))
        # A consumer retries this error until its client gives up, by default after a minute.
        impatient = scene.secured.client(scene.hoarder.token, retry=Retry(give_up_s=1))
        await stack.enter_async_context(impatient)
        with pytest.raises(OverloadedError, match="this principal uses 2 members of groups"):
            async with impatient.consumer("a.more", "a"):
                raise AssertionError("it joined")
        await stack.enter_async_context(scene.other.client.consumer("b.g", "b"))
