"""A staged transaction is in the log as a whole once it is committed, and otherwise not at all.

Method: random begins, batches, commits, rollbacks, pauses, plain appends and restarts on a node whose store outlives
it, against a model of each transaction's state and each vchannel's messages. Batches and commits are retried, with and
without errors, as by a client that lost responses.

Promises of docs/reference/guarantees.md: G24, G25.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from property.test_transactions import scanned
from tidelog_server.core.callers import Caller
from tidelog_server.core.errors import (
    InvalidTransactionStateError,
    LastTickMismatchError,
    TidelogServerError,
    TransactionExpiredError,
    TransactionIncompleteError,
    TransactionNotExistError,
    TxnSequenceGapError,
    TxnSequenceReusedError,
    VchannelNotInTransactionError,
)
from tidelog_server.core.limits import Limits
from tidelog_server.core.transactions import TxnOutcome
from tidelog_server.log.batch import Conditions
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.txn.commit import CommitTerms
from tidelog_server.txn.staged import StagingAppend
from tidelog_server.txn.table import BatchOfTxn
from tidelog_testing.parts.batches import a_batch, payloads_of
from tidelog_testing.parts.lives import lives
from tidelog_testing.parts.nodes import Node, Submitted, running_node
from tidelog_testing.parts.stores import LastingStore

VCHANNELS: Final = ("a/0", "a/1", "b/0")
SLOTS: Final = st.integers(0, 1)
KEEPALIVE_S: Final = 100.0
CLIENT: Final = Caller("", "client")
_Result = TypeVar("_Result")


@pytest.fixture(autouse=True, scope="module")
def leaps_are_no_pauses() -> Iterator[None]:
    """Make a leap of the clock count as elapsed time, not as a pause."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tidelog_server.txn.staged._MAX_PAUSE_S", inf)
        yield


class LeapingClock:
    """The machine's clocks; the monotonic one can leap forward."""

    def __init__(self) -> None:
        self.leapt_s = 0.0

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic() + self.leapt_s


@dataclass(frozen=True)
class Begin:
    """Begin a transaction in a slot, for some vchannels only or for any."""

    slot: int
    vchannels: tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """Stage a batch.

    Attributes:
        offset: Difference of its sequence from the next one; None for no sequence.
        is_other_content: True if a retry has other messages.
    """

    slot: int
    vchannel: str
    count: int
    offset: int | None
    is_other_content: bool


@dataclass(frozen=True)
class Commit:
    """Commit.

    Attributes:
        missing: Difference of the client's expected number of batches from the actual one; None to expect no number.
        fails: True if a condition does not hold.
    """

    slot: int
    missing: int | None
    fails: bool


@dataclass(frozen=True)
class RollBack:
    """Roll back."""

    slot: int


@dataclass(frozen=True)
class KeepAlive:
    """Send a keepalive."""

    slot: int


@dataclass(frozen=True)
class Leap:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True)
class Append:
    """Append outside any transaction."""

    vchannel: str
    count: int


@dataclass(frozen=True)
class Restart:
    """Stop the node and start another one on its store."""


Step = Begin | Stage | Commit | RollBack | KeepAlive | Leap | Append | Restart
OFFSETS = st.none() | st.sampled_from([0, 0, 0, -1, -2, 1])
STEPS = st.lists(
    st.builds(Begin, SLOTS, st.sampled_from([(), (), ("a/0", "b/0")]))
    | st.builds(Stage, SLOTS, st.sampled_from(VCHANNELS), st.integers(1, 3), OFFSETS, st.booleans())
    | st.builds(Stage, SLOTS, st.sampled_from(VCHANNELS), st.integers(1, 3), st.just(0), st.just(False))
    | st.builds(Stage, SLOTS, st.just("b/0"), st.integers(1, 3), st.sampled_from([0, -1, -2]), st.booleans())
    | st.builds(Commit, SLOTS, st.none() | st.sampled_from([0, 0, 1, -1]), st.booleans())
    | st.builds(RollBack, SLOTS)
    | st.builds(KeepAlive, SLOTS)
    | st.builds(Leap, st.sampled_from([KEEPALIVE_S * 0.6, KEEPALIVE_S * 1.1]))
    | st.builds(Append, st.sampled_from(VCHANNELS), st.integers(1, 3))
    | st.builds(Restart),
    min_size=20,
    max_size=60,
)


