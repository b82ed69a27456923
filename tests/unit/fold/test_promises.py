"""What every log promises whose state is its fold, for each feature that has one: mailboxes and blobs.

Method: each feature on a node with a store in memory that waits and fails as a test requests, and that is opened again
as a crash would have left it. A feature is a few operations, and the state that a start would load.

Promises of docs/reference/guarantees.md: G49, G51.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tidelog_server.blobs.events import BLOBS
from tidelog_server.blobs.log import BlobLog
from tidelog_server.blobs.state import BlobState
from tidelog_server.core.errors import Effect, RateLimitRejectedError, StorageFailedError, TidelogServerError
from tidelog_server.core.limits import MIB
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.fold import pages
from tidelog_server.fold.calls import Call
from tidelog_server.fold.loading import load
from tidelog_server.fold.rows import SNAPSHOTS
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_testing.parts.mailbox_nodes import (
    CODEC,
    MailboxNode,
    content,
    loaded,
    running_mailboxes,
    sending,
    until,
)
from tidelog_testing.parts.stores import CrashingStore


class Feature(ABC):
    """A feature whose state is the fold of a log.

    Attributes:
        log: The log of one of its states.
    """

    log: Any

    def __init__(self, node: MailboxNode) -> None:
        self.node = node

    @abstractmethod
    async def open(self) -> None:
        """Open the log."""

    @abstractmethod
    async def add(self, name: bytes) -> None:
        """Add something to the state."""

    @abstractmethod
    async def refused(self) -> None:
        """Execute an operation that is refused."""

    @abstractmethod
    async def look(self) -> int:
        """Return how much was added."""

    @abstractmethod
    async def write_snapshot(self) -> None:
        """Write a snapshot."""

    @abstractmethod
    def loaded(self, store: CrashingStore) -> Any:
        """Return the state that a start would load, as a value."""

    @abstractmethod
    def live(self) -> Any:
        """Return the state in memory, as a value."""


def refuse(_: object) -> None:
    raise RateLimitRejectedError("no", limit="test")


class MailboxFeature(Feature):
    log: Mailbox

    async def open(self) -> None:
        self.log = await self.node.create("a")

    async def add(self, name: bytes) -> None:
        await self.log.run(sending(name))

    async def refused(self) -> None:
        await self.log.run(Call(refuse, 1))

    async def look(self) -> int:
        return await self.log.run(Call(lambda step: step.state.rows.live, 0))

    async def write_snapshot(self) -> None:
        await self.node.mailboxes.housekeeper.keep(self.log)

    def loaded(self, store: CrashingStore) -> Any:
        return content(loaded(store, self.log).state, self.log.state.now)

    def live(self) -> Any:
        return content(self.log.state, self.log.state.now)


class BlobFeature(Feature):
    log: BlobLog

    async def open(self) -> None:
        self.log = await self.node.mailboxes.blobs.create()

    async def add(self, name: bytes) -> None:
        await self.node.mailboxes.blobs.put(name)

    async def refused(self) -> None:
        await self.log.run(Call(refuse, 1))

    async def look(self) -> int:
        return await self.log.run(Call(lambda step: len(step.state.blobs), 0))

    async def write_snapshot(self) -> None:
        await self.node.mailboxes.blobs.keeper.write_snapshot(self.log)

    def loaded(self, store: CrashingStore) -> Any:
        vchannel_id = self.log.place.vchannel.vchannel_id
        snapshot_tick = store.rows(SNAPSHOTS).get(vchannel_id, NO_TICK)
        return _content(load(store, CODEC, vchannel_id, snapshot_tick, BLOBS).state)

    def live(self) -> Any:
        return _content(self.log.state)


def _content(state: BlobState) -> Any:
    return {key: (blob.size_bytes, list(blob.places), blob.references) for key, blob in state.blobs.items()}


@pytest.fixture
def store() -> CrashingStore:
    return CrashingStore()


@pytest.fixture(params=[MailboxFeature, BlobFeature])
async def feature(store: CrashingStore, request: pytest.FixtureRequest) -> AsyncIterator[Feature]:
    async with running_mailboxes(store) as node:
        feature: Feature = request.param(node)
        await feature.open()
        try:
            yield feature
        finally:
            # A failed test has not allowed it.
            store.may_sync.set()


def written(store: CrashingStore, feature: Feature) -> int:
    """Return the number of events in the log."""
    vchannel_id = feature.log.place.vchannel.vchannel_id
    return sum(entry.count for entries in store.written for entry in entries if entry.vchannel_id == vchannel_id)


async def test_an_operation_is_answered_once_it_is_durable_and_changes_the_state_before(
    store: CrashingStore, feature: Feature
) -> None:
    store.may_sync.clear()
    adding = asyncio.create_task(feature.add(b"one"))
    await until(lambda: written(store, feature) == 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not adding.done()
    assert feature.live() != feature.loaded(store.crashed())
    store.may_sync.set()
    await adding
    assert feature.live() == feature.loaded(store.crashed())


async def test_operations_are_answered_in_the_order_in_which_they_were_executed(
    store: CrashingStore, feature: Feature
) -> None:
    order: list[int] = []

    async def add(number: int) -> None:
        await feature.add(b"%d" % number)
        order.append(number)

    await asyncio.gather(*map(add, range(20)))
    assert order == list(range(20))
    assert await feature.look() == 20
    assert feature.live() == feature.loaded(store.crashed())


async def test_a_refused_operation_changes_nothing_and_writes_nothing(store: CrashingStore, feature: Feature) -> None:
    await feature.add(b"one")
    before, events = feature.live(), written(store, feature)
    results = await asyncio.gather(feature.refused(), feature.add(b"two"), feature.refused(), return_exceptions=True)
    assert [type(each) for each in results] == [RateLimitRejectedError, type(None), RateLimitRejectedError]
    assert await feature.look() == 2
    assert written(store, feature) == events + 1
    assert feature.live() != before


@pytest.mark.parametrize("fails", ["fails_at_write", "fails_at_sync"])
async def test_a_failure_of_the_log_leaves_the_effect_unknown_and_refuses_what_comes_later(
    store: CrashingStore, feature: Feature, fails: str
) -> None:
    await feature.add(b"one")
    before = feature.live()
    setattr(store, fails, 1)
    with pytest.raises(StorageFailedError) as unknown:
        await feature.add(b"two")
    assert unknown.value.effect is Effect.UNKNOWN
    for operation in (feature.add(b"three"), feature.look()):
        with pytest.raises(TidelogServerError) as later:
            await operation
        assert later.value.effect is Effect.NONE
    assert feature.loaded(store.crashed()) == before


async def test_a_crash_between_two_pages_of_a_snapshot_loses_nothing(
    store: CrashingStore, feature: Feature, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES", 64)
    for number in range(20):
        await feature.add(b"%d" % number)
    for added in range(2):
        before, writing, durable = feature.live(), asyncio.create_task(feature.write_snapshot()), set[int]()
        while not writing.done():
            await asyncio.sleep(0)
            if store.durable_changes not in durable:
                durable.add(store.durable_changes)
                assert feature.loaded(store.crashed()) == before
        await writing
        assert len(durable) > 5
        assert store.rows(SNAPSHOTS)[feature.log.place.vchannel.vchannel_id] == feature.log.snapshot_tick
        await feature.add(b"after %d" % added)
        assert feature.loaded(store.crashed()) == feature.live()


async def test_what_happens_between_the_pages_of_a_snapshot_is_replayed_after_it(
    store: CrashingStore, feature: Feature, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES", 64)
    for number in range(20):
        await feature.add(b"%d" % number)
    writing, added = asyncio.create_task(feature.write_snapshot()), 0
    while not writing.done():
        await feature.add(b"between %d" % added)
        added += 1
    await writing
    assert added > 5
    assert feature.loaded(store.crashed()) == feature.live()
    assert await feature.look() == 20 + added


async def test_operations_of_one_turn_share_an_entry(store: CrashingStore, feature: Feature) -> None:
    writes = len(store.written)
    await asyncio.gather(*(feature.add(b"%d" % number) for number in range(20)))
    assert [len(entries) for entries in store.written[writes:]] == [1]
    assert written(store, feature) == 20


async def test_a_step_of_many_operations_is_bounded_by_their_bytes(store: CrashingStore, feature: Feature) -> None:
    writes = len(store.written)
    await asyncio.gather(*(feature.add(bytes([number]) * 100_000) for number in range(50)))
    sizes = [sum(len(entry.columns) for entry in entries) for entries in store.written[writes:]]
    assert len(sizes) == 3
    assert max(sizes) < 2.1 * MIB


async def test_a_bug_in_a_step_stops_the_log_and_leaves_no_trace(feature: Feature, store: CrashingStore) -> None:
    await feature.add(b"before")
    before = feature.live()

    def fail(step: Any) -> None:
        step.outbox.add(1, b"half")
        raise ZeroDivisionError

    calls = [feature.add(b"x"), feature.log.run(Call(fail, 1)), feature.add(b"y")]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in results] == [StorageFailedError] * 3
    with pytest.raises(StorageFailedError):
        await feature.add(b"later")
    assert [type(report["exception"]) for report in feature.node.reports] == [ZeroDivisionError]
    assert feature.loaded(store.crashed()) == before
