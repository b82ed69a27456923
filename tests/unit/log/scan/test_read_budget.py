"""Memory for unread responses is bounded, and a reader that does not read never starves another one.

Method: scans reduced to their memory; a scan that does not read is one that never releases memory.
"""

import asyncio
from collections import Counter
from time import thread_time
from typing import cast

import pytest

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import MIB
from tidelog_server.log.scan import read_budget
from tidelog_server.log.scan.follow_turns import (
    _CROWD_STEP,
    _STEP,
    FOLLOW_TICK_S,
    MIN_CROWD_TURNS_PER_TICK,
    MIN_FOLLOW_TURNS_PER_TICK,
    FollowTurns,
    _Pace,
)
from tidelog_server.log.scan.read_budget import PAGES_AHEAD, SMALL_PAGE_BYTES, ReadBudget, ReadMemory

TOTAL = 256 * MIB
PAGE = 1 * MIB
COPIES = 3


def neglected(budget: ReadBudget, reader: str, page_bytes: int = PAGE, scans: int = 1_000) -> list[ReadMemory]:
    """Open scans that take pages as long as they get any, and never release them."""
    opened = [budget.memory(reader) for _ in range(scans)]
    for memory in opened:
        while memory.try_take(page_bytes):
            pass
    return opened


def test_one_reader_has_at_most_a_third() -> None:
    budget = ReadBudget(TOTAL)
    neglected(budget, "a")
    assert TOTAL // 4 < budget.used_bytes <= TOTAL // 3


@pytest.mark.parametrize("hostile", [1, 5, 20])
def test_another_reader_always_finds_memory_for_a_page(hostile: int) -> None:
    budget = ReadBudget(TOTAL)
    for number in range(hostile):
        neglected(budget, f"hostile {number}")
    assert budget.used_bytes <= TOTAL + hostile * COPIES * PAGE
    good = budget.memory("good")
    for _ in range(100):
        assert good.try_take(PAGE)
        good.give_back(PAGE)