@dataclass
class Txn:
    """A transaction as the model knows it.

    Attributes:
        state: ``open``, ``committed``, ``rolled_back`` or ``expired``.
        lanes: Contents and counts of batches by vchannel, in the order in which the vchannels were added.
    """

    txn_id: int
    bound: tuple[str, ...]
    expires_s: float
    state: str = "open"
    lanes: dict[str, list[tuple[bytes, int]]] = field(default_factory=dict)
    outcome: TxnOutcome | None = None

    @property
    def batches(self) -> int:
        return sum(map(len, self.lanes.values()))


class Model:
    """The expected content of the log, and the expected result of each call."""

    def __init__(self, clock: LeapingClock) -> None:
        self.clock = clock
        self.slots: dict[int, Txn] = {}
        self.rows: dict[str, list[tuple[int, bytes, int]]] = {name: [] for name in VCHANNELS}
        # Of all committed transactions, including those that are in no slot any more.
        self.outcomes: dict[int, TxnOutcome] = {}

    async def take(self, node: Node, step: Step) -> None:
        """Apply a step to the node and to the model."""
        match step:
            case Begin():
                await self.begin(node, step)
            case Append():
                await self.append(node, step)
            case Leap():
                self.clock.leapt_s += step.seconds
            case Stage() | Commit() | RollBack() | KeepAlive():
                txn = self.slots.get(step.slot)
                if txn is not None:
                    self.expire(txn)
                    await self.call(node, step, txn)
            case _:
                raise AssertionError

    def expire(self, txn: Txn) -> None:
        if txn.state == "open" and txn.expires_s <= self.clock.monotonic_s():
            txn.state = "expired"

    def restarted(self) -> None:
        """Apply a restart: open transactions end, and rolled back ones are forgotten."""
        for txn in self.slots.values():
            if txn.state != "committed":
                txn.state = "expired"

    async def begin(self, node: Node, step: Begin) -> None:
        targets = [node.directory.find(name) for name in step.vchannels]
        session = await node.transactions.begin(targets, round(KEEPALIVE_S * 1e6), CLIENT)
        assert all(session.txn_id > txn.txn_id for txn in self.slots.values())
        # The vchannels that it was begun for are part of it already.
        lanes: dict[str, list[tuple[bytes, int]]] = {name: [] for name in step.vchannels}
        expires_s = self.clock.monotonic_s() + KEEPALIVE_S
        self.slots[step.slot] = Txn(session.txn_id, step.vchannels, expires_s, lanes=lanes)

    async def append(self, node: Node, step: Append) -> None:
        tick = await node.append(step.vchannel, a_batch(*[b"plain"] * step.count))
        self.rows[step.vchannel] += [(tick + i, b"plain", 0) for i in range(step.count)]

    async def call(self, node: Node, step: Stage | Commit | RollBack | KeepAlive, txn: Txn) -> None:
        transactions = node.transactions
        match step:
            case Stage():
                await self.stage(node, step, txn)
            case Commit():
                await self.commit(node, step, txn)
            case RollBack():
                wanted = None if txn.state == "rolled_back" else over(txn)
                check(lambda: transactions.roll_back(txn.txn_id, CLIENT), wanted)
                if txn.state == "open":
                    txn.state = "rolled_back"
            case KeepAlive():
                check(lambda: transactions.keep_alive(txn.txn_id, CLIENT), over(txn))
                txn.expires_s = self.clock.monotonic_s() + KEEPALIVE_S

    async def stage(self, node: Node, step: Stage, txn: Txn) -> None:
        lane = txn.lanes.get(step.vchannel, [])
        sequence = 0 if step.offset is None else max(1, len(lane) + 1 + step.offset)
        is_new = sequence in {0, len(lane) + 1}
        content, count = b"%d-%d" % (txn.txn_id, txn.batches), step.count
        wanted = over(txn)
        if not is_new and sequence <= len(lane):
            content, count = lane[sequence - 1]
            if step.is_other_content:
                content += b"!"
                wanted = wanted or TxnSequenceReusedError
        elif not is_new:
            wanted = wanted or TxnSequenceGapError
        elif txn.bound and step.vchannel not in txn.bound:
            wanted = wanted or VchannelNotInTransactionError
        place, target = BatchOfTxn(txn.txn_id, CLIENT, sequence), node.directory.find(step.vchannel)
        batch = a_batch(*[content] * count)
        submitted = Submitted(lambda settle: StagingAppend(node.transactions, place, target, batch, settle))
        await check_async(submitted.submit(node.log.shared), wanted)
        if txn.state == "open":
            txn.expires_s = self.clock.monotonic_s() + KEEPALIVE_S
        if wanted is None:
            append = await submitted.outcome()
            assert append.failure is None
            assert append.is_duplicate == (not is_new)
            assert append.staged[0].sequence == (sequence or len(lane) + 1)
            if is_new:
                txn.lanes.setdefault(step.vchannel, []).append((content, count))

    async def commit(self, node: Node, step: Commit, txn: Txn) -> None:
        conditions = {}
        if step.fails and txn.lanes:
            vchannel_id = node.directory.find(next(iter(txn.lanes)))[1].vchannel_id
            conditions[vchannel_id] = Conditions(expected_last_tick=1)
        expected = None if step.missing is None else max(0, txn.batches + step.missing)
        wanted = None if txn.state == "committed" else over(txn)
        if txn.state == "open":
            if expected not in {None, txn.batches}:
                wanted = TransactionIncompleteError
            elif conditions:
                wanted = LastTickMismatchError
        terms = CommitTerms(True, 0, conditions, expected)
        done = await check_async(node.transactions.commit(txn.txn_id, CLIENT, lambda: terms, 5.0), wanted)
        outcome = done and done.outcome
        if txn.state == "open":
            txn.expires_s = self.clock.monotonic_s() + KEEPALIVE_S
        if txn.state == "committed":
            assert (outcome, done and done.is_repeated) == (txn.outcome, True)
        elif wanted is None:
            assert outcome is not None
            self.committed(txn, outcome)

    def committed(self, txn: Txn, outcome: TxnOutcome) -> None:
        txn.state, txn.outcome = "committed", outcome
        self.outcomes[txn.txn_id] = outcome
        tick = outcome.first_tick
        assert all(tick > row[0] for rows in self.rows.values() for row in rows)
        for vchannel, lane in txn.lanes.items():
            for content, count in lane:
                self.rows[vchannel] += [(tick + i, content, txn.txn_id) for i in range(count)]
                tick += count
        assert outcome.last_tick == tick - 1


