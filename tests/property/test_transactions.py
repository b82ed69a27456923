"""A transaction is in the log as a whole or not at all, once, and no scan ends within it.

Method: random appends and transactions, with retries of numbered ones and with failing conditions, on a node that
restarts and whose store outlives it, against a model that is a list of messages per vchannel.

Promises of docs/reference/guarantees.md: G21, G22, G23.
"""

import asyncio
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core.entries import TxnSpan
from tidelog_server.core.errors import LastTickMismatchError, SequenceGapError, SequenceReusedError
from tidelog_server.core.limits import Limits
from tidelog_server.core.producers import ProducerSequence
from tidelog_server.core.ticks import MAX_TICK, Tick
from tidelog_server.log.batch import UNCONDITIONAL, AppendOptions, Conditions
from tidelog_server.log.scan.scanner import ScanParameters, ScanSource
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.txn.inline import TxnAppend, TxnPart
from tidelog_testing.parts.batches import a_batch, payloads_of
from tidelog_testing.parts.lives import lives
from tidelog_testing.parts.nodes import Node, Submitted, running_node
from tidelog_testing.parts.stores import LastingStore

VCHANNELS = ("a/0", "a/1", "b/0")

Row = tuple[int, str, bytes, int]
"""Tick, vchannel, payload, transaction or 0."""


@dataclass(frozen=True)
class Append:
    """A plain append of a number of messages."""

    vchannel: str
    count: int


@dataclass(frozen=True)
class Transact:
    """A transaction: messages in each batch of each part.

    Attributes:
        offset: Difference of its sequence from the next one; None for no sequence.
        is_other_content: True if a retry has other messages.
        fails: True if its last part has a condition that does not hold.
    """

    parts: tuple[tuple[str, tuple[int, ...]], ...]
    offset: int | None
    is_other_content: bool
    fails: bool


@dataclass(frozen=True)
class Restart:
    """Stop the node and start another one on its store."""


PARTS = st.lists(st.sampled_from(VCHANNELS), min_size=1, max_size=3, unique=True).flatmap(
    lambda names: st.tuples(
        *(st.tuples(st.just(name), st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple)) for name in names)
    )
)
STEPS = st.lists(
    st.builds(Append, st.sampled_from(VCHANNELS), st.integers(1, 3))
    | st.builds(Transact, PARTS, st.none() | st.sampled_from([0, 0, 0, -1, -2, 1]), st.booleans(), st.booleans())
    | st.builds(Restart),
    max_size=25,
)


@dataclass(frozen=True)
class Done:
    """A numbered transaction that was accepted."""

    step: Transact
    content: bytes
    first_tick: int


@dataclass
class Model:
    """The messages that must be in the log, and those that must not."""

    rows: list[Row] = field(default_factory=list)
    spans: list[TxnSpan] = field(default_factory=list)
    numbered: dict[str, list[Done]] = field(default_factory=lambda: {name: [] for name in VCHANNELS})
    waiting: list[Submitted] = field(default_factory=list)

    async def append(self, node: Node, step: Append) -> None:
        payloads = [b"plain"] * step.count
        submitted = await node.submit(step.vchannel, a_batch(*payloads))
        self.waiting.append(submitted)
        tick = submitted.append.entries[0].base_tick
        self.rows += [(tick + i, step.vchannel, payload, 0) for i, payload in enumerate(payloads)]

    async def transact(self, node: Node, step: Transact) -> None:
        first = step.parts[0][0]
        done = self.numbered[first]
        sequence = None if step.offset is None else max(1, len(done) + 1 + step.offset)
        if sequence is not None and sequence <= len(done):
            await self.repeat(node, done[sequence - 1], sequence, is_other_content=step.is_other_content)
            return
        content = b"%d" % len(self.rows)
        submitted, error = await submit(node, step, content, sequence)
        if sequence is not None and sequence > len(done) + 1:
            assert error is SequenceGapError
            return
        if step.fails:
            assert error is LastTickMismatchError
            return
        assert submitted is not None
        self.waiting.append(submitted)
        tick: int = submitted.append.entries[0].base_tick
        if sequence is not None:
            done.append(Done(step, content, tick))
        total = sum(count for _, batches in step.parts for count in batches)
        self.spans.append(TxnSpan(tick, tick, tick + total - 1))
        txn_id = tick
        for vchannel, batches in step.parts:
            for count in batches:
                self.rows += [(tick + i, vchannel, content, txn_id) for i in range(count)]
                tick += count

    async def repeat(self, node: Node, done: Done, sequence: int, *, is_other_content: bool) -> None:
        submitted, error = await submit(node, done.step, done.content + b"!" * is_other_content, sequence)
        if is_other_content:
            assert error is SequenceReusedError
            return
        assert submitted is not None
        self.waiting.append(submitted)
        assert submitted.append.is_duplicate
        assert submitted.append.entries[0].base_tick == done.first_tick

    async def check(self, node: Node) -> None:
        for submitted in self.waiting:
            await submitted.acknowledged()
        self.waiting.clear()
        self.rows.sort()
        assert await scanned(node, MAX_TICK) == self.rows
        for span in self.spans:
            for end_tick in {span.first_tick, span.first_tick + 1, span.last_tick, span.last_tick + 1}:
                whole = [row for row in self.rows if row[0] < end_tick]
                cut = {s.txn_id for s in self.spans if s.first_tick < end_tick <= s.last_tick}
                assert await scanned(node, end_tick) == [row for row in whole if row[3] not in cut]
                assert await scanned(node, end_tick, cuts_transactions=True) == whole


