"""A plan's cut is consistent, and its splits can be read separately.

Method: a node on the memory store, concurrent appends and plans, and a separate scan of each split.
"""

import asyncio
from dataclasses import replace

import pytest

from tidelog_server.core import limits
from tidelog_server.core.errors import (
    ChannelNotExistError,
    InvalidRequestError,
    PositionBeyondEndError,
    PositionTrimmedError,
    StorageFailedError,
)
from tidelog_server.core.ticks import Tick
from tidelog_server.log.scan.planner import PlanRequest
from tidelog_server.log.scan.scanner import ScanParameters, ScanSource
from tidelog_server.log.scan.splits import Split
from tidelog_testing.parts.batches import a_batch
from tidelog_testing.parts.fixtures import node_with
from tidelog_testing.parts.nodes import Node, running_node
from tidelog_testing.parts.stores import FaultyStore

store, node = node_with(a=2, b=1)
LANES = ("a/0", "a/1", "b/0")
ALL = PlanRequest(begin_tick=0, end_tick=0, min_splits=0, max_messages=1 << 62, max_bytes=1 << 62)


async def scanned(node: Node, lane: str, split: Split) -> list[int]:
    plan = ScanParameters(
        ends_at_durable=False, end_tick=split.end_tick, message_types=None, max_page_bytes=1 << 20,
        watermark_interval_s=60,
    )  # fmt: skip
    source = ScanSource(0, *node.directory.find(lane), Tick(split.begin_tick))
    async with node.vchannels.scanner([source], plan) as scanner:
        return [
            piece.base_tick + index
            async for page in scanner.pages()
            for piece in page.pieces
            for index in range(piece.begin, piece.end)
        ]


async def test_a_cut_holds_all_that_was_acknowledged_and_nothing_that_begins_later(node: Node) -> None:
    acknowledged: dict[str, list[int]] = {lane: [] for lane in LANES}
    is_done = False

    async def produce(lane: str) -> None:
        while not is_done:
            tick = await node.append(lane, a_batch(b"a", b"b", b"c"))
            acknowledged[lane] += range(tick, tick + 3)

    producers = [asyncio.create_task(produce(lane)) for lane in LANES]
    cuts = []
    for _ in range(10):
        before = {lane: list(ticks) for lane, ticks in acknowledged.items()}
        targets = [node.directory.find(lane) for lane in LANES]
        cut, splits = await node.planner.plan(
            targets, PlanRequest(begin_tick=0, end_tick=0, min_splits=4, max_messages=50, max_bytes=1 << 62)
        )
        after = await node.submit("a/0", a_batch(b"later"))
        assert cut < after.append.entries[0].base_tick
        assert all(tick < cut for ticks in before.values() for tick in ticks)
        cuts.append((cut, splits))
        await after.acknowledged()
        acknowledged["a/0"].append(after.append.entries[0].base_tick)
    is_done = True
    await asyncio.gather(*producers)
    for cut, splits in cuts:
        for lane, found in zip(LANES, splits, strict=True):
            read = [tick for split in found for tick in await scanned(node, lane, split)]
            assert read == [tick for tick in sorted(acknowledged[lane]) if tick < cut]


async def test_splits_are_within_their_bounds_and_estimate_what_they_hold(node: Node) -> None:
    ticks = [await node.append("b", a_batch(*[b"x"] * 10)) for _ in range(30)]
    request = PlanRequest(begin_tick=0, end_tick=0, min_splits=0, max_messages=25, max_bytes=1 << 62)
    _, (splits,) = await node.planner.plan([node.directory.find("b")], request)
    assert [split.messages for split in splits] == [20] * 15
    assert splits[0].begin_tick == ticks[0]
    _, (halves,) = await node.planner.plan(
        [node.directory.find("b")], PlanRequest(ticks[3] + 5, ticks[7] + 2, 0, 4, 1 << 62)
    )
    read = [tick for split in halves for tick in await scanned(node, "b", split)]
    assert read == [tick for base in ticks for tick in range(base, base + 10) if ticks[3] + 5 <= tick < ticks[7] + 2]
    assert max(split.messages for split in halves) <= 4


async def test_a_range_that_cuts_chunks_is_counted_exactly(node: Node) -> None:
    ticks = []
    for _ in range(3):
        ticks += [await node.append("b", a_batch(*[b"x"] * 10)) for _ in range(5)]
        # So these are dense runs far apart, and counts in proportion to ticks would be wrong.
        await node.append("a/0", a_batch(*[b"x"] * 1_000))
    held = [tick for base in ticks for tick in range(base, base + 10)]
    target = [node.directory.find("b")]
    for begin, end in [(3, 5), (3, 48), (3, 52), (48, 53), (51, 148), (0, 149), (3, 149)]:
        _, (splits,) = await node.planner.plan(target, replace(ALL, begin_tick=held[begin], end_tick=held[end]))
        assert [split.messages for split in splits] == [end - begin]
        assert (splits[0].begin_tick, splits[0].end_tick) == (held[begin], held[end - 1] + 1)
    _, (splits,) = await node.planner.plan(target, replace(ALL, begin_tick=held[49] + 1, end_tick=held[50] - 1))
    assert splits == []


