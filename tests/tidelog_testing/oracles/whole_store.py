"""A data folder of a real server with rows in every column family, in tables, blob files and the WAL; and its content.

Two servers that stopped cleanly leave tables of each family; a third one that was killed leaves a WAL.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc.aio

import tidelog
from tidelog import AsyncClient
from tidelog.v1 import (
    error_pb2,
)
from tidelog_server.storage.format.head_file import read_head
from tidelog_testing.loads.workload import connect, create_channel, detail_of, read_all, until
from tidelog_testing.oracles.history import Row
from tidelog_testing.parts.grpc_calls import Client
from tidelog_testing.servers.processes import ServerProcess

VCHANNELS: Final = ("a/0", "a/1", "b/0")
LARGE: Final = b" " + bytes(9_000)
DATA_LOSS: Final = "DATA_LOSS"
_APP: Final = "etl"
_GROUP: Final = "billing"
_HEAD_WITHIN_S: Final = 10.0


@dataclass(frozen=True)
class Facts:
    """The answers of a server.

    Attributes:
        rows: Rows of each vchannel; DATA_LOSS if a read was refused with it.
        records: Everything else: channels, groups, positions, broadcasts, producers, outcomes, applications.
        txn_ids: Staged transactions whose outcomes are among the records.
    """

    rows: dict[str, list[Row] | str]
    records: dict[str, object]
    txn_ids: tuple[int, ...]


async def whole_store(folder: Path) -> Facts:
    """Make the data folder of a killed server; return its content."""
    txn_ids: list[int] = []
    for number in (1, 2):
        with ServerProcess(folder) as server:
            txn_ids += await _fill(server.grpc, number)
            server.terminate()
            await asyncio.to_thread(server.wait)
    with ServerProcess(folder) as server:
        txn_ids += await _fill(server.grpc, 3)
        # A transaction that is open when the server dies.
        await _stage(server.grpc, 3, commits=False)
        facts = await facts_of(server.grpc, txn_ids)
        async with AsyncClient(server.grpc) as client:
            last = await client.append("b/0", b"last")
        facts.rows["b/0"] = (await read_all(server.grpc, ["b/0"]))["b/0"]
        # Then HEAD also covers everything before the last message.
        await until(lambda: _head_tick(folder) >= last.last_tick, _HEAD_WITHIN_S, "HEAD has the last message")
        server.kill()
    return facts


async def facts_of(endpoint: str, txn_ids: Sequence[int]) -> Facts:
    """Read everything from a server. The answers do not depend on earlier reads."""
    async with AsyncClient(endpoint, timeout_s=10) as client:
        producers = [await client.open_producer(vchannel, "p") for vchannel in VCHANNELS]
        records: dict[str, object] = {
            "channels": {each.name: each.created_tick async for each in client.list_channels()},
            "groups": {each.name: await _positions(client, each.name) async for each in client.list_groups()},
            "broadcasts": {
                (each.broadcast_id, each.state, each.tick, each.acked_vchannels)
                async for each in client.list_broadcasts(tuple(tidelog.BroadcastState))
            },
            "producers": [(each.last_sequence, each.last_tick) for each in producers],
            "application": await _last_version(client),
        }
    records["outcomes"] = [await _commit(endpoint, txn_id) for txn_id in txn_ids]
    return Facts({vchannel: await _rows(endpoint, vchannel) for vchannel in VCHANNELS}, records, tuple(txn_ids))


def is_complete(found: Facts, expected: Facts) -> bool:
    """Return whether nothing is missing: each vchannel is complete or refused with DATA_LOSS, the rest is equal."""
    return found.records == expected.records and all(
        rows in (DATA_LOSS, expected.rows[vchannel]) for vchannel, rows in found.rows.items()
    )


def _head_tick(folder: Path) -> int:
    head = read_head(folder / "HEAD")
    return 0 if head is None else head.last_tick


async def _fill(endpoint: str, number: int) -> list[int]:
    """Write to every family; return the ids of committed transactions."""
    await create_channel(endpoint, "a", 2)
    await create_channel(endpoint, "b", 1)
    async with AsyncClient(endpoint, timeout_s=10) as client:
        if number == 1:
            await client.create_group(_GROUP, ["a"])
        for vchannel in VCHANNELS:
            producer = await client.open_producer(vchannel, "p")
            for index in range(6):
                numbered = tidelog.ProducerSequence("p", producer.last_sequence + index + 1, producer.epoch)
                await client.append(vchannel, b"%d-%d" % (number, index) + LARGE * (index % 2), producer=numbered)
        end = (await client.open_producer("a/0", "p")).last_tick + 1
        await client.commit_positions([tidelog.PositionCommit(_GROUP, "a/0", end)])
        broadcast = await client.broadcast(["a/0", "b/0"], b"all-%d" % number)
        await client.ack(broadcast.broadcast_id, ["a/0"])
        handles = []
        for vchannel in VCHANNELS:
            txn = client.txn()
            await txn.append(vchannel, [b"prepared-%d" % number])
            handles.append(await txn.prepare(_APP))
        await client.commit_prepared([handle for handle in handles if handle], _APP, number)
        await client.fence("b/0", number)
    return [await _stage(endpoint, number, commits=True)]


async def _positions(client: AsyncClient, group: str) -> dict[str, int]:
    return {name: each.next_tick for name, each in (await client.describe_group(group)).positions.items()}


async def _last_version(client: AsyncClient) -> str:
    """Return the last version that the application has committed, from the refusal of an earlier one."""
    try:
        await client.commit_prepared([], _APP, 0)
    except tidelog.TidelogError as error:
        return error.values["last_version"]
    raise AssertionError("an earlier version was committed")


async def _rows(endpoint: str, vchannel: str) -> list[Row] | str:
    try:
        return (await read_all(endpoint, [vchannel]))[vchannel]
    except grpc.aio.AioRpcError as error:
        detail = detail_of(error)
        if detail is None or detail.reason != error_pb2.REASON_DATA_LOSS:
            raise
        return DATA_LOSS


async def _stage(endpoint: str, number: int, *, commits: bool) -> int:
    """Begin a transaction, stage a small and a large batch on each vchannel, and commit it if requested."""
    async with connect(endpoint) as channel:
        calls = Client(channel)
        txn_id = await calls.begin()
        for vchannel in VCHANNELS:
            for tail in (b"", LARGE):
                await calls.append(vchannel, b"staged-%d" % number + tail, txn_id=txn_id)
    if commits:
        await _commit(endpoint, txn_id)
    return txn_id


async def _commit(endpoint: str, txn_id: int) -> tuple[int, int]:
    """Commit a staged transaction, possibly again; return its ticks."""
    async with connect(endpoint) as channel:
        result = await Client(channel).commit(txn_id)
        return result.first_tick, result.last_tick
