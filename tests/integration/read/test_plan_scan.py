"""PlanScan over real gRPC: what the splits of a plan hold is what lay below its cut.

Method: producers on two channels while plans are made; each split is then scanned as Spark would scan it.

Promises of docs/reference/guarantees.md: G11.
"""

import asyncio
from pathlib import Path

from tidelog.v1 import wal_service_pb2 as wal
from tidelog_testing.parts.grpc_calls import Client, a_request, connected, running_server

NAMES = ("a/0", "a/1", "b")


async def read(client: Client, split: wal.Split) -> list[int]:
    rows = await client.rows(
        split.vchannel,
        policy=wal.DeliverPolicy(from_tick=split.begin_tick),
        end=wal.ScanEnd(before_tick=split.end_tick),
    )
    return [tick for _, tick, _ in rows]


async def test_splits_read_apart_are_the_log_below_the_cut(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        await client.create("a", vchannels=2)
        await client.create("b")
        acknowledged: dict[str, list[int]] = {name: [] for name in NAMES}

        async def produce(name: str) -> None:
            for _ in range(20):
                for answer in await client.append_all([a_request(name, b"x", b"y", b"z")] * 5):
                    acknowledged[name] += range(answer.result.first_tick, answer.result.last_tick + 1)

        async def plan() -> tuple[wal.PlanScanResponse, dict[str, list[int]]]:
            before = {name: list(ticks) for name, ticks in acknowledged.items()}
            request = wal.PlanScanRequest(vchannels=NAMES, min_splits=6, max_messages_per_split=40)
            return await client.wal.PlanScan(request), before

        producers = asyncio.gather(*map(produce, NAMES))
        plans = [await plan() for _ in range(8)]
        await producers
        for response, before in [*plans, await plan()]:
            assert all(tick < response.end_tick for ticks in before.values() for tick in ticks)
            places = [(split.vchannel, split.begin_tick) for split in response.splits]
            assert places == sorted(places)
            assert all(split.estimated_messages <= 40 for split in response.splits)
            for name in NAMES:
                full = "b/0" if name == "b" else name
                found = [t for split in response.splits if split.vchannel == full for t in await read(client, split)]
                assert found == [tick for tick in acknowledged[name] if tick < response.end_tick]


async def test_a_plan_between_two_ticks_holds_just_those(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        await client.create("b")
        result = await client.append("b", *[b"x"] * 100)
        begin, end = result.first_tick + 10, result.first_tick + 60
        request = wal.PlanScanRequest(vchannels=["b"], begin_tick=begin, end_tick=end, max_messages_per_split=7)
        response = await client.wal.PlanScan(request)
        assert response.end_tick == end
        ticks = [tick for split in response.splits for tick in await read(client, split)]
        assert ticks == list(range(begin, end))
        assert len(response.splits) >= 8


async def test_a_plan_of_part_of_a_log_counts_what_lies_within(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server, connected(server) as client:
        await client.create("a", vchannels=2)
        await client.create("b")
        ticks: dict[str, list[int]] = {name: [] for name in NAMES}
        for count in range(1, 40):
            name = NAMES[count % 3]
            result = await client.append(name, *[b"x"] * count)
            ticks[name] += range(result.first_tick, result.last_tick + 1)
        together = sorted(tick for some in ticks.values() for tick in some)
        for begin, end in [(0, 7), (3, 400), (101, 103), (399, len(together) - 1)]:
            request = wal.PlanScanRequest(vchannels=NAMES, begin_tick=together[begin], end_tick=together[end])
            response = await client.wal.PlanScan(request)
            for name in NAMES:
                full = "b/0" if name == "b" else name
                found = sum(split.estimated_messages for split in response.splits if split.vchannel == full)
                assert found == sum(together[begin] <= tick < together[end] for tick in ticks[name])
