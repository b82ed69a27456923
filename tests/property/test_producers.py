"""A producer's batches are in the log once, in order, for any number of retries and any epochs.

Method: random appends under sequences that are correct, repeated, too high or reused, on a node that restarts and whose
store outlives it, against a model that is a list of batches for each producer.

Promises of docs/reference/guarantees.md: G18, G19, G20.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.core import producers as core_producers
from tidelog_server.core.callers import NO_TENANT, Tenant, tenant_of
from tidelog_server.core.errors import (
    Effect,
    ProducerFencedError,
    SequenceForgottenError,
    SequenceGapError,
    SequenceReusedError,
    StorageFailedError,
    TidelogServerError,
)
from tidelog_server.core.errors.forgotten import ProducerForgottenError
from tidelog_server.core.limits import MAX_REPEAT_AGE_MS
from tidelog_server.core.producers import ProducerKey, ProducerSequence, ProducerWindow, Result
from tidelog_server.core.ticks import compose
from tidelog_server.log import producers as log_producers
from tidelog_server.log.batch import Conditions
from tidelog_server.log.producers import FORGOTTEN_NAMED, ProducerTable
from tidelog_server.log.rows import WINDOWS
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.storage.log_store import WriteMark
from tidelog_testing.parts.batches import a_batch
from tidelog_testing.parts.fixtures import node_with
from tidelog_testing.parts.lives import lives
from tidelog_testing.parts.nodes import Node, Submitted, running_node
from tidelog_testing.parts.stores import FaultyStore, LastingStore

store, node = node_with(a=1)
WINDOW = 4
VCHANNELS = ("a/0", "a/1")
PRODUCERS = ("p", "q")


@dataclass(frozen=True)
class Append:
    """A batch; ``offset`` is its sequence minus the next one, ``epoch_offset`` its epoch minus the newest one."""

    who: tuple[str, str]
    offset: int
    epoch_offset: int
    is_other_content: bool


@dataclass(frozen=True)
class Open:
    """Open a producer."""

    who: tuple[str, str]


@dataclass(frozen=True)
class Restart:
    """Stop the node and start another one on its store."""


WHO = st.tuples(st.sampled_from(VCHANNELS), st.sampled_from(PRODUCERS))
OFFSETS = st.sampled_from([0, 0, 0, 0, 0, 1, -1, -2, -3, -4, -5, -6])
STEPS = st.lists(
    st.builds(Append, WHO, OFFSETS, st.sampled_from([0, 0, 0, 0, 1, -1]), st.booleans())
    | st.builds(Open, WHO)
    | st.builds(Restart),
    max_size=40,
)


@dataclass
class Producer:
    """A producer of the model: the first tick of each batch, by sequence from 1."""

    epoch: int = 0
    ticks: list[int] = field(default_factory=list)


class Model:
    def __init__(self) -> None:
        self.producers = {(vchannel, name): Producer() for vchannel in VCHANNELS for name in PRODUCERS}
        self.waiting: list[tuple[Submitted, int]] = []

    def expected(self, step: Append, sequence: int, epoch: int) -> type[TidelogServerError] | int | None:
        """Return the refusal, or the first tick of a repeated batch, or None for a new one."""
        producer = self.producers[step.who]
        last = len(producer.ticks)
        if epoch != producer.epoch:
            return ProducerFencedError
        if sequence == last + 1:
            return None
        if last + 1 < sequence:
            return SequenceGapError
        if sequence <= last - WINDOW:
            return SequenceForgottenError
        return SequenceReusedError if step.is_other_content else producer.ticks[sequence - 1]

    async def append(self, node: Node, step: Append) -> None:
        producer = self.producers[step.who]
        sequence = max(1, len(producer.ticks) + 1 + step.offset)
        epoch = max(0, producer.epoch + step.epoch_offset)
        expected = self.expected(step, sequence, epoch)
        content = b"%d" % sequence + (b"!" if step.is_other_content and expected is not None else b"")
        vchannel, name = step.who
        found: type[TidelogServerError] | int | None = None
        try:
            submitted = await node.submit(vchannel, a_batch(content), producer=ProducerSequence(name, epoch, sequence))
        except (ProducerFencedError, SequenceGapError, SequenceReusedError, SequenceForgottenError) as error:
            found = type(error)
        else:
            tick = submitted.append.entries[0].base_tick
            self.waiting.append((submitted, tick))
            if submitted.append.is_duplicate:
                found = tick
            else:
                producer.ticks.append(tick)
        assert found == expected

    async def open(self, node: Node, step: Open) -> None:
        producer = self.producers[step.who]
        [window] = await node.vchannels.open_producer(*step.who)
        producer.epoch += 1
        assert (window.epoch, window.last_sequence) == (producer.epoch, len(producer.ticks))
        assert window.last_tick == (producer.ticks[-1] if producer.ticks else 0)

    async def check(self, node: Node) -> None:
        """Check that every acknowledged batch is in the log, once and in order, and that the store's windows agree."""
        for submitted, tick in self.waiting:
            assert await submitted.acknowledged() == tick
        self.waiting.clear()
        windows = node.log.store.rows(WINDOWS)
        for vchannel in VCHANNELS:
            _, lane = node.directory.find(vchannel)
            entries = node.log.store.read(lane.vchannel_id, 0, 1 << 63, 1 << 30)
            ticks = [
                tick for (where, _), producer in self.producers.items() if where == vchannel for tick in producer.ticks
            ]
            assert [entry.header.base_tick for entry in entries] == sorted(ticks)
            for name in PRODUCERS:
                producer = self.producers[vchannel, name]
                window = windows.get((lane.vchannel_id, name), ProducerWindow(0))
                assert (window.epoch, window.last_sequence) == (producer.epoch, len(producer.ticks))