async def test_of_more_than_a_plan_may_count_it_tells_the_share_of_ticks(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog_server.log.scan.planner.MAX_EDGE_HEADERS", 5)
    ticks: dict[str, list[int]] = {lane: [] for lane in LANES}
    for size in (10, 10, 10, 40):
        for lane in LANES:
            ticks[lane].append(await node.append(lane, a_batch(*[b"x"] * size)))
    begin, end = ticks["a/0"][0] + 5, ticks["b/0"][-1] + 5
    targets = [node.directory.find(lane) for lane in LANES]
    _, (first, _, last) = await node.planner.plan(targets, replace(ALL, begin_tick=begin, end_tick=end))
    assert [split.messages for split in first] == [5 + 10 + 10 + 40]
    # Its 35 messages, and of its chunk's 70 the proportion of its ticks.
    chunk = ticks["b/0"][-1] + 40 - ticks["b/0"][0]
    assert [split.messages for split in last] == [-(-70 * (end - ticks["b/0"][0]) // chunk)] != [35]
    assert await scanned(node, "b/0", last[0]) == [
        tick
        for base, size in zip(ticks["b/0"], (10, 10, 10, 40), strict=True)
        for tick in range(base, base + size)
        if tick < end
    ]


async def test_about_as_many_splits_are_made_as_were_asked_for(node: Node) -> None:
    for lane in LANES:
        for _ in range(40):
            await node.append(lane, a_batch(bytes(1_000)))
    request = PlanRequest(begin_tick=0, end_tick=0, min_splits=12, max_messages=1 << 62, max_bytes=1 << 62)
    _, splits = await node.planner.plan([node.directory.find(lane) for lane in LANES], request)
    assert 12 <= sum(map(len, splits)) <= 24


async def test_a_plan_of_empty_vchannels_has_a_cut_and_no_splits(node: Node) -> None:
    cut, splits = await node.planner.plan([node.directory.find(lane) for lane in LANES], ALL)
    assert splits == [[], [], []]
    assert cut <= node.log.shared.oracle.now()


async def test_a_plan_below_the_trim_or_beyond_the_end_is_refused(node: Node) -> None:
    ticks = [await node.append("b", a_batch(b"x")) for _ in range(4)]
    first = await node.vchannels.trim("b", before_tick=ticks[2])
    target = [node.directory.find("b")]
    with pytest.raises(PositionTrimmedError, match=str(first)):
        await node.planner.plan(target, PlanRequest(ticks[0], 0, 0, 1, 1))
    with pytest.raises(PositionBeyondEndError):
        await node.planner.plan(target, PlanRequest(0, ticks[3] + (1 << 40), 0, 1, 1))
    _, (splits,) = await node.planner.plan(target, ALL)
    assert await scanned(node, "b", splits[0]) == ticks[2:]


async def test_a_plan_of_too_many_splits_is_refused_without_building_them(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog_server.log.scan.planner.MAX_SPLITS", 50)
    await node.append("b", a_batch(*[b"x"] * 10_000))
    request = PlanRequest(begin_tick=0, end_tick=0, min_splits=0, max_messages=1, max_bytes=1)
    with pytest.raises(InvalidRequestError, match="more than 50 splits: request larger ones"):
        await node.planner.plan([node.directory.find("b")], request)
    assert limits.MAX_SPLITS == 100_000


async def test_a_plan_ends_when_storage_fails_instead_of_waiting_for_ever() -> None:
    store = FaultyStore(fails_at_sync=1)
    async with running_node(store) as node:
        await node.create("b")
        store.may_sync.clear()
        await node.submit("b", a_batch(b"x"))
        plan = asyncio.create_task(node.planner.plan([node.directory.find("b")], ALL))
        await asyncio.sleep(0)
        store.may_sync.set()
        with pytest.raises(StorageFailedError):
            await plan


async def test_a_plan_of_a_channel_that_is_destroyed_meanwhile_says_so(node: Node) -> None:
    target = [node.directory.find("b")]
    await node.lifecycle.destroy(["b"], ignore_missing=False)
    with pytest.raises(ChannelNotExistError, match="destroyed"):
        await node.planner.plan(target, ALL)
