"""A node has snapshots made and its log in an engine shortened while it serves."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tidelog_server.core.errors.cluster import OwnershipLostError
from tidelog_server.log.lease_validity import LeaseValidity
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.engine.snapshot_plan import LIMITS
from tidelog_server.storage.engine.store import EngineLogStore
from tidelog_server.storage.engine.view import FrozenView
from tidelog_server.storage.log_store import Change
from tidelog_testing.parts.batches import a_batch
from tidelog_testing.parts.engine_stores import create_log, open_in, open_on
from tidelog_testing.parts.folder_engine import FolderEngine
from tidelog_testing.parts.nodes import Node, running_node

_SMALL = LIMITS._replace(after_bytes=100_000, unit_bytes=100_000)


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr("tidelog_server.log.node._SHORTEN_EVERY_S", 0.01)
    create_log(FolderEngine(tmp_path / "log"))
    async with running_node(open_in(tmp_path, limits=_SMALL)) as running:
        running.tasks.keep("snapshots", running.log.shorten_log())
        yield running
        assert not running.task_failures


def store_of(node: Node) -> EngineLogStore:
    store = node.log.store
    assert isinstance(store, EngineLogStore)
    return store


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def has_made_more(store: EngineLogStore, made: int) -> bool:
    return store._snapshots.made > made


async def fill(node: Node, channel: str) -> None:
    for _ in range(60):
        await node.append(channel, a_batch(bytes(3_000)))


async def test_snapshots_are_made_and_an_idle_channel_does_not_hold_the_log(node: Node, tmp_path: Path) -> None:
    await node.create("idle")
    await node.create("busy")
    engine = FolderEngine(tmp_path / "log")
    await node.append("idle", a_batch(bytes(3_000)))
    oldest = engine.bounds().end - 1
    store = store_of(node)
    for _ in range(3):
        made = store._snapshots.made
        await fill(node, "busy")
        await until(partial(has_made_more, store, made))
        await node.vchannels.trim("busy/0")
    while engine.bounds().begin <= oldest:
        await node.append("busy", a_batch(bytes(3_000)))
    (vchannel,) = node.directory.find_channel("idle").vchannels
    (entry,) = store.read(vchannel.vchannel_id, 0, 1 << 62, 1 << 20)
    assert bytes(3_000) in entry.columns
    made = store._snapshots.made
    node.log.refresh_metrics()
    figures = {
        sample.name.removeprefix("tidelog_engine_"): sample.value
        for metric in node.log.metrics.registry.collect()
        for sample in metric.samples
        if sample.name.startswith("tidelog_engine_log_")
    }
    # A snapshot may be completed on its thread meanwhile.
    assert made <= figures["log_snapshots"] <= store._snapshots.made
    assert 3_000 < figures["log_live_bytes"] < figures["log_bytes"]
    assert not node.failures


async def test_a_node_that_is_replaced_during_a_snapshot_stops(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.create("a")
    writer = store_of(node)._snapshots._writer
    freeze = writer.freeze

    def freeze_as_another_claims() -> FrozenView:
        """Another process claims the log as a snapshot begins; nothing is appended behind it."""
        open_on(FolderEngine(tmp_path / "log"), tmp_path / "other").close()
        return freeze()

    monkeypatch.setattr(writer, "freeze", freeze_as_another_claims)
    while store_of(node)._snapshots._writer.view.place.log_bytes < _SMALL.after_bytes:
        await node.append("a", a_batch(bytes(3_000)))
    await until(lambda: node.failures)
    assert isinstance(node.failures[0], OwnershipLostError)
    node.failures.clear()


async def test_a_snapshot_that_meets_the_next_owner_after_a_hand_over_is_no_failure(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = LeaseValidity(SystemClock(), "n1")
    lease.begin(1, SystemClock().monotonic_s(), 60)
    node.log.hold_lease(lease)
    node.log.hand_over()
    open_on(FolderEngine(tmp_path / "log"), tmp_path / "other").close()
    store = store_of(node)
    attempts: list[bool] = []

    def shorten() -> Iterator[Change]:
        attempts.append(store._writer.works)
        return store.snapshot()

    monkeypatch.setattr(store, "shorten", shorten)
    # The second one is after the error of the first.
    await until(lambda: False in attempts)
    assert not node.failures
    assert node.log.admission.failure is None


async def test_a_node_stops_during_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog_server.log.node._SHORTEN_EVERY_S", 0.001)
    create_log(FolderEngine(tmp_path / "log"))
    for _ in range(5):
        async with running_node(open_in(tmp_path, limits=_SMALL._replace(after_bytes=1))) as running:
            running.tasks.keep("snapshots", running.log.shorten_log())
            await until(partial(has_made_more, store_of(running), 0))
        assert not running.failures
        assert not running.task_failures