async def check_steps(steps: list[Append | Open | Restart]) -> None:
    store, metadata, model = LastingStore(), MemoryMetadataStore(), Model()
    for number, life in enumerate(lives(steps, Restart)):
        async with running_node(store, metadata=metadata) as node:
            if number == 0:
                await node.create("a", 2)
            for step in life:
                if isinstance(step, Append):
                    await model.append(node, step)
                elif isinstance(step, Open):
                    await model.open(node, step)
            await model.check(node)


@given(STEPS)
def test_each_batch_is_in_the_log_once_and_in_order(steps: list[Append | Open | Restart]) -> None:
    with patch.object(core_producers, "MAX_WINDOW_BATCHES", WINDOW):
        asyncio.run(check_steps(steps))


def a_window(tick: int, tenant: Tenant = NO_TENANT) -> ProducerWindow:
    return ProducerWindow(0).extended(Result(tick, 1, 0, is_synced=True), tenant)


def without_marks(node: Node) -> dict[ProducerKey, ProducerWindow]:
    """Return the stored windows of producers, without those of the server itself."""
    windows = node.log.store.rows(WINDOWS)
    return {key: window for key, window in windows.items() if not key[1].startswith("_")}


def test_the_producer_that_was_unused_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_producers, "MAX_PRODUCERS", 3)
    # As after a restart: in order of each producer's last tick.
    table = ProducerTable({(1, "c"): a_window(30), (1, "a"): a_window(10), (2, "b"): a_window(20)})
    assert table.put((1, "a"), a_window(40)) == (WINDOWS.row((1, "a"), a_window(40)),)
    # A retry counts as a use.
    table.in_flight((2, "b"), 1)

    changes = table.put((1, "d"), a_window(50))

    assert changes == tuple(
        WINDOWS.changes({(1, "d"): a_window(50), (1, "c"): None, (1, FORGOTTEN_NAMED): ProducerWindow(0, 30)})
    )
    assert table.window((1, "c")) is None
    assert [table.window(key) is not None for key in ((1, "a"), (2, "b"), (1, "d"))] == [True, True, True]


def test_one_that_was_opened_outlives_those_that_were_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_producers, "MAX_PRODUCERS", 3)
    table = ProducerTable({(1, "loader"): ProducerWindow(0).opened()})
    for number in range(10):
        table.put((1, f"p{number}"), a_window(number))
    assert table.window((1, "loader")) == ProducerWindow(1)
    for number in range(3):
        table.put((1, f"o{number}"), ProducerWindow(1))
    assert table.window((1, "loader")) is None
    assert len(table) == 3