def over(txn: Txn) -> type[TidelogServerError] | None:
    """Return the result of every call on a transaction that is not open."""
    match txn.state:
        case "open":
            return None
        case "expired":
            return TransactionExpiredError
        case _:
            return InvalidTransactionStateError


def check(call: Callable[[], object], wanted: type[TidelogServerError] | None) -> None:
    """Call, and expect the error ``wanted``, or success if it is None."""
    refusal: TidelogServerError | None = None
    try:
        call()
    except TidelogServerError as error:
        refusal = error
    assert (refusal and type(refusal)) is wanted, (refusal, wanted)


async def check_async(call: Coroutine[Any, Any, _Result], wanted: type[TidelogServerError] | None) -> _Result | None:
    """As ``check``; return what the call returned."""
    outcome: _Result | None = None
    refusal: TidelogServerError | None = None
    try:
        outcome = await call
    except TidelogServerError as error:
        refusal = error
    assert (refusal and type(refusal)) is wanted, (refusal, wanted)
    return outcome


async def check_log(node: Node, model: Model) -> None:
    """Check that the log equals the model, and that staged batches belong to open transactions."""
    store = node.log.store
    for name, rows in model.rows.items():
        vchannel_id = node.directory.find(name)[1].vchannel_id
        found = []
        for entry in store.read(vchannel_id, 0, 1 << 62, 1 << 30):
            header = entry.header
            txn_id = 0 if header.txn is None else header.txn.txn_id
            found += [(header.base_tick + i, p, txn_id) for i, p in enumerate(payloads_of(entry.columns))]
        assert found == rows
    await check_scans(node, model)
    for txn in model.slots.values():
        model.expire(txn)
    listed = node.transactions.list()
    open_ids = {txn.txn_id for txn in model.slots.values() if txn.state == "open"}
    # Former transactions of a slot may be open as well.
    assert open_ids <= {each.txn_id for each in listed}
    while not {txn_id for _, txn_id in store.staged()} <= {each.txn_id for each in listed}:
        await asyncio.sleep(0)
    never = await node.log.shared.oracle.allocate(1)
    check(lambda: node.transactions.keep_alive(never, CLIENT), TransactionNotExistError)
    check(lambda: node.transactions.keep_alive(never + 1_000_000_000, CLIENT), TransactionNotExistError)


