"""Broadcasts with a failure at a chosen moment: crashes, cancelled calls, full tables, damaged records.

Method: a node whose store and metadata outlive it, and whose metadata commits can be blocked by the test.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import structlog
import structlog.testing

from tidelog_server.broadcast import admission, saver
from tidelog_server.broadcast import table as broadcast_table
from tidelog_server.broadcast.admission import BroadcastRequest
from tidelog_server.broadcast.records import Progress, TaskRecord, Tombstone
from tidelog_server.broadcast.rows import LOGGED
from tidelog_server.broadcast.service import BroadcastResult
from tidelog_server.broadcast.store import BroadcastRecords
from tidelog_server.broadcast.table import MAX_TOMBSTONE_AGE_MS, BroadcastTable, Task
from tidelog_server.core.broadcasts import BroadcastState, KeyName
from tidelog_server.core.callers import NO_TENANT, tenant_of
from tidelog_server.core.errors import (
    BroadcastNotExistError,
    ChannelNotExistError,
    DataLossError,
    Effect,
    RateLimitRejectedError,
    ResourceAcquiredError,
    ShutdownError,
    StorageFailedError,
    TidelogServerError,
)
from tidelog_server.core.errors.cluster import MetadataUnavailableError, OwnershipLostError
from tidelog_server.core.errors.forgotten import BroadcastForgottenError
from tidelog_server.core.limits import Limits
from tidelog_server.core.producers import ProducerSequence
from tidelog_server.log.rows import WINDOWS
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.metadata.shared_commits import SharedCommits
from tidelog_server.metadata.store import Change, Delete, Put
from tidelog_testing.parts.batches import a_batch
from tidelog_testing.parts.broadcasts import a_broadcast, a_key, in_log
from tidelog_testing.parts.nodes import Node, running_node
from tidelog_testing.parts.stores import FaultyStore, LastingStore
from tidelog_testing.parts.waiting import eventually, until

LANES = ["a/0", "a/1", "b/0"]
KEY = a_key("k")


class GatedMetadata(MemoryMetadataStore):
    """Commits for which ``stops`` returns True wait until ``may_go`` is set; ``has_stopped`` is set while one waits."""

    def __init__(self) -> None:
        super().__init__()
        self.stops: Callable[[Sequence[Change]], bool] = lambda _: False
        self.may_go = asyncio.Event()
        self.has_stopped = asyncio.Event()
        self.fails: StorageFailedError | None = None

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        if self.stops(changes):
            self.has_stopped.set()
            await self.may_go.wait()
        if self.fails is not None:
            raise self.fails
        return await super().commit(changes, is_before_log=is_before_log)

    def stop_at(self, name: str) -> None:
        """Block commits that write a record of this name, from now on."""
        self.may_go.clear()
        self.has_stopped.clear()
        self.stops = lambda changes: any(isinstance(each, Put) and each.key.endswith(name) for each in changes)

    def go_on(self) -> None:
        """Unblock all commits."""
        self.stops = lambda _: False
        self.may_go.set()


async def prepare(node: Node) -> None:
    await node.create("a", 2)
    await node.create("b")


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    async with running_node(LastingStore()) as node:
        await prepare(node)
        yield node


async def an_id(node: Node) -> int:
    return await node.log.shared.oracle.allocate(1)


def logged(store: LastingStore) -> list[int]:
    return [key.broadcast_id for key in store.rows(LOGGED)]


async def cut_off(node: Node, metadata: GatedMetadata, record: str, broadcast_id: int) -> None:
    """Start a broadcast, and return once its commit is blocked."""
    metadata.stop_at(record)
    call = asyncio.create_task(node.broadcasts.broadcast(a_broadcast(LANES, keys=[KEY], broadcast_id=broadcast_id)))
    await metadata.has_stopped.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


@pytest.mark.parametrize("record", ["/task", "/progress"])
async def test_what_was_not_accepted_is_not_there_after_a_crash(record: str) -> None:
    store, metadata = LastingStore(), GatedMetadata()
    async with running_node(store, metadata=metadata) as node:
        await prepare(node)
        broadcast_id = await an_id(node)
        await cut_off(node, metadata, record, broadcast_id)
    metadata.go_on()

    async with running_node(store, metadata=metadata) as node:
        with pytest.raises(BroadcastNotExistError):
            node.broadcasts.describe(broadcast_id)
        assert [in_log(node, name) for name in LANES] == [[], [], []]
        result = await node.broadcasts.broadcast(a_broadcast(LANES, keys=[KEY], broadcast_id=broadcast_id))
        assert not result.is_duplicate


async def accept_only(node: Node, metadata: MemoryMetadataStore) -> int:
    """Produce the state of a crash between the acceptance of a broadcast and its append; return its id."""
    request, broadcast_id = a_broadcast(LANES), await an_id(node)
    ids = tuple(node.directory.find(name)[1].vchannel_id for name in LANES)
    crc = request.batch.columns_crc32c
    record = TaskRecord(broadcast_id, tuple(LANES), ids, (), request.digest, 0, crc, created_ms=0)
    store = BroadcastRecords(metadata, SharedCommits(metadata, node.tasks), "tidelog")
    await store.accept(Task(record), request.batch.columns)
    return broadcast_id


async def test_restarts_that_are_cut_off_too_append_it_once() -> None:
    store, metadata = LastingStore(), GatedMetadata()
    async with running_node(store, metadata=metadata) as node:
        await prepare(node)
        metadata.stops = lambda changes: any(isinstance(each, Put) and b"wait_ack" in each.value for each in changes)
        result = await node.broadcasts.broadcast(a_broadcast(LANES, keys=[KEY]))
        await metadata.has_stopped.wait()
        accepted_id = await accept_only(node, metadata)
    for _ in range(3):
        metadata.has_stopped.clear()

        async def start() -> None:
            async with running_node(store, metadata=metadata):
                await asyncio.Event().wait()

        starting = asyncio.create_task(start())
        await metadata.has_stopped.wait()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        assert logged(store) == [result.broadcast_id, accepted_id]
    metadata.go_on()

    async with running_node(store, metadata=metadata) as node:
        for name in LANES:
            first, second = in_log(node, name)
            assert first == (result.broadcast_id, result.tick, b"payload")
            assert second[0] == accepted_id
        assert len({in_log(node, name)[1][1] for name in LANES}) == 1
        with pytest.raises(ResourceAcquiredError):
            await node.broadcasts.broadcast(a_broadcast(LANES, keys=[KEY]))
        await node.broadcasts.broadcast(a_broadcast(LANES))
        assert not {result.broadcast_id, accepted_id} & set(logged(store))


async def test_it_is_known_again_after_a_crash_even_where_it_was_trimmed() -> None:
    store, metadata = LastingStore(), GatedMetadata()
    async with running_node(store, metadata=metadata) as node:
        await prepare(node)
        metadata.stops = lambda changes: any(isinstance(each, Put) and b"wait_ack" in each.value for each in changes)
        result = await node.broadcasts.broadcast(a_broadcast(LANES))
        for name in LANES:
            await node.vchannels.trim(name)
    metadata.go_on()

    async with running_node(store, metadata=metadata) as node:
        assert [in_log(node, name) for name in LANES] == [[], [], []]
        found = node.broadcasts.describe(result.broadcast_id)
        assert isinstance(found, Task)
        assert found.durable == Progress(result.tick)


async def test_a_channel_is_destroyed_once_no_broadcast_to_it_is_on_its_way() -> None:
    metadata = GatedMetadata()
    async with running_node(LastingStore(), metadata=metadata) as node:
        await prepare(node)
        metadata.stop_at("/task")
        call = asyncio.create_task(node.broadcasts.broadcast(a_broadcast(LANES)))
        await metadata.has_stopped.wait()
        destroy = asyncio.create_task(node.lifecycle.destroy(["a"], ignore_missing=False))
        await asyncio.sleep(0.05)

        assert not destroy.done()
        with pytest.raises(ChannelNotExistError, match="being destroyed"):
            await node.broadcasts.broadcast(a_broadcast(LANES))
        metadata.go_on()
        result = await call
        assert await destroy == ["a"]

        assert in_log(node, "b/0") == [(result.broadcast_id, result.tick, b"payload")]
        found = node.broadcasts.describe(result.broadcast_id)
        assert isinstance(found, Task)
        assert [name for name, has_acked in found.acknowledgements() if has_acked] == ["a/0", "a/1"]


async def test_a_cancelled_call_goes_on_once_it_is_accepted() -> None:
    metadata = GatedMetadata()
    async with running_node(LastingStore(), metadata=metadata) as node:
        await prepare(node)
        broadcast_id = await an_id(node)
        await cut_off(node, metadata, "/task", broadcast_id)
        again = asyncio.create_task(
            node.broadcasts.broadcast(a_broadcast(LANES, keys=[KEY], broadcast_id=broadcast_id))
        )
        metadata.go_on()

        result = await again

        assert result.is_duplicate
        assert in_log(node, "a/1") == [(broadcast_id, result.tick, b"payload")]


async def test_calls_with_one_id_at_once_are_one_broadcast(node: Node) -> None:
    broadcast_id = await an_id(node)
    request = a_broadcast(LANES, keys=[KEY], broadcast_id=broadcast_id, wait_s=10)

    results = await asyncio.gather(*(node.broadcasts.broadcast(request) for _ in range(5)))

    assert sorted(result.is_duplicate for result in results) == [False, True, True, True, True]
    assert len({result.tick for result in results}) == 1
    assert len(in_log(node, "a/0")) == 1


async def test_a_shutdown_ends_every_wait(node: Node) -> None:
    result = await node.broadcasts.broadcast(a_broadcast(LANES, keys=[KEY]))
    waiting = [
        asyncio.create_task(node.broadcasts.broadcast(a_broadcast(LANES, keys=[KEY], wait_s=60))),
        asyncio.create_task(node.broadcasts.acks.wait([result.broadcast_id], None, 60, once=False)),
        asyncio.create_task(node.broadcasts.acks.wait([], KEY.name, 60, once=True)),
    ]
    await asyncio.sleep(0.01)
    node.log.begin_shutdown()

    outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [ShutdownError] * 3
    assert node.broadcasts._keys.waiters == 0
    assert node.broadcasts._saver.waiters_usage.total == 0


async def test_a_storage_failure_leaves_the_outcome_unknown() -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        await prepare(node)
        store.fails_at_write = len(store.written) + 1
        with pytest.raises(StorageFailedError) as caught:
            await node.broadcasts.broadcast(a_broadcast(LANES, keys=[KEY]))
        assert caught.value.effect is Effect.UNKNOWN
        with pytest.raises(StorageFailedError) as again:
            await node.broadcasts.broadcast(a_broadcast(LANES))
        assert again.value.effect is Effect.NONE


async def test_an_accepted_broadcast_waits_for_ticks(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = node.log.shared.oracle
    broadcast_id, refusals = await an_id(node), iter(range(3))

    async def without_leader(_: int, __: int = 0) -> None:
        if next(refusals, None) is None:
            monkeypatch.undo()
        else:
            raise MetadataUnavailableError.without_ticks(3.0, "it does not answer")

    monkeypatch.setattr(oracle, "try_allocate", lambda _, __=0: None)
    monkeypatch.setattr(oracle, "prepare", without_leader)
    result = await node.broadcasts.broadcast(a_broadcast(LANES, keys=[KEY], broadcast_id=broadcast_id))
    again = await node.broadcasts.broadcast(a_broadcast(LANES, keys=[KEY], broadcast_id=broadcast_id))

    assert next(refusals, None) is None
    assert again == result._replace(is_duplicate=True)
    assert in_log(node, "b/0") == [(broadcast_id, result.tick, b"payload")]


async def test_the_outcome_is_unknown_if_the_lease_ends_before_the_append(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle, broadcast_id = node.log.shared.oracle, await an_id(node)

    async def without_lease(_: int, __: int = 0) -> None:
        raise OwnershipLostError("n1")

    with monkeypatch.context() as changed:
        changed.setattr(oracle, "try_allocate", lambda _, __=0: None)
        changed.setattr(oracle, "prepare", without_lease)
        with pytest.raises(OwnershipLostError) as caught:
            await node.broadcasts.broadcast(a_broadcast(LANES, broadcast_id=broadcast_id))
    assert caught.value.effect is Effect.UNKNOWN
    with pytest.raises(TidelogServerError) as again:
        await node.broadcasts.broadcast(a_broadcast(LANES, broadcast_id=broadcast_id))
    assert again.value.effect is Effect.UNKNOWN


async def test_what_is_forgotten_is_not_taken_as_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast_table, "MAX_TOMBSTONES", 3)
    store, metadata = LastingStore(), MemoryMetadataStore()
    sent = []
    async with running_node(store, metadata=metadata) as node:
        await prepare(node)
        calls, table = node.broadcasts, node.broadcasts.table
        stays_open = await calls.broadcast(a_broadcast(["b/0"], broadcast_id=await an_id(node)))
        for _ in range(6):
            request = a_broadcast(["a/0"], broadcast_id=await an_id(node))
            sent.append(request)
            await calls.broadcast(request)
            await calls.acks.ack(request.broadcast_id, ["a/0"])
        async with asyncio.timeout(5):
            while len(table.tombstones) > 3:
                await asyncio.sleep(0)
        assert sorted(table.tombstones) == [request.broadcast_id for request in sent[3:]]
    async with running_node(store, metadata=metadata) as node:
        calls = node.broadcasts
        for request in sent[:3]:
            with pytest.raises(BroadcastForgottenError) as caught:
                await calls.broadcast(request)
            assert caught.value.effect is Effect.UNKNOWN
            await calls.acks.ack(request.broadcast_id, ["a/0"])
            assert await calls.acks.wait([request.broadcast_id], None, 0, once=False) == []
        for request in sent[3:]:
            assert (await calls.broadcast(request)).is_duplicate
        assert await calls.acks.wait([stays_open.broadcast_id], None, 0, once=False) == [stays_open.broadcast_id]
        with pytest.raises(BroadcastNotExistError):
            await calls.acks.wait([await an_id(node)], None, 0, once=False)


def test_old_ones_are_forgotten_smallest_id_first() -> None:
    table = BroadcastTable()
    for broadcast_id in (5, 3, 9, 1):
        finished_ms = 0 if broadcast_id < 9 else 1_000
        table.add_tombstone(Tombstone(broadcast_id, BroadcastState.DONE, 7, 1, 1, "", 0, finished_ms))

    assert table.forget_some(MAX_TOMBSTONE_AGE_MS, 10).broadcast_ids == []
    assert table.forget_some(MAX_TOMBSTONE_AGE_MS + 1, 2) == ([1, 3], {NO_TENANT: 3}, 0)
    # Tombstones stay known until their deletion is durable, and are not chosen again.
    assert table.find(3) is not None
    assert table.forget_some(MAX_TOMBSTONE_AGE_MS + 1, 10) == ([5], {NO_TENANT: 5}, 0)
    table.forget([1, 3, 5])
    assert [table.find(broadcast_id) is None for broadcast_id in (1, 3, 5, 9)] == [True, True, True, False]


async def test_a_principal_that_finishes_many_makes_those_of_others_no_less_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broadcast_table, "MAX_TOMBSTONES", 4)
    store, metadata = LastingStore(), MemoryMetadataStore()
    hoarder, other = tenant_of("jwt:hoarder"), tenant_of("jwt:other")
    mine: list[BroadcastRequest] = []
    theirs: list[BroadcastRequest] = []
    async with running_node(store, metadata=metadata) as node:
        await prepare(node)
        calls, table = node.broadcasts, node.broadcasts.table
        for tenant, sent, count in ((other, mine, 2), (hoarder, theirs, 10)):
            for _ in range(count):
                sent.append(replace(a_broadcast(["a/0"], broadcast_id=await an_id(node)), tenant=tenant))
                await calls.broadcast(sent[-1])
                await calls.acks.ack(sent[-1].broadcast_id, ["a/0"])
        unused_id = await an_id(node)
        async with asyncio.timeout(5):
            while table.finished > 4:
                await asyncio.sleep(0)
        metrics = node.log.metrics.registry
        assert metrics.get_sample_value("tidelog_evictions_total", {"table": "broadcasts"}) == 8
    async with running_node(store, metadata=metadata) as node:
        calls = node.broadcasts
        assert [(await calls.broadcast(request)).is_duplicate for request in mine] == [True, True]
        with pytest.raises(BroadcastForgottenError):
            await calls.broadcast(theirs[0])
        # An unused id of the other tenant is new, even if it is below the ids that the hoarder has lost.
        late = replace(a_broadcast(["a/0"], broadcast_id=mine[0].broadcast_id + 1), tenant=other)
        assert not (await calls.broadcast(late)).is_duplicate
        assert unused_id > late.broadcast_id


async def test_every_bound_refuses_what_is_too_much(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = node.broadcasts
    await calls.broadcast(a_broadcast(LANES, keys=[KEY]))
    for module, name, value in (
        (admission, "MAX_OPEN_BROADCASTS", 1),
        (admission, "MAX_OPEN_BROADCAST_VCHANNELS", 5),
        (admission, "MAX_WAITING_BROADCAST_BYTES", 5),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            with pytest.raises(RateLimitRejectedError):
                await calls.broadcast(a_broadcast(LANES))
    monkeypatch.setattr(saver, "MAX_BROADCAST_WAITERS", 0)
    with pytest.raises(RateLimitRejectedError):
        await calls.broadcast(a_broadcast(LANES, keys=[KEY], wait_s=1))
    with pytest.raises(RateLimitRejectedError):
        await calls.acks.wait([], KEY.name, 1, once=False)
    assert calls._keys.holders(KEY.name) == list(calls.table.open)
    assert len(in_log(node, "a/0")) == 1


async def test_no_row_of_a_broadcast_is_left_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver, "TOMBSTONE_SWEEP_INTERVAL_S", 0.01)
    store = LastingStore()
    async with running_node(store) as node:
        await prepare(node)
        await node.submit("a/0", a_batch(), producer=ProducerSequence("someone", 0, 1))
        await node.broadcasts.broadcast(a_broadcast(LANES))
        await until(lambda: not logged(store), within_s=5)
        assert [name for _, name in store.rows(WINDOWS)] == ["someone"]


async def test_records_that_contradict_each_other_are_refused() -> None:
    store, metadata = LastingStore(), MemoryMetadataStore()
    async with running_node(store, metadata=metadata) as node:
        await prepare(node)
        one = await node.broadcasts.broadcast(a_broadcast(LANES, keys=[KEY]))
        root = f"tidelog/broadcast/{one.broadcast_id}"
        await eventually(lambda: metadata.get(f"{root}/message"), lambda found: not found, within_s=5)
    intact = await metadata.list("tidelog/broadcast/")
    assert sorted(intact) == [f"{root}/progress", f"{root}/task"]
    task = intact[f"{root}/task"].value
    other = task.replace(str(one.broadcast_id).encode(), b"77")
    record = TaskRecord.decode("task", task)
    twice = replace(record, vchannel_ids=record.vchannel_ids[:1] * len(record.vchannel_ids)).encode()
    broken: list[tuple[str, list[Change]]] = [
        ("contradict", [Delete(f"{root}/progress", None)]),
        ("contradict", [Put(f"{root}/message", b"", None)]),
        ("contradict", [Put(f"{root}/progress", Progress().encode(), None)]),
        ("contradict", [Put(f"{root}/progress", Progress(one.tick, 8).encode(), None)]),
        ("contradict", [Put(f"{root}/task", other, None)]),
        ("contradict", [Put(f"{root}/task", twice, None)]),
        (
            "contradict",
            [
                Put(
                    "tidelog/broadcast/5/tombstone",
                    Tombstone(6, BroadcastState.DONE, 7, 1, 1, "00", 0, 0).encode(),
                    None,
                ),
            ],
        ),
        ("cannot be read", [Put(f"{root}/task", b"{}", None)]),
        ("is not a number", [Put("tidelog/broadcast_floor", b"x", None)]),
        ("belongs to no broadcast", [Put("tidelog/broadcast/x/task", task, None)]),
        (
            "both hold the resource key",
            [
                Put("tidelog/broadcast/77/task", other, None),
                Put("tidelog/broadcast/77/progress", Progress(5).encode(), None),
            ],
        ),
        (
            "metadata and log do not match",
            [
                Put(f"{root}/progress", Progress().encode(), None),
                Put(f"{root}/message", b"", None),
                Put(f"{root}/task", task.replace(b'"vchannel_ids":[', b'"vchannel_ids":[9'), None),
            ],
        ),
    ]
    for text, changes in broken:
        damaged = MemoryMetadataStore()
        catalog = await metadata.list("tidelog/")
        await damaged.commit([Put(key, found.value, None) for key, found in catalog.items()])
        await damaged.commit(changes)
        with pytest.raises(DataLossError, match=text):
            async with running_node(store, metadata=damaged):
                pass


async def test_nobody_holds_a_key_that_nobody_took(node: Node) -> None:
    with pytest.raises(ChannelNotExistError):
        await node.broadcasts.broadcast(a_broadcast(["nowhere"], keys=[KEY]))
    assert await node.broadcasts.acks.wait([], KeyName("d", "k"), 0, once=False) == []


@contextmanager
def log_events() -> Iterator[list[MutableMapping[str, Any]]]:
    """Collect log events, regardless of the log level set by servers of other tests in this process."""
    before = structlog.get_config()
    structlog.reset_defaults()
    try:
        with structlog.testing.capture_logs() as events:
            yield events
    finally:
        structlog.configure(**before)


async def test_an_abort_is_noted_once_with_its_reason(node: Node) -> None:
    result = await node.broadcasts.broadcast(a_broadcast(LANES, keys=[KEY]))
    with log_events() as events:
        await node.broadcasts.abort(result.broadcast_id, "its consumer is gone")
        await node.broadcasts.abort(result.broadcast_id, "again")

    (event,) = [event for event in events if event["event"] == "broadcast_aborted"]
    assert (event["log_level"], event["broadcast_id"], event["reason"]) == (
        "warning", result.broadcast_id, "its consumer is gone",
    )  # fmt: skip
    assert (event["acked"], event["vchannels"], event["resource_keys"]) == (0, 3, ["d/k exclusive"])


async def test_metrics_tell_what_is_open_and_who_waits(node: Node) -> None:
    calls = node.broadcasts
    first = await calls.broadcast(a_broadcast(LANES, keys=[KEY]))
    done = await calls.broadcast(a_broadcast(["b/0"]))
    await calls.acks.ack(done.broadcast_id, ["b/0"])
    waiting = [
        asyncio.create_task(calls.broadcast(a_broadcast(LANES, keys=[KEY], wait_s=60))),
        asyncio.create_task(calls.acks.wait([first.broadcast_id], None, 60, once=True)),
    ]
    await asyncio.sleep(0.01)

    node.refresh_metrics()

    text = node.log.metrics.render().decode()
    for line in (
        'tidelog_broadcasts_open{state="pending"} 0.0', 'tidelog_broadcasts_open{state="wait_ack"} 1.0',
        "tidelog_broadcasts_accepted_total 2.0", "tidelog_broadcast_acks_total 1.0",
        "tidelog_broadcast_tombstones 1.0", 'tidelog_broadcast_waiters{kind="keys"} 1.0',
        'tidelog_broadcast_waiters{kind="acks"} 1.0',
    ):  # fmt: skip
        assert line in text
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_nobody_is_told_of_acknowledgements_when_the_acceptance_fails() -> None:
    metadata = GatedMetadata()
    async with running_node(LastingStore(), metadata=metadata) as node:
        await prepare(node)
        metadata.stop_at("/task")
        request = a_broadcast(LANES, keys=[KEY], broadcast_id=await an_id(node))
        call = asyncio.ensure_future(node.broadcasts.broadcast(request))
        await metadata.has_stopped.wait()
        broadcasts = node.broadcasts
        waits = [
            asyncio.ensure_future(broadcasts.acks.wait([], KEY.name, 60.0, once=True)),
            asyncio.ensure_future(broadcasts.acks.wait([request.broadcast_id], None, 60.0, once=False)),
        ]
        await asyncio.sleep(0)
        failure = StorageFailedError("write: no space left on device", effect=Effect.UNKNOWN)
        node.log._failed(failure)
        metadata.fails = failure
        metadata.go_on()

        for wait in waits:
            with pytest.raises(StorageFailedError):
                await wait
        with pytest.raises(StorageFailedError):
            await call
        with pytest.raises(StorageFailedError) as caught:
            await node.broadcasts.broadcast(request)
        assert caught.value.effect is Effect.UNKNOWN


async def test_once_asks_for_any_acknowledgement_whatever_became_of_the_others(node: Node) -> None:
    broadcasts = node.broadcasts
    aborted, acked = [await broadcasts.broadcast(a_broadcast(LANES)) for _ in range(2)]
    await broadcasts.abort(aborted.broadcast_id, "gone")
    await broadcasts.acks.ack(acked.broadcast_id, LANES[:1])

    for ids in ([aborted.broadcast_id, acked.broadcast_id], [acked.broadcast_id, aborted.broadcast_id]):
        assert await broadcasts.acks.wait(ids, None, 0.0, once=True) == []


async def test_broadcasts_that_are_on_their_way_count_as_in_flight() -> None:
    metadata = GatedMetadata()
    payload = bytes(40_000)
    limits = Limits(max_in_flight_bytes=8 << 20)
    async with running_node(LastingStore(), limits, metadata=metadata) as node:
        await prepare(node)
        metadata.stop_at("/task")
        # Each is 120 kB on three vchannels.
        calls = [asyncio.ensure_future(node.broadcasts.broadcast(a_broadcast(LANES, payload))) for _ in range(80)]
        await metadata.has_stopped.wait()
        async with asyncio.timeout(60):
            while not any(call.done() for call in calls):
                await asyncio.sleep(0)
        metadata.go_on()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)

    refused = [outcome for outcome in outcomes if isinstance(outcome, RateLimitRejectedError)]
    assert 5 < len(refused) < 20
    assert all(isinstance(outcome, BroadcastResult | RateLimitRejectedError) for outcome in outcomes)