def test_a_principal_with_many_producers_evicts_its_own_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_producers, "MAX_PRODUCERS", 10)
    hoarder, other = tenant_of("jwt:hoarder"), tenant_of("jwt:other")
    evicted = 0

    def count(number: int) -> None:
        nonlocal evicted
        evicted += number

    table = ProducerTable({}, count)
    for number in range(4):
        table.put((2, f"b{number}"), a_window(number, other))
    for number in range(100):
        table.put((1, f"a{number}"), ProducerWindow(0).opened(hoarder))
    assert all(table.window((2, f"b{number}")) for number in range(4))
    assert len(table) == 10
    assert evicted == 94
    # No window of the other vchannel was evicted, so a producer that is unknown there is new.
    assert not table.may_be_forgotten((2, "unknown"))
    assert table.may_be_forgotten((1, "a0"))
    assert table.may_be_forgotten((1, "never seen"))


async def test_what_is_repeated_after_its_window_was_evicted_is_refused_also_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_producers, "MAX_PRODUCERS", 3)
    store, metadata = LastingStore(), MemoryMetadataStore()
    first = {name: ProducerSequence(name, 0, 1) for name in ("load", "~random")}
    async with running_node(store, metadata=metadata) as node:
        await node.create("a", 2)
        for producer in first.values():
            await node.append("a/0", a_batch(b"1"), producer=producer)
        for number in range(3):
            await node.vchannels.open_producer("a/1", f"p{number}")
    for _ in range(2):
        async with running_node(store, metadata=metadata) as node:
            for producer in first.values():
                with pytest.raises(ProducerForgottenError) as refused:
                    await node.submit("a/0", a_batch(b"1"), producer=producer._replace(is_repeated=True))
                assert refused.value.effect is Effect.UNKNOWN
            # A name that may have been evicted is refused for any batch; the other one is new.
            with pytest.raises(ProducerForgottenError):
                await node.submit("a/0", a_batch(b"1"), producer=first["load"])
            with pytest.raises(ProducerForgottenError):
                await node.vchannels.open_producer("a/0", "load")
            with pytest.raises(ProducerFencedError):
                await node.submit("a/0", a_batch(b"1"), producer=ProducerSequence("load", 1, 1))
            _, lane = node.directory.find("a/0")
            assert len(node.log.store.read(lane.vchannel_id, 0, 1 << 63, 1 << 30)) == 2
    async with running_node(store, metadata=metadata) as node:
        await node.append("a/0", a_batch(b"1"), producer=ProducerSequence("~new", 0, 1))
        [window] = await node.vchannels.open_producer("a/0", "load", accept_forgotten=True)
        assert (window.epoch, window.last_sequence) == (1, 0)
        await node.append("a/0", a_batch(b"1"), producer=ProducerSequence("load", 1, 1))


def test_a_first_batch_that_was_lost_long_after_the_evictions_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_producers, "MAX_PRODUCERS", 2)
    evicted_tick = compose(1_000_000)
    table = ProducerTable({(1, "~old"): a_window(evicted_tick)})
    for number in range(2):
        table.put((1, f"~p{number}"), a_window(evicted_tick + number))
    lost = ProducerSequence("~new", 0, 1, is_repeated=True)
    within, after = compose(1_000_000 + MAX_REPEAT_AGE_MS), compose(1_000_001 + MAX_REPEAT_AGE_MS)
    with pytest.raises(ProducerForgottenError):
        table.window_for(1, "a/0", lost, within)
    assert table.window_for(1, "a/0", lost, after) is None
    # No window was evicted on the other vchannel.
    assert table.window_for(2, "a/1", lost, within) is None


def test_marks_of_forgotten_producers_stay_and_take_no_place_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_producers, "MAX_PRODUCERS", 2)
    mark = ProducerWindow(0, 9)
    table = ProducerTable({(vchannel_id, FORGOTTEN_NAMED): mark for vchannel_id in range(1, 6)})
    for number in range(5):
        table.put((9, f"p{number}"), ProducerWindow(1))
    assert len(table) == 2
    assert {table.window((vchannel_id, FORGOTTEN_NAMED)) for vchannel_id in range(1, 6)} == {mark}


