"""A scan yields exactly the messages of its range, once each and in tick order, from the ring and from the store.

Method: random batches on several vchannels of two channels, on both log stores, with a tail ring so small that scans
switch between ring and store; each scan is compared with the sorted list of what was appended.

Promises of docs/reference/guarantees.md: G10.
"""

import asyncio
import itertools
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_server.core.limits import Limits
from tidelog_server.core.ticks import Tick
from tidelog_server.log.scan.scanner import Page, ScanParameters, ScanSource
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_testing.parts.batches import Message, a_batch, payloads_of
from tidelog_testing.parts.nodes import Node, running_node

LANES = ("a/0", "a/1", "b/0")

Row = tuple[int, str, bytes]
"""Tick, vchannel, payload."""


@dataclass(frozen=True)
class Stored:
    """An entry of the model."""

    base_tick: int
    vchannel: str
    types: tuple[int, ...]

    def rows(self) -> list[Row]:
        return [(tick, self.vchannel, str(tick - self.base_tick).encode()) for tick in self.ticks()]

    def ticks(self) -> range:
        return range(self.base_tick, self.base_tick + len(self.types))

    def passes(self, types: frozenset[int] | None) -> bool:
        """The scanner drops whole entries only; the edge filters those of mixed types."""
        return types is None or len(set(self.types)) > 1 or self.types[0] in types


@dataclass(frozen=True)
class ScanCase:
    """A scan; start and end are indexes into the list of all ticks."""

    lanes: tuple[str, ...]
    start: float
    end: float | None
    types: frozenset[int] | None
    max_page_bytes: int


appends = st.lists(
    st.tuples(st.sampled_from(LANES), st.lists(st.integers(0, 2), min_size=1, max_size=5)), min_size=1, max_size=30
)
scans = st.builds(
    ScanCase,
    lanes=st.permutations(LANES).flatmap(
        lambda lanes: st.integers(1, len(LANES)).map(lambda count: tuple(lanes[:count]))
    ),
    start=st.floats(0, 1),
    end=st.none() | st.floats(0, 1),
    types=st.none() | st.frozensets(st.integers(0, 2), max_size=2),
    max_page_bytes=st.sampled_from([1, 100, 500, 1 << 20]),
)
ring_bytes = st.sampled_from([1, 700, 2_500, 1 << 20])


async def fill(node: Node, plan: list[tuple[str, list[int]]]) -> list[Stored]:
    await node.create("a", 2)
    await node.create("b")
    submitted = []
    for vchannel, types in plan:
        batch = a_batch(*[Message(str(index).encode(), type=number) for index, number in enumerate(types)])
        submitted.append((vchannel, types, await node.submit(vchannel, batch)))
    return [Stored(await append.acknowledged(), vchannel, tuple(types)) for vchannel, types, append in submitted]


def sources_of(node: Node, lanes: tuple[str, ...], position: int) -> list[ScanSource]:
    return [ScanSource(index, *node.directory.find(lane), Tick(position)) for index, lane in enumerate(lanes)]


def rows_of(page: Page, lanes: tuple[str, ...]) -> list[Row]:
    rows: list[Row] = []
    for piece in page.pieces:
        payloads = payloads_of(piece.columns)
        assert len(payloads) == piece.count
        rows += [(piece.base_tick + i, lanes[piece.source], payloads[i]) for i in range(piece.begin, piece.end)]
    return rows


class Received:
    """The messages that a scan delivered, checked on arrival."""

    def __init__(self, lanes: tuple[str, ...]) -> None:
        self.lanes = lanes
        self.rows: list[Row] = []
        self.watermark = 0

    def take(self, page: Page) -> None:
        rows = rows_of(page, self.lanes)
        ticks = [tick for tick, _, _ in [*self.rows[-1:], *rows]]
        assert all(first < second for first, second in itertools.pairwise(ticks)), "order, or a repeat"
        assert all(self.watermark < tick for tick, _, _ in rows), "a watermark was not kept"
        assert page.watermark == 0 or self.watermark <= page.watermark
        self.watermark = max(self.watermark, page.watermark)
        self.rows += rows