def test_pages_are_read_ahead_with_the_copies_of_one() -> None:
    budget = ReadBudget(TOTAL)
    memory = budget.memory("a")
    page_bytes = memory.page_bytes()
    for pages in range(1, 1 + PAGES_AHEAD + 1):
        assert memory.try_take_ahead(page_bytes)
        assert budget.used_bytes == (pages + COPIES - 1) * page_bytes
    assert not memory.try_take_ahead(page_bytes)
    # The largest page that is held determines the copies.
    memory.give_back(page_bytes)
    assert memory.try_take_ahead(page_bytes // 2)
    assert budget.used_bytes == (PAGES_AHEAD + COPIES - 1) * page_bytes + page_bytes // 2
    for size_bytes in (page_bytes, page_bytes, page_bytes // 2):
        memory.give_back(size_bytes)
    assert (budget.used_bytes, memory.holds_nothing) == (0, True)


@pytest.mark.parametrize("scans", [1, 10, 1_000])
def test_scans_that_read_ahead_have_at_most_a_third(scans: int) -> None:
    budget = ReadBudget(TOTAL)
    for memory in [budget.memory("a") for _ in range(scans)]:
        while memory.try_take_ahead(min(PAGE, memory.page_bytes())):
            pass
    assert 0 < budget.used_bytes <= TOTAL // 3 + scans * SMALL_PAGE_BYTES


def test_a_small_page_is_never_refused() -> None:
    budget = ReadBudget(TOTAL)
    neglected(budget, "a")
    assert all(budget.memory("a").try_take(SMALL_PAGE_BYTES // COPIES) for _ in range(100))


def test_the_first_page_of_a_reader_may_be_of_any_size() -> None:
    budget = ReadBudget(TOTAL)
    assert budget.memory("a").try_take(2 * TOTAL)
    assert not budget.memory("a").try_take(PAGE)
    assert budget.memory("b").try_take(PAGE)


async def test_scans_wait_in_order_and_go_on_when_memory_is_given_back() -> None:
    budget = ReadBudget(TOTAL)
    held = [memory for memory in neglected(budget, "a") if not memory.holds_nothing]
    waiting = [budget.memory("a") for _ in range(3)]
    tasks = [asyncio.create_task(memory.take(PAGE)) for memory in waiting]
    await asyncio.sleep(0)
    assert budget.waiting == 3
    for memory in held:
        memory.close()
    await asyncio.gather(*tasks)
    assert budget.waiting == 0
    assert budget.used_bytes == 3 * COPIES * PAGE
    for memory in waiting:
        memory.close()
    assert budget.used_bytes == 0


async def test_a_wait_that_is_cancelled_takes_nothing() -> None:
    budget = ReadBudget(TOTAL)
    held = neglected(budget, "a")
    used = budget.used_bytes
    waiting = budget.memory("a")
    task = asyncio.create_task(waiting.take(PAGE))
    await asyncio.sleep(0)
    task.cancel()
    # Memory is released at this very moment.
    for memory in held:
        memory.close()
    await asyncio.wait((task,))
    assert used > 0
    # Before the scan is closed, which releases whatever it holds.
    assert (budget.used_bytes, budget.waiting) == (0, 0)
    waiting.close()


async def test_a_scan_without_memory_for_too_long_is_ended_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_budget, "READ_MEMORY_WITHIN_S", 0.05)
    budget = ReadBudget(TOTAL)
    neglected(budget, "a")
    async with asyncio.timeout(5):
        with pytest.raises(RateLimitRejectedError, match="responses that it has not read") as refused:
            await budget.memory("a").take(PAGE)
    assert refused.value.values["limit"] == "unread_bytes"
    assert budget.waiting == 0


async def test_turns_of_followers_alternate_between_readers() -> None:
    turns, order = FollowTurns(), []

    async def follow(reader: str) -> None:
        await turns.next(reader)
        order.append(reader)

    crowd = [asyncio.create_task(follow("crowd")) for _ in range(500)]
    await asyncio.sleep(0)
    alone = asyncio.create_task(follow("alone"))
    await asyncio.gather(*crowd, alone)
    # Behind those that had their turn before it asked, and at most the turns of two ticks of the crowd.
    assert order.index("alone") <= 32
    assert order.count("crowd") == 500


async def test_while_followers_take_turns_the_event_loop_serves_others() -> None:
    turns = FollowTurns()

    async def follow() -> None:
        for _ in range(5):
            await turns.next("crowd")
            end_s = thread_time() + 0.001
            while thread_time() < end_s:
                pass

    crowd = [asyncio.create_task(follow()) for _ in range(500)]
    # CPU time of this thread: what other processes take does not count.
    longest_s, last_s = 0.0, thread_time()
    while not all(task.done() for task in crowd):
        await asyncio.sleep(0)
        now_s = thread_time()
        longest_s, last_s = max(longest_s, now_s - last_s), now_s
    await asyncio.gather(*crowd)
    # All at once would take half a second.
    assert longest_s < 0.25


class LateLoop:
    """The clock of an event loop whose timers always come too late."""

    now_s = 0.0

    def time(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def call_at(self, *_: object) -> None:
        """Leave the next tick to the test."""


async def test_on_a_late_event_loop_a_crowd_leaves_other_readers_their_turns() -> None:
    turns, granted = FollowTurns(), Counter[str]()
    late = cast("asyncio.AbstractEventLoop", LateLoop())

    async def follow(reader: str) -> None:
        await turns.next(reader)
        granted[reader] += 1

    turns._due_s = 0.0  # The test makes the ticks, not the running event loop.
    tasks = [asyncio.create_task(follow("crowd")) for _ in range(2_000)]
    await asyncio.sleep(0)
    for _ in range(400):
        tasks.append(asyncio.create_task(follow("alone")))
        await asyncio.sleep(0)
        turns._tick(late)
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert granted["alone"] >= 390
    assert 90 <= granted["crowd"] <= 150


async def test_a_call_does_not_wait_behind_the_scans_of_its_caller() -> None:
    turns = FollowTurns()
    late = cast("asyncio.AbstractEventLoop", LateLoop())

    async def follow() -> None:
        while True:
            await turns.next("caller")

    async def describe() -> None:
        for _ in range(75):
            await turns.next("caller", is_call=True)

    turns._due_s = 0.0  # The test makes the ticks, not the running event loop.
    crowd = [asyncio.create_task(follow()) for _ in range(256)]
    await asyncio.sleep(0)
    call, ticks = asyncio.create_task(describe()), 0
    await asyncio.sleep(0)
    while not call.done():
        turns._tick(late)
        ticks += 1
        await asyncio.sleep(0)
    for task in crowd:
        task.cancel()
    await asyncio.wait(crowd)
    # A tick gives it one turn. Behind the crowd, which has a turn in four ticks, it waited for 75,000.
    assert ticks <= 80


def test_the_pace_of_a_crowd_falls_lower_and_returns_more_slowly() -> None:
    one, crowd = _Pace(MIN_FOLLOW_TURNS_PER_TICK, _STEP), _Pace(MIN_CROWD_TURNS_PER_TICK, _CROWD_STEP)

    def turns_of(pace: _Pace, ticks: int, *, is_late: bool) -> int:
        taken = 0
        for _ in range(ticks):
            pace.adapt(is_late=is_late)
            pace.refill()
            while pace.left >= 1:
                pace.left -= 1
                taken += 1
        return taken

    assert [turns_of(pace, 100, is_late=True) for pace in (one, crowd)] == [105, 32]
    assert [turns_of(pace, 8, is_late=False) for pace in (one, crowd)] == [43, 3]
    assert [turns_of(pace, 500, is_late=False) for pace in (one, crowd)] == [4_000, 3_104]
    crowd.left -= 80.0
    assert turns_of(crowd, 10, is_late=False) == 0
    assert turns_of(crowd, 1, is_late=False) == 8


def test_the_event_loop_is_busy_while_its_thread_uses_nearly_all_the_time() -> None:
    turns = FollowTurns()
    now_s = used_s = 100.0

    def busy_ticks(share: float) -> int:
        nonlocal now_s, used_s
        busy = 0
        for _ in range(200):
            now_s, used_s = now_s + FOLLOW_TICK_S, used_s + share * FOLLOW_TICK_S
            busy += turns._is_busy(now_s, used_s)
        return busy

    assert 100 < busy_ticks(1.0) < 200
    assert busy_ticks(0.8) < 100
    assert busy_ticks(0.8) == 0
    # Without followers no tick is measured; the first one afterwards covers the time in between.
    now_s, used_s = now_s + 10.0, used_s + 1.0
    assert busy_ticks(0.5) == 0


@pytest.mark.parametrize(
    ("share", "ticks_per_commit", "is_busy"),
    [
        (0.45, 1, False), (0.55, 1, True), (0.85, 1, True),
        # A commit in a quarter of the ticks counts as many.
        (0.45, 4, False), (0.6, 4, True),
        # In an eighth: the limit is half of the way between 0.9 and 0.5.
        (0.6, 8, False), (0.8, 8, True),
        (0.85, 0, False), (0.95, 0, True),
    ],
)  # fmt: skip
def test_beside_appends_the_event_loop_is_busy_earlier(share: float, ticks_per_commit: int, *, is_busy: bool) -> None:
    turns = FollowTurns()
    settled = set()
    for tick in range(1, 401):
        if ticks_per_commit and tick % ticks_per_commit == 0:
            turns.note_commit()
        found = turns._is_busy(tick * FOLLOW_TICK_S, tick * share * FOLLOW_TICK_S)
        # The first half is the time that the averages need.
        if tick > 200:
            settled.add(found)
    assert settled == {is_busy}


def test_after_the_last_append_crowds_have_the_whole_time_again() -> None:
    turns = FollowTurns()
    found = []
    for tick in range(1, 401):
        if tick <= 200:
            turns.note_commit()
        found.append(turns._is_busy(tick * FOLLOW_TICK_S, tick * 0.8 * FOLLOW_TICK_S))
    # Without commits their share is a quarter after 34 ticks; the limit passes 0.8 at a sixteenth, after 68.
    assert found[199]
    assert all(found[200:260])
    assert not any(found[275:])