async def test_the_table_shrinks_again_after_a_burst(
    node: Node, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_producers, "MAX_PRODUCERS", 3)
    store.may_sync.clear()
    burst = [
        await node.submit("a", a_batch(b"1"), producer=ProducerSequence(f"~p{number}", 0, 1)) for number in range(100)
    ]
    store.may_sync.set()
    for submitted in burst:
        await submitted.acknowledged()
    assert len(node.log.shared.producers) == 100
    for number in range(10):
        await node.append("a", a_batch(b"1"), producer=ProducerSequence(f"~q{number}", 0, 1))
    assert len(node.log.shared.producers) == 3
    assert len(without_marks(node)) == 3


async def test_one_with_a_batch_in_flight_is_not_forgotten(
    node: Node, store: FaultyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_producers, "MAX_PRODUCERS", 2)
    store.may_sync.clear()
    first = await node.submit("a", a_batch(b"1"), producer=ProducerSequence("busy", 0, 1))
    for number in range(5):
        await node.submit("a", a_batch(b"1"), producer=ProducerSequence(f"~p{number}", 0, 1))
    again = await node.submit("a", a_batch(b"1"), producer=ProducerSequence("busy", 0, 1))
    assert again.append.is_duplicate
    assert not again.append.settled
    store.may_sync.set()
    assert await again.acknowledged() == await first.acknowledged()


async def test_a_channel_takes_its_producers_with_it(node: Node) -> None:
    await node.append("a", a_batch(b"1"), producer=ProducerSequence("p", 0, 1))
    await node.lifecycle.destroy(["a"], ignore_missing=False)
    assert len(node.log.shared.producers) == 0
    assert node.log.store.rows(WINDOWS) == {}


async def test_a_repeated_batch_shares_the_failure_of_the_first_one() -> None:
    async with running_node(FaultyStore(fails_at_sync=1)) as node:
        await node.create("a")
        first, again = [await node.submit("a", a_batch(b"1"), producer=ProducerSequence("p", 0, 1)) for _ in range(2)]
        assert (await first.outcome()).failure is not None
        assert (await again.outcome()).failure is (await first.outcome()).failure


async def test_any_number_of_repetitions_is_settled_with_the_first(node: Node, store: FaultyStore) -> None:
    store.may_sync.clear()
    submitted = [await node.submit("a", a_batch(b"1"), producer=ProducerSequence("p", 0, 1)) for _ in range(5_000)]
    store.may_sync.set()
    assert len({await each.acknowledged() for each in submitted}) == 1
    assert not node.failures


async def test_after_a_defect_no_job_rests_on_what_was_not_written() -> None:
    class BrokenStore(FaultyStore):
        def write(self, entries: Any, rows: Any = (), staged: Any = ()) -> WriteMark:
            if entries:
                raise KeyError("a defect")
            return super().write(entries, rows, staged)

    store = BrokenStore()
    async with running_node(store) as node:
        await node.create("a")
        submitted = await node.submit("a", a_batch(b"1"), producer=ProducerSequence("p", 0, 1))
        with pytest.raises(StorageFailedError):
            await node.vchannels.open_producer("a", "p")
        assert (await submitted.outcome()).failure is not None
        assert store.rows(WINDOWS) == {}


async def test_a_fence_that_waits_is_written_though_its_caller_is_gone(node: Node, store: FaultyStore) -> None:
    store.may_sync.clear()
    first = await node.submit("a", a_batch(b"1"))
    await asyncio.to_thread(store.has_written.wait)
    fencing = asyncio.ensure_future(node.vchannels.fence("a", 8))
    # It is submitted in the first iteration of the loop; in the second its task waits and can be cancelled.
    for _ in range(3):
        await asyncio.sleep(0)
    behind = await node.submit("a", a_batch(b"2"), conditions=Conditions(fencing_token=8))
    await node.tasks.close()
    fencing.cancel()
    store.may_sync.set()
    await first.acknowledged()
    await behind.acknowledged()
    _, lane = node.directory.find("a")
    assert store.tail(lane.vchannel_id).fencing_token == 8