def expected(stored: list[Stored], case: ScanCase, begin_tick: int, end_tick: int) -> list[Row]:
    return sorted(
        row
        for entry in stored
        if entry.vchannel in case.lanes and entry.passes(case.types)
        for row in entry.rows()
        if begin_tick <= row[0] < end_tick
    )


async def check_scans(store: LogStore, ring: int, plan: list[tuple[str, list[int]]], cases: list[ScanCase]) -> None:
    async with running_node(store, Limits(tail_ring_bytes=ring)) as node:
        stored = await fill(node, plan)
        ticks = [tick for entry in stored for tick in entry.ticks()]
        for case in cases:
            begin_tick = ticks[round(case.start * (len(ticks) - 1))]
            end_tick = None if case.end is None else ticks[round(case.end * (len(ticks) - 1))]
            scan = ScanParameters(end_tick is None, end_tick, case.types, case.max_page_bytes, 0.01)
            received = Received(case.lanes)
            last: Page | None = None
            async with node.vchannels.scanner(sources_of(node, case.lanes, begin_tick), scan) as scanner:
                async for page in scanner.pages():
                    received.take(page)
                    assert not page.pieces or page_size(page) < case.max_page_bytes
                    last = page
            assert received.rows == expected(stored, case, begin_tick, end_tick or ticks[-1] + 1)
            assert last is not None
            assert last.is_caught_up
            assert (end_tick or 0) - 1 <= last.watermark


def page_size(page: Page) -> int:
    """Return the bytes of all pieces except the last, which may exceed the bound of the page."""
    return sum(len(piece.columns) for piece in page.pieces[:-1])


async def check_following(store: LogStore, ring: int, plan: list[tuple[str, list[int]]], case: ScanCase) -> None:
    """Follow from before the first half, while the second half is appended in bursts."""
    async with running_node(store, Limits(tail_ring_bytes=ring)) as node:
        half = len(plan) // 2
        stored = await fill(node, plan[:half])
        received = Received(case.lanes)
        scan = ScanParameters(ends_at_durable=False, end_tick=None, message_types=case.types,
                        max_page_bytes=case.max_page_bytes, watermark_interval_s=0.01)  # fmt: skip
        rest = plan[half:]
        async with node.vchannels.scanner(sources_of(node, case.lanes, 0), scan) as scanner:
            async for page in scanner.pages():
                received.take(page)
                if page.is_caught_up:
                    durable = [entry for entry in stored if entry.vchannel in case.lanes and entry.passes(case.types)]
                    assert received.rows == sorted(row for entry in durable for row in entry.rows())
                    if not rest:
                        break
                for vchannel, types in rest[:3]:
                    messages = [Message(str(index).encode(), type=number) for index, number in enumerate(types)]
                    stored.append(Stored(await node.append(vchannel, a_batch(*messages)), vchannel, tuple(types)))
                rest = rest[3:]


def on_rocksdb(check: Callable[[LogStore], Coroutine[None, None, None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(open_rocksdb_log_store(Path(folder) / "store")))


@given(ring_bytes, appends, st.lists(scans, min_size=1, max_size=4))
def test_a_bounded_scan_yields_what_was_appended_in_its_range(
    ring: int, plan: list[tuple[str, list[int]]], cases: list[ScanCase]
) -> None:
    asyncio.run(check_scans(MemoryLogStore(), ring, plan, cases))


@settings(max_examples=12)
@given(ring_bytes, appends, st.lists(scans, min_size=6, max_size=8))
def test_a_bounded_scan_of_rocksdb_yields_what_was_appended_in_its_range(
    ring: int, plan: list[tuple[str, list[int]]], cases: list[ScanCase]
) -> None:
    on_rocksdb(lambda store: check_scans(store, ring, plan, cases))


@given(ring_bytes, appends, scans)
def test_a_following_scan_loses_and_repeats_nothing(
    ring: int, plan: list[tuple[str, list[int]]], case: ScanCase
) -> None:
    asyncio.run(check_following(MemoryLogStore(), ring, plan, case))


@settings(max_examples=12)
@given(ring_bytes, appends, scans)
def test_a_following_scan_of_rocksdb_loses_and_repeats_nothing(
    ring: int, plan: list[tuple[str, list[int]]], case: ScanCase
) -> None:
    on_rocksdb(lambda store: check_following(store, ring, plan, case))
