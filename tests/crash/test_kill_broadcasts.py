"""An accepted broadcast is on each of its vchannels once, at one tick, and under its keys, after any crash.

Method: tasks broadcast under keys, acknowledge and abort on servers that are killed at random moments, or at each
failpoint of a broadcast and of an acknowledgement. Afterwards the log and the broadcasts that the server knows must
match the acknowledgements, and no two broadcasts that exclude each other may have been open at the same time.

Promises of docs/reference/guarantees.md: G26, G28, G29.
"""

import asyncio
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, At, BroadcastResult, BroadcastState, ResourceKey
from tidelog_server.runtime.failpoints import Failpoint
from tidelog_testing.loads.outage import InterruptedServer
from tidelog_testing.parts.soaks import Recorder
from tidelog_testing.parts.waiting import until

pytestmark = pytest.mark.crash

LANES = ("left/0", "left/1", "left/2", "right/0")
KEYS = ("x", "y")
_SENDERS = 4
_STORE_POINTS = (Failpoint.BEFORE_WRITE, Failpoint.AFTER_WRITE_BEFORE_SYNC, Failpoint.AFTER_SYNC_BEFORE_ACK)
_POINTS = [*(point for point in Failpoint if point.startswith("broadcast")), *_STORE_POINTS]


@dataclass
class Run:
    """Events of all rounds.

    Attributes:
        results: Position of each answered broadcast, by its payload.
        lanes: Vchannels of each broadcast that was begun.
        keys: Keys of each broadcast that was begun.
        left_open: Broadcasts that are not acknowledged before the end.
        is_over: Set when no more operations are to begin.
        answered: Set at each answer.
    """

    chance: random.Random
    results: dict[bytes, BroadcastResult] = field(default_factory=dict)
    lanes: dict[bytes, tuple[str, ...]] = field(default_factory=dict)
    keys: dict[bytes, ResourceKey] = field(default_factory=dict)
    left_open: set[bytes] = field(default_factory=set)
    is_over: asyncio.Event = field(default_factory=asyncio.Event)
    answered: asyncio.Event = field(default_factory=asyncio.Event)


async def ack(client: AsyncClient, broadcast_id: int, lane: str) -> None:
    """Acknowledge until the server has answered."""
    async with asyncio.timeout(60):
        while True:
            try:
                await client.ack(broadcast_id, lane)
            except (tidelog.UnavailableError, tidelog.DeadlineError):
                continue
            return


async def send(run: Run, client: AsyncClient, name: str) -> None:
    """Broadcast and acknowledge, one after the other, across all restarts of the server."""
    number = 0
    while not run.is_over.is_set():
        number += 1
        payload = b"%s:%d" % (name.encode(), number)
        lanes = tuple(run.chance.sample(LANES, run.chance.randint(1, len(LANES))))
        key = ResourceKey("test", run.chance.choice(KEYS), shared=run.chance.random() < 0.3)
        run.lanes[payload], run.keys[payload] = lanes, key
        try:
            result = await client.broadcast(lanes, payload, resource_keys=[key], wait_s=30, timeout_s=120)
        except tidelog.ResourceAcquiredError:
            continue
        run.results[payload] = result
        run.answered.set()
        for lane in run.chance.sample(lanes, len(lanes)):
            await ack(client, result.broadcast_id, lane)
        assert (await client.describe_broadcast(result.broadcast_id)).summary.state == "done"


async def hold(run: Run, client: AsyncClient) -> None:
    """Leave a broadcast open, with one acknowledgement, under a key that no other broadcast requests."""
    payload = b"open:%d" % len(run.left_open)
    key = ResourceKey("held", payload.decode())
    run.lanes[payload], run.keys[payload] = LANES, key
    run.results[payload] = result = await client.broadcast(LANES, payload, resource_keys=[key], timeout_s=60)
    await ack(client, result.broadcast_id, LANES[0])
    run.left_open.add(payload)