async def submit(
    node: Node, step: Transact, content: bytes, sequence: int | None
) -> tuple[Submitted | None, type[Exception] | None]:
    """Submit a transaction; return it, or the error that refused it."""
    parts = []
    for vchannel, batches in step.parts:
        log, lane = node.directory.find(vchannel)
        fails = step.fails and vchannel == step.parts[-1][0]
        conditions = Conditions(expected_last_tick=1) if fails else UNCONDITIONAL
        parts.append(TxnPart(log, lane, [a_batch(*[content] * count) for count in batches], conditions))
    producer = None if sequence is None else ProducerSequence("p", 0, sequence)
    options = AppendOptions(producer=producer)
    submitted = Submitted(lambda settle: TxnAppend(node.log.shared, parts, options, settle))
    try:
        await submitted.submit(node.log.shared)
    except (LastTickMismatchError, SequenceGapError, SequenceReusedError) as error:
        return None, type(error)
    return submitted, None


async def scanned(node: Node, end_tick: int, *, cuts_transactions: bool = False) -> list[Row]:
    """Return the messages that a scan of all vchannels delivers."""
    sources = [ScanSource(index, *node.directory.find(name), Tick(0)) for index, name in enumerate(VCHANNELS)]
    plan = ScanParameters(
        ends_at_durable=end_tick == MAX_TICK,
        end_tick=None if end_tick == MAX_TICK else end_tick,
        message_types=None,
        max_page_bytes=100,
        watermark_interval_s=0.2,
        cuts_transactions=cuts_transactions,
    )
    rows: list[Row] = []
    async with node.vchannels.scanner(sources, plan) as scanner:
        async for page in scanner.pages():
            for piece in page.pieces:
                found = payloads_of(piece.columns)[piece.begin : piece.end]
                base_tick = piece.base_tick + piece.begin
                rows += [(base_tick + i, VCHANNELS[piece.source], p, piece.txn_id) for i, p in enumerate(found)]
    return rows


async def check_steps(steps: list[Append | Transact | Restart], ring_bytes: int) -> None:
    store, metadata, model = LastingStore(), MemoryMetadataStore(), Model()
    limits = Limits(tail_ring_bytes=ring_bytes)
    for number, life in enumerate(lives(steps, Restart)):
        async with running_node(store, limits, metadata=metadata) as node:
            if number == 0:
                await node.create("a", 2)
                await node.create("b")
            for step in life:
                if isinstance(step, Append):
                    await model.append(node, step)
                elif isinstance(step, Transact):
                    await model.transact(node, step)
            await model.check(node)


@given(STEPS, st.sampled_from([1, 1_000, 1 << 20]))
def test_transactions_are_there_as_a_whole_or_not_at_all(
    steps: list[Append | Transact | Restart], ring_bytes: int
) -> None:
    asyncio.run(check_steps(steps, ring_bytes))
