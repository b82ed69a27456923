"""Early ends of scans, what wakes a scan, and its reports of being caught up.

Method: a node on the memory store; a hook in the store runs code while a reader thread reads.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tidelog_server.core.errors import ChannelNotExistError, PositionTrimmedError, ShutdownError, TidelogServerError
from tidelog_server.core.limits import Limits
from tidelog_server.core.ticks import Tick
from tidelog_server.log.scan.follow_turns import FOLLOW_TICK_S
from tidelog_server.log.scan.scanner import Page, Scanner, ScanParameters, ScanSource
from tidelog_testing.parts.batches import a_batch
from tidelog_testing.parts.fixtures import node_with
from tidelog_testing.parts.nodes import Node, running_node
from tidelog_testing.parts.stores import FaultyStore

store, node = node_with(a=1)
FOLLOW = ScanParameters(
    ends_at_durable=False, end_tick=None, message_types=None, max_page_bytes=1 << 20, watermark_interval_s=60
)
ONE_BY_ONE = replace(FOLLOW, max_page_bytes=1)
NO_RING = Limits(tail_ring_bytes=1)


def scanner(node: Node, plan: ScanParameters, position: int = 0, vchannel: str = "a") -> Scanner:
    return node.vchannels.scanner([ScanSource(0, *node.directory.find(vchannel), Tick(position))], plan)


async def filled(node: Node, batches: int = 10) -> list[int]:
    return [await node.append("a", a_batch(str(number).encode())) for number in range(batches)]


async def next_page(pages: object) -> Page:
    async with asyncio.timeout(5):
        page: Page = await anext(pages)  # type: ignore[call-overload]  # An asynchronous generator.
        return page


async def test_a_follower_is_woken_by_an_append_long_before_its_watermark_is_due(node: Node) -> None:
    async with scanner(node, FOLLOW) as scan:
        pages = scan.pages()
        assert (await next_page(pages)).pieces == []
        tick = await node.append("a", a_batch(b"x"))
        page = await next_page(pages)
        assert [piece.base_tick for piece in page.pieces] == [tick]
        assert page.is_caught_up
        assert tick <= page.watermark


async def test_a_watermark_comes_when_it_is_due_although_nothing_happens(node: Node) -> None:
    async with scanner(node, replace(ONE_BY_ONE, watermark_interval_s=0.01)) as scan:
        pages = scan.pages()
        watermarks = [(await next_page(pages)).watermark for _ in range(4)]
        assert watermarks == sorted(set(watermarks))


async def test_a_page_says_caught_up_only_if_nothing_became_durable_meanwhile(node: Node) -> None:
    ticks = await filled(node, 3)
    async with scanner(node, ONE_BY_ONE) as scan:
        pages = scan.pages()
        first = await next_page(pages)
        assert not first.is_caught_up
        late = await node.append("a", a_batch(b"late"))
        rest = [await next_page(pages) for _ in range(2)]
        assert [page.is_caught_up for page in rest] == [False, False]
        last = await next_page(pages)
        assert ([piece.base_tick for piece in last.pieces], last.is_caught_up) == ([late], True)
        assert [page.pieces[0].base_tick for page in [first, *rest]] == ticks


@pytest.mark.parametrize("limits", [Limits(), NO_RING], ids=["ring", "store"])
async def test_a_scan_overtaken_by_a_trim_says_where_messages_begin(limits: Limits) -> None:
    async with running_node(FaultyStore(), limits) as node:
        await node.create("a")
        # More than a scan reads ahead.
        ticks = await filled(node, 1_100)
        async with scanner(node, ONE_BY_ONE) as scan:
            pages = scan.pages()
            assert (await next_page(pages)).pieces[0].base_tick == ticks[0]
            await node.vchannels.trim("a", before_tick=ticks[1_090])
            with pytest.raises(PositionTrimmedError) as caught:
                while True:
                    await next_page(pages)
        assert int(caught.value.values["first_available_tick"]) <= ticks[1_090]


async def acting_while_read(node: Node, store: FaultyStore, act: Callable[[], object]) -> TidelogServerError:
    """Run ``act`` on the reader thread just before headers are read; return how the scan ends."""

    def once() -> None:
        store.on_headers = lambda: None
        act()

    store.on_headers = once
    async with scanner(node, ONE_BY_ONE) as scan:
        with pytest.raises(TidelogServerError) as caught:
            async for _ in scan.pages():
                pass
    return caught.value


async def test_a_trim_while_headers_are_read_is_noticed_before_the_event_loop_knows_of_it() -> None:
    store = FaultyStore()
    async with running_node(store, NO_RING) as node:
        await node.create("a")
        ticks = await filled(node)
        _, vchannel = node.directory.find("a")
        error = await acting_while_read(node, store, lambda: store.trim(vchannel.vchannel_id, ticks[5]))
        assert isinstance(error, PositionTrimmedError)
        assert error.values["first_available_tick"] == str(store.tail(vchannel.vchannel_id).trim_tick)


async def test_a_destroyed_channel_ends_its_scans_also_while_they_read() -> None:
    store = FaultyStore()
    async with running_node(store, NO_RING) as node:
        await node.create("a")
        await filled(node)
        loop = asyncio.get_running_loop()

        def destroy() -> None:
            done = asyncio.run_coroutine_threadsafe(node.lifecycle.destroy(["a"], ignore_missing=False), loop)
            assert done.result(5) == ["a"]

        error = await acting_while_read(node, store, destroy)
        assert isinstance(error, ChannelNotExistError)
        assert "destroyed" in error.message


async def destroy_channel(node: Node) -> None:
    await node.lifecycle.destroy(["a"], ignore_missing=False)


async def shut_down(node: Node) -> None:
    node.log.begin_shutdown()


@pytest.mark.parametrize(("end", "error"), [(destroy_channel, ChannelNotExistError), (shut_down, ShutdownError)])
async def test_a_destroyed_channel_and_a_shutdown_end_a_scan_that_waits(
    node: Node, end: Callable[[Node], Awaitable[None]], error: type[TidelogServerError]
) -> None:
    await filled(node)
    async with scanner(node, FOLLOW) as scan:
        pages = scan.pages()
        await next_page(pages)
        await end(node)
        with pytest.raises(error):
            await next_page(pages)


async def test_a_scan_to_a_tick_in_the_future_waits_for_it_without_chatter(node: Node) -> None:
    ticks = await filled(node)
    end = node.log.shared.oracle.now() + (300 << 18)
    async with scanner(node, replace(FOLLOW, end_tick=end)) as scan:
        pages = [page async for page in scan.pages()]
    assert [piece.base_tick for page in pages for piece in page.pieces] == ticks
    assert end - 1 <= pages[-1].watermark
    assert len(pages) <= 5


async def test_small_unwanted_entries_do_not_hold_the_event_loop(node: Node) -> None:
    await asyncio.gather(*[node.append("a", a_batch(b"")) for _ in range(5_000)])
    plan = replace(FOLLOW, ends_at_durable=True, message_types=frozenset([9]))
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counter = asyncio.create_task(count_turns())
    async with scanner(node, plan) as scan:
        pages = [page async for page in scan.pages()]
    counter.cancel()
    assert [page.pieces for page in pages] == [[]]
    assert turns >= 4


async def test_a_page_has_a_bounded_number_of_entries(node: Node) -> None:
    await asyncio.gather(*[node.append("a", a_batch(b"")) for _ in range(3_000)])
    async with scanner(node, replace(FOLLOW, ends_at_durable=True, max_page_bytes=1 << 22)) as scan:
        sizes = [len(page.pieces) async for page in scan.pages()]
    assert sum(sizes) == 3_000
    assert max(sizes) <= 1_024


async def test_a_closed_scan_leaves_nothing_behind(node: Node) -> None:
    await filled(node)
    _, vchannel = node.directory.find("a")
    async with scanner(node, FOLLOW) as scan:
        await next_page(scan.pages())
        assert vchannel.followers
    assert not vchannel.followers


def ranges(page: Page) -> list[tuple[int, int]]:
    return [(piece.begin, piece.end) for piece in page.pieces]


@pytest.mark.parametrize("limits", [Limits(), NO_RING], ids=["ring", "store"])
async def test_the_first_entry_of_a_scan_comes_in_two_if_it_is_large_and_no_other_does(limits: Limits) -> None:
    async with running_node(FaultyStore(), limits) as node:
        await node.create("a")
        ticks = [await node.append("a", a_batch(*[bytes(1_000)] * 1_000)) for _ in range(3)]
        async with scanner(node, FOLLOW, position=ticks[0] + 300) as scan:
            pages = scan.pages()
            first = await next_page(pages)
            [(begin, middle)] = ranges(first)
            assert begin == 300
            assert 60_000 < (middle - begin) * 1_000 <= 64 << 10
            assert not first.is_caught_up
            assert ranges(await next_page(pages))[0] == (middle, 1_000)
            rest = [await next_page(pages) for _ in range(2)]
            assert [pair for page in rest for pair in ranges(page)] == [(0, 1_000), (0, 1_000)]
            late = await node.append("a", a_batch(*[bytes(1_000)] * 1_000))
            page = rest[-1]
            while not page.pieces or page.pieces[0].base_tick != late:
                page = await next_page(pages)
            assert ranges(page) == [(0, 1_000)]


@pytest.mark.parametrize("count", [1, 2])
async def test_a_first_entry_of_few_large_messages_is_cut_between_them(node: Node, count: int) -> None:
    await node.append("a", a_batch(*[bytes(500_000)] * count))
    async with scanner(node, FOLLOW) as scan:
        pages = scan.pages()
        assert [ranges(await next_page(pages)) for _ in range(count)] == [[(at, at + 1)] for at in range(count)]


async def test_appends_are_noted_by_the_turns_of_followers(node: Node) -> None:
    turns = node.log.read_budget.turns
    busy = []
    for tick in range(1, 201):
        await node.append("a", a_batch(b"x"))
        busy.append(turns._is_busy(tick * FOLLOW_TICK_S, tick * 0.7 * FOLLOW_TICK_S))
    assert busy[-1]


async def test_a_scan_of_small_pages_keeps_few_entries_of_the_ring(node: Node) -> None:
    ticks = await filled(node, 1_100)
    source = ScanSource(0, *node.directory.find("a"), Tick(0))
    longest = 0
    async with node.vchannels.scanner([source], ONE_BY_ONE) as scan:
        pages = scan.pages()
        for tick in ticks[:1_000]:
            page = await next_page(pages)
            assert [piece.base_tick for piece in page.pieces] == [tick]
            longest = max(longest, len(source.buffer))
    # With pages of one entry a scan is up to three ahead, and one read from the ring has 16.
    assert longest <= 16


async def test_a_scan_of_large_pages_reads_the_ring_in_few_steps(node: Node) -> None:
    ticks = await filled(node, 1_100)
    reads = node.log.metrics.scan_reads.labels("ring")
    before = reads._value.get()
    async with scanner(node, FOLLOW) as scan:
        pages = scan.pages()
        found: list[int] = []
        while len(found) < len(ticks):
            found += [piece.base_tick for piece in (await next_page(pages)).pieces]
    assert found == ticks
    # 16, then more with each read as long as a page takes all of it.
    assert reads._value.get() - before <= 10