async def check_scans(node: Node, model: Model) -> None:
    """Check that no scan ends within a transaction, except with ``inside_tick``."""
    rows = sorted((row[0], name, row[1], row[2]) for name, several in model.rows.items() for row in several)
    outcomes = model.outcomes
    for outcome in list(outcomes.values())[-3:]:
        for end_tick in {outcome.first_tick, outcome.first_tick + 1, outcome.last_tick, outcome.last_tick + 1}:
            before = [row for row in rows if row[0] < end_tick]
            cut = {txn_id for txn_id, each in outcomes.items() if each.first_tick < end_tick <= each.last_tick}
            assert await scanned(node, end_tick) == [row for row in before if row[3] not in cut]
            assert await scanned(node, end_tick, cuts_transactions=True) == before


async def play(steps: list[Step], ring_bytes: int) -> None:
    store, metadata = LastingStore(), MemoryMetadataStore()
    limits = Limits(tail_ring_bytes=ring_bytes)
    model = Model(LeapingClock())
    first: list[Step] = [*(Begin(i, ()) for i in (0, 1)), *(Stage(i, "b/0", 2, 0, False) for i in (0, 1))]
    for number, life in enumerate(lives([*first, *steps], Restart)):
        async with running_node(store, limits, metadata=metadata, clock=model.clock) as node:
            if number == 0:
                await node.create("a", 2)
                await node.create("b")
            else:
                model.restarted()
                assert store.staged() == []
            for step in life:
                await model.take(node, step)
            await check_log(node, model)
            assert not node.task_failures


@given(STEPS, st.sampled_from([1, 1_000, 1 << 20]))
def test_a_staged_transaction_is_there_as_a_whole_or_not_at_all(steps: list[Step], ring_bytes: int) -> None:
    asyncio.run(play(steps, ring_bytes))


@pytest.mark.parametrize("first", ["a/0", "b/0"])
def test_a_bound_transaction_has_its_vchannels_in_the_order_of_its_begin(first: str) -> None:
    second = "b/0" if first == "a/0" else "a/0"
    staged: list[Step] = [Stage(0, name, 1, 0, False) for name in (first, second)]
    asyncio.run(play([Begin(0, ("a/0", "b/0")), *staged, Commit(0, None, False)], ring_bytes=1))


@pytest.mark.parametrize(
    "refused", [Commit(0, 1, False), Commit(0, None, True), Stage(0, "b/0", 1, 1, False), Stage(0, "b/0", 1, -1, True)]
)
def test_a_refused_request_of_its_client_extends_a_transaction(refused: Step) -> None:
    steps: list[Step] = [Leap(KEEPALIVE_S * 0.6), refused, Leap(KEEPALIVE_S * 0.6), Commit(0, 0, False)]
    asyncio.run(play(steps, ring_bytes=1))