async def judge(run: Run, client: AsyncClient) -> None:
    """Compare the log and the server's broadcasts with the answers."""
    places: dict[bytes, list[tuple[str, int, int | None]]] = defaultdict(list)
    async for batch in client.scan(LANES):
        for tick, payload in zip(batch.ticks, batch.payloads, strict=True):
            places[payload].append((batch.vchannel, tick, batch.broadcast_id))
    for payload, found in places.items():
        assert sorted(lane for lane, _, _ in found) == sorted(run.lanes[payload]), "not on each vchannel once"
        assert len({(tick, broadcast_id) for _, tick, broadcast_id in found}) == 1, "at several ticks"
    for payload, result in run.results.items():
        assert places[payload][0][1:] == (result.tick, result.broadcast_id)
    for payload in run.left_open:
        description = await client.describe_broadcast(run.results[payload].broadcast_id)
        assert (description.summary.state, description.acked) == (BroadcastState.WAIT_ACK, (LANES[0],))
        with pytest.raises(tidelog.ResourceAcquiredError):
            await client.broadcast(LANES, b"never", resource_keys=[run.keys[payload]])
    assert [summary.state async for summary in client.list_broadcasts([BroadcastState.PENDING])] == []


async def finish(run: Run, client: AsyncClient) -> None:
    """Acknowledge all open broadcasts; then every key is free."""
    async for summary in client.list_broadcasts():
        description = await client.describe_broadcast(summary.broadcast_id)
        await client.ack(summary.broadcast_id, description.missing)
        await client.wait_acked(summary.broadcast_id)
    for key in set(run.keys.values()):
        await client.wait_acked(key, timeout_s=0)


async def follow(client: AsyncClient, seen: list[int]) -> None:
    """Record the tick of each broadcast on each vchannel, as it arrives."""
    async with client.scan(LANES, until=At.follow()) as scan:
        async for batch in scan:
            assert batch.broadcast_id is not None
            seen.append(batch.first_tick)


async def test_every_accepted_broadcast_is_everywhere_once_whatever_dies(
    tmp_path: Path, record_property: Recorder
) -> None:
    seed = random.randrange(1 << 32)
    record_property("seed", seed)
    run, seen = Run(random.Random(seed)), list[int]()
    server = InterruptedServer(tmp_path / "log")
    retry = tidelog.Retry(base_s=0.01, cap_s=0.1)
    async with AsyncClient(server.grpc, timeout_s=60, connect_timeout_s=30, retry=retry) as client:
        await client.create_channel("left", vchannels=3)
        await client.create_channel("right")
        reader = asyncio.create_task(follow(client, seen))
        senders = [asyncio.create_task(send(run, client, f"s{number}")) for number in range(_SENDERS)]
        for point in (None, *_POINTS, None):
            holding = asyncio.create_task(hold(run, client))
            for _ in range(run.chance.randint(1, 10)):
                run.answered.clear()
                await run.answered.wait()
            await server.start_again(f"{point}:{run.chance.randint(1, 8)}" if point else "")
            await holding
        run.is_over.set()
        await asyncio.gather(*senders)
        ticks = Counter({result.tick: len(run.lanes[payload]) for payload, result in run.results.items()})
        await until(lambda: Counter(seen) >= ticks or reader.done())
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        await judge(run, client)
        await server.start_again()
        await judge(run, client)
        await finish(run, client)
        assert ticks == Counter(tick for tick in seen if tick in ticks)
    await asyncio.to_thread(server.kill)
    met_again = sum(result.duplicate for result in run.results.values())
    record_property(
        "measured", f"{len(run.results)} broadcasts, {met_again} met again, {server.died_at_start} starts died"
    )


async def test_a_wait_for_acknowledgements_goes_on_across_a_killed_server(tmp_path: Path) -> None:
    key = ResourceKey("test", "x")
    server = InterruptedServer(tmp_path / "log")
    async with AsyncClient(server.grpc, retry=tidelog.Retry(base_s=0.01, cap_s=0.1)) as client:
        await client.create_channel("left", vchannels=3)
        result = await client.broadcast(LANES[:3], b"x", resource_keys=[key])
        waiting = [
            asyncio.create_task(client.wait_acked(key, timeout_s=60)),
            asyncio.create_task(client.wait_acked(result.broadcast_id, timeout_s=60)),
        ]
        for lane in LANES[:3]:
            await server.start_again()
            assert not any(task.done() for task in waiting)
            await ack(client, result.broadcast_id, lane)

        await asyncio.gather(*waiting)
    await asyncio.to_thread(server.kill)
