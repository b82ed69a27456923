"""A principal that takes all it can get of what all share: entries of tables, transactions, broadcasts, groups.

Before each attack another principal appends numbered batches, commits a version of an application, and finishes a
broadcast; afterwards it repeats all of it, and takes a transaction, a broadcast and a group for itself.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Final

import grpc.aio

from benchmarks.attacks.attack import Assault, Attack
from benchmarks.siege.server import BenchServer
from tidelog import AsyncClient, TidelogError
from tidelog.v1 import broadcast_service_pb2 as broadcasts
from tidelog.v1 import (
    broadcast_service_pb2_grpc,
    group_service_pb2,
    group_service_pb2_grpc,
    message_pb2,
    transaction_service_pb2_grpc,
    wal_service_pb2,
    wal_service_pb2_grpc,
)
from tidelog.v1 import transaction_service_pb2 as txns

_MINE: Final = "bench-tenant"
_HOARD: Final = "bench-hoard"
_TASKS: Final = 16
_BATCHES: Final = [b"1", b"2", b"3", b"4", b"5"]
_PRODUCER: Final = "nightly-load"
_APP: Final = "nightly-stream"
_KEEPALIVE_US: Final = 3_600_000_000
_PAUSE_S: Final = 0.01
_STRONG_WITHIN_S: Final = 5.0

Call = Callable[[grpc.aio.Channel, tuple[tuple[str, str], ...], int], Awaitable[None]]


def _flood(call: Call, enough: int) -> Callable[[Assault], Awaitable[None]]:
    """Return an attack that makes a call as often as it can, and pauses a little where it is refused.

    It is at its full strength after ``enough`` calls, at the first refusal, or after a few seconds.
    """

    async def run(assault: Assault) -> None:
        # Names of an earlier round would take nothing new.
        first = secrets.randbits(32) << 32
        numbers = count(first)
        is_strong = asyncio.Event()

        async def make_calls(channel: grpc.aio.Channel) -> None:
            while True:
                try:
                    await call(channel, assault.order.metadata, next(numbers))
                    assault.counts["taken"] += 1
                    if assault.counts["taken"] >= enough:
                        is_strong.set()
                except grpc.aio.AioRpcError:
                    assault.counts["refused"] += 1
                    is_strong.set()
                    await asyncio.sleep(_PAUSE_S)

        async with assault.order.channel() as channel, asyncio.TaskGroup() as tasks:
            for _ in range(_TASKS):
                tasks.create_task(make_calls(channel))
            with suppress(TimeoutError):
                await asyncio.wait_for(is_strong.wait(), _STRONG_WITHIN_S)
            assault.under_way()

    return run


def _stub(stub: Any, channel: grpc.aio.Channel) -> Any:
    return stub(channel)


async def _open_producer(channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...], number: int) -> None:
    request = wal_service_pb2.OpenProducerRequest(vchannel=_HOARD, producer_id=f"p{number}", accept_forgotten=True)
    await _stub(wal_service_pb2_grpc.WalServiceStub, channel).OpenProducer(request, metadata=metadata)


async def _commit_nothing(channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...], number: int) -> None:
    request = txns.CommitPreparedTxnsRequest(app_id=f"a{number}", is_last=True, is_first=True)
    stub = _stub(transaction_service_pb2_grpc.TransactionServiceStub, channel)
    await stub.CommitPreparedTxns(request, metadata=metadata)


async def _small_txn(channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...], _: int) -> None:
    stub = _stub(transaction_service_pb2_grpc.TransactionServiceStub, channel)
    begun = await stub.BeginTxn(txns.BeginTxnRequest(), metadata=metadata)
    append = wal_service_pb2.AppendRequest(vchannel=_HOARD, options=wal_service_pb2.AppendOptions(txn_id=begun.txn_id))
    append.messages.add(payload=b"x")
    await _stub(wal_service_pb2_grpc.WalServiceStub, channel).Append(append, metadata=metadata)
    await stub.CommitTxn(txns.CommitTxnRequest(txn_id=begun.txn_id), metadata=metadata)


async def _open_txn(channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...], number: int) -> None:
    stub = _stub(transaction_service_pb2_grpc.TransactionServiceStub, channel)
    named = (*metadata, ("tidelog-client-id", f"c{number}"))
    await stub.BeginTxn(txns.BeginTxnRequest(keepalive_us=_KEEPALIVE_US), metadata=named)


async def _broadcast(channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...], _: int) -> None:
    request = broadcasts.BroadcastRequest(vchannels=[_HOARD], message=message_pb2.Message(payload=b"x"))
    await _stub(broadcast_service_pb2_grpc.BroadcastServiceStub, channel).Broadcast(request, metadata=metadata)


async def _create_group(channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...], number: int) -> None:
    request = group_service_pb2.CreateGroupRequest(group=f"{_HOARD}.g{number}", channels=[_HOARD], if_not_exists=True)
    await _stub(group_service_pb2_grpc.GroupServiceStub, channel).CreateGroup(request, metadata=metadata)


async def _prepare(server: BenchServer) -> Mapping[str, Any]:
    """Let the other principal do what it repeats afterwards."""
    async with server.client() as client:
        await client.ensure_channel(_HOARD)
        await client.ensure_channel(_MINE)
        await _load(client)
        await _commit_version(client)
    return {}


async def _load(client: AsyncClient) -> None:
    position = await client.open_producer(_MINE, _PRODUCER)
    for number, batch in enumerate(_BATCHES, 1):
        if position.last_sequence < number:
            await client.append(_MINE, batch, producer=position.sequence(number))


async def _commit_version(client: AsyncClient) -> bool:
    async with client.txn() as txn:
        await txn.append(_MINE, b"version 1")
        prepared = await txn.prepare(_APP)
    assert prepared is not None
    return (await client.commit_prepared([prepared], _APP, 1)).duplicate


async def _check(server: BenchServer) -> Mapping[str, float]:
    """Repeat it, and take some of what all need."""
    refused = 0
    async with server.client() as client:
        await _load(client)
        await _commit_version(client)
        payloads = [bytes(each) async for batch in client.scan(_MINE) for each in batch.payloads]
        for take in (_take_txn, _take_broadcast, _take_group):
            try:
                await take(client)
            except TidelogError:
                refused += 1
    return {"repeated_doubled": len(payloads) - len(_BATCHES) - 1, "refused_to_others": refused}


async def _take_txn(client: AsyncClient) -> None:
    async with client.txn() as txn:
        await txn.append(_HOARD, b"mine")
        prepared = await txn.prepare("another")
    assert prepared is not None
    await client.roll_back_prepared([prepared])


async def _take_broadcast(client: AsyncClient) -> None:
    taken = await client.broadcast([_HOARD], b"mine")
    await client.ack(taken.broadcast_id, _HOARD)


async def _take_group(client: AsyncClient) -> None:
    await client.create_group(f"{_MINE}.group", [_MINE], if_not_exists=True)


def _attack(name: str, what: str, call: Call, enough: int, *verbs: str) -> Attack:
    grants = [f"{verb}:{_HOARD}" for verb in verbs]
    if "read" in verbs:
        grants.append(f"group.manage:{_HOARD}.*")
    return Attack(name=name, what=what, run=_flood(call, enough), grants=grants, prepare=_prepare, check=_check)


ATTACKS: Final = (
    _attack("producers", "opens producers under ever new names", _open_producer, 10_001, "append"),
    _attack("applications", "commits nothing, each time for a new application", _commit_nothing, 1_001, "txn"),
    _attack("outcomes", "commits small staged transactions", _small_txn, 10_001, "txn", "append"),
    _attack("open-transactions", "begins transactions under ever new client ids", _open_txn, 1_000, "txn"),
    _attack("broadcasts", "broadcasts what no client acknowledges", _broadcast, 10_000, "append", "broadcast"),
    _attack("groups", "creates consumer groups", _create_group, 10_000, "read"),
)
