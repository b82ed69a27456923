"""Group commit preserves the order, syncs before it acknowledges, and stops permanently at the first failure.

Method: a node on a store that counts writes and syncs, delays syncs, and fails at a chosen one.
"""

import asyncio
import threading
from itertools import pairwise

import pytest
import structlog

from tidelog_server.core.callers import Caller
from tidelog_server.core.errors import Effect, ShutdownError, StorageFailedError
from tidelog_server.core.limits import MAX_GROUP_BATCHES, MAX_GROUP_BYTES, TICK_SAVE_AHEAD_MS
from tidelog_server.core.ticks import compose
from tidelog_server.log.append import Append
from tidelog_server.log.lone_appends import AFTER_GROUPS, FAST_SYNC_S
from tidelog_server.log.rows import WINDOWS
from tidelog_server.storage.log_store import WriteMark
from tidelog_server.txn.commit import CommitTerms
from tidelog_server.txn.staged import StagingAppend
from tidelog_server.txn.table import BatchOfTxn
from tidelog_testing.parts.batches import a_batch
from tidelog_testing.parts.clocks import SetClock, SteppedClock
from tidelog_testing.parts.nodes import Node, Submitted, running_node
from tidelog_testing.parts.stores import FaultyStore


async def outcomes(appends: list[Submitted]) -> list[Append]:
    return list(await asyncio.gather(*(append.outcome() for append in appends)))


async def until(store: FaultyStore, writes: int) -> None:
    while len(store.written) < writes:
        await asyncio.sleep(0)


async def written_and_not_synced(node: Node, store: FaultyStore) -> Submitted:
    """Append to a new channel ``a``, and return while the sync is delayed."""
    await node.create("a")
    store.may_sync.clear()
    append = await node.submit("a", a_batch(b"x"))
    await until(store, 1)
    return append


async def test_appends_are_written_in_the_order_of_their_ticks() -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        await node.create("a", 2)
        await node.create("b")
        settled: list[int] = []
        appends = [await node.submit(["a/0", "b/0", "a/1"][number % 3], a_batch(b"x")) for number in range(3_000)]
        for append in await outcomes(appends):
            assert append.failure is None
            settled.append(append.entries[0].base_tick)
    written = [entry.base_tick for group in store.written for entry in group]
    assert written == settled
    assert all(first < second for first, second in pairwise(written))


async def test_what_arrives_during_a_sync_shares_the_next_groups() -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        await node.create("a")
        store.may_sync.clear()
        appends = [await node.submit("a", a_batch(b"first"))]
        await until(store, 1)
        appends += [await node.submit("a", a_batch(b"x")) for _ in range(500)]
        store.may_sync.set()
        await outcomes(appends)
        # One for the appends that arrived during the first sync; perhaps one more for those of the second loop step.
        assert len(store.written) <= 4


async def test_producers_that_are_opened_together_share_a_write_and_a_sync_with_appends() -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        append = await written_and_not_synced(node, store)
        opened = [asyncio.ensure_future(node.vchannels.open_producer("a", f"p{number}")) for number in range(100)]
        await asyncio.sleep(0)
        later = await node.submit("a", a_batch(b"x"))
        store.may_sync.set()
        windows = await asyncio.gather(*opened)
        await outcomes([append, later])
        assert [window.epoch for [window] in windows] == [1] * 100
        # One for the first append; all that came during its sync share the next groups.
        assert len(store.synced) <= 4
        assert len(store.rows(WINDOWS)) == 100


async def test_a_producer_is_not_opened_if_the_sync_fails() -> None:
    store = FaultyStore(fails_at_sync=1)
    async with running_node(store) as node:
        await node.create("a")
        with pytest.raises(StorageFailedError) as raised:
            await node.vchannels.open_producer("a", "p")
        assert raised.value.effect is Effect.UNKNOWN


async def test_an_append_that_takes_too_long_is_logged_and_of_several_in_a_second_one() -> None:
    store, clock = FaultyStore(), SteppedClock()
    async with running_node(store, clock=clock) as node:
        await node.create("a", 2)
        node.log.slow_appends.set_threshold(100)
        with structlog.testing.capture_logs() as logs:
            for number, seconds in enumerate((0.05, 0.2, 0.3, 0.9), 1):
                store.may_sync.clear()
                append = await node.submit("a/1", a_batch(b"x"))
                await until(store, number)
                clock.now_s += seconds
                store.may_sync.set()
                await append.outcome()
                # Reported after the acknowledgement, in the next step.
                await asyncio.sleep(0)
    told = [(event["vchannels"], event["took_ms"], event["not_logged"]) for event in logs]
    assert told == [(["a/1"], 200.0, 0), (["a/1"], 900.0, 1)]


async def test_no_append_is_too_slow_without_a_threshold() -> None:
    store, clock = FaultyStore(), SteppedClock()
    async with running_node(store, clock=clock) as node:
        node.log.slow_appends.set_threshold(0)
        with structlog.testing.capture_logs() as logs:
            append = await written_and_not_synced(node, store)
            clock.now_s += 1_000
            store.may_sync.set()
            await append.outcome()
            await asyncio.sleep(0)
    assert logs == []


async def test_no_kind_of_append_takes_time_on_a_clock_that_stands_still() -> None:
    store, clock = FaultyStore(), SteppedClock()
    async with running_node(store, clock=clock) as node:
        await node.create("a")
        node.log.slow_appends.set_threshold(1)
        caller, transactions, target = Caller("", "client"), node.transactions, node.directory.find("a")
        with structlog.testing.capture_logs() as logs:
            await node.append("a", a_batch(b"plain"))
            session = await transactions.begin([target], 0, caller)
            place = BatchOfTxn(session.txn_id, caller, 0)
            staged = Submitted(lambda settle: StagingAppend(transactions, place, target, a_batch(b"staged"), settle))
            await staged.submit(node.log.shared)
            await staged.outcome()
            await transactions.commit(session.txn_id, caller, CommitTerms, 5.0)
            # Figures are recorded after the acknowledgement, in the next step.
            await asyncio.sleep(0)
        assert logs == []
        node.log.committer.figures.refresh_metrics()
        page = node.log.metrics.render()
    assert b"\ntidelog_append_ack_seconds_count 3.0\n" in page
    assert b"\ntidelog_append_ack_seconds_sum 0.0\n" in page


async def test_a_group_is_bounded_in_bytes_and_batches() -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        await node.create("a")
        store.may_sync.clear()
        large = a_batch(bytes(1 << 20))
        appends = [await node.submit("a", large) for _ in range(20)]
        appends += [await node.submit("a", a_batch(b"")) for _ in range(MAX_GROUP_BATCHES + 100)]
        store.may_sync.set()
        await outcomes(appends)
    assert sum(map(len, store.written)) == len(appends)
    for group in store.written:
        assert sum(len(entry.columns) for entry in group) <= MAX_GROUP_BYTES
        assert len(group) <= MAX_GROUP_BATCHES


async def test_an_append_is_acknowledged_only_after_its_sync() -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        append = await written_and_not_synced(node, store)
        log, vchannel = node.directory.find("a")
        assert not append.append.settled
        assert vchannel.durable_tick == 0
        assert log.watermark() == append.append.entries[0].base_tick - 1
        store.may_sync.set()
        tick = await append.acknowledged()
        assert vchannel.durable_tick == tick <= log.watermark()


async def test_an_append_that_asks_for_no_sync_is_acknowledged_without_one() -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        await node.create("a")
        syncs = len(store.synced)
        store.may_sync.clear()
        await node.append("a", a_batch(b"x"), needs_sync=False)
        assert len(store.synced) == syncs
        store.may_sync.set()


async def test_one_append_that_asks_for_a_sync_gets_it_for_its_whole_group() -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        await node.create("a")
        store.may_sync.clear()
        appends = [await node.submit("a", a_batch(b"x"), needs_sync=number == 50) for number in range(100)]
        store.may_sync.set()
        await outcomes(appends)
        assert max(store.synced) >= 51


@pytest.mark.parametrize("appends", [1, 2, 3, 4])
async def test_what_needed_no_sync_is_synced_soon_after_the_last_append(appends: int) -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        await node.create("a")
        for _ in range(appends):
            store.has_synced.clear()
            await node.append("a", a_batch(b"x"), needs_sync=False)
        # Nothing else happens: only the idle log itself can sync.
        assert await asyncio.to_thread(store.has_synced.wait, 5)
        assert store.synced[-1] == appends


async def test_jobs_run_between_groups_after_everything_before_them() -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        await node.create("a")
        seen: list[int] = []
        appends = []
        for number in range(1, 50):
            appends.append(await node.submit("a", a_batch(b"x")))
            if number % 10 == 0:
                node.log.committer.submit_job(lambda: seen.append(store.head.sequence))
        await outcomes(appends)
        assert seen == [10, 20, 30, 40]


async def test_an_append_waits_until_the_oracle_has_extended_its_bound() -> None:
    clock = SetClock()
    async with running_node(FaultyStore(), clock=clock) as node:
        await node.create("a")
        # Beyond the bound, as after a pause of the process.
        clock.now_ms += 10 * TICK_SAVE_AHEAD_MS
        submitted = await node.submit("a", a_batch(b"x"))
        assert await submitted.acknowledged() == compose(clock.now_ms)


async def test_closing_finishes_and_syncs_what_was_submitted() -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        await node.create("a")
        appends = [await node.submit("a", a_batch(b"x"), needs_sync=False) for _ in range(100)]
    assert all(append.failure is None for append in await outcomes(appends))
    assert store.synced[-1] == 100


async def failed_node_appends(node: Node, store: FaultyStore) -> list[Append]:
    await node.create("a")
    good = await node.append("a", a_batch(b"good"))
    store.may_sync.clear()
    appends = [await node.submit("a", a_batch(b"x")) for _ in range(10)]
    await until(store, 2)
    appends += [await node.submit("a", a_batch(b"y")) for _ in range(10)]
    store.may_sync.set()
    settled = await outcomes(appends)
    log, vchannel = node.directory.find("a")
    assert vchannel.durable_tick == good
    assert log.watermark() < settled[0].entries[0].base_tick
    return settled


@pytest.mark.parametrize(("fault", "cause"), [("write", "no space left"), ("sync", "input/output error")])
async def test_the_first_failure_settles_everything_in_flight_with_its_cause(fault: str, cause: str) -> None:
    store = FaultyStore(**{f"fails_at_{fault}": 2})
    async with running_node(store) as node:
        settled = await failed_node_appends(node, store)
        assert all(append.failure is not None and cause in append.failure.message for append in settled)
        assert [failure for failure in node.failures if cause in failure.message] == node.failures[:1]


@pytest.mark.parametrize("fault", ["write", "sync"])
async def test_after_a_failure_nothing_is_written_and_every_call_is_refused(fault: str) -> None:
    store = FaultyStore(**{f"fails_at_{fault}": 2})
    async with running_node(store) as node:
        await failed_node_appends(node, store)
        written = len(store.written)
        with pytest.raises(StorageFailedError) as caught:
            await node.append("a", a_batch(b"z"))
        assert caught.value.effect.value == "none"
        with pytest.raises(StorageFailedError):
            await node.create("b")
        with pytest.raises(StorageFailedError):
            await node.vchannels.trim("a")
        assert len(store.written) == written


async def test_a_failure_of_the_idle_sync_stops_the_log() -> None:
    store = FaultyStore(fails_at_sync=1)
    async with running_node(store) as node:
        await node.create("a")
        await node.append("a", a_batch(b"x"), needs_sync=False)
        assert await asyncio.to_thread(store.has_synced.wait, 5)
        while not node.failures:
            await asyncio.sleep(0)
        with pytest.raises(StorageFailedError, match="input/output error"):
            await node.append("a", a_batch(b"z"))


async def test_a_node_that_shuts_down_takes_nothing_new_and_finishes_the_rest() -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        await node.create("a")
        store.may_sync.clear()
        append = await node.submit("a", a_batch(b"x"))
        node.log.begin_shutdown()
        with pytest.raises(ShutdownError):
            await node.submit("a", a_batch(b"y"))
        store.may_sync.set()
        assert await append.acknowledged()


class StallingStore(FaultyStore):
    """A store whose engine is busy until the test changes that."""

    def __init__(self) -> None:
        super().__init__()
        self.is_busy = False
        self.asked_while_busy = 0

    def stall_reason(self) -> str | None:
        self.asked_while_busy += self.is_busy
        return "busy" if self.is_busy else None


async def test_a_busy_engine_is_waited_for_without_stopping_the_event_loop() -> None:
    store = StallingStore()
    async with running_node(store) as node:
        await node.create("a")
        store.is_busy = True
        appends = [await node.submit("a", a_batch(b"x")) for _ in range(10)]
        while store.asked_while_busy < 3:
            await asyncio.sleep(0)
        appends += [await node.submit("a", a_batch(b"y")) for _ in range(10)]
        job = node.log.committer.submit_job(lambda: store.head.sequence)
        assert store.written == []
        store.is_busy = False
        assert all(append.failure is None for append in await outcomes(appends))
        assert await asyncio.wrap_future(job) == 20
        # All waiting appends formed one group, and the wait is counted once.
        assert [len(group) for group in store.written] == [20]
        assert node.log.metrics.commit_stalls._value.get() == 1


async def test_jobs_do_not_hold_up_the_sync_of_what_needed_none() -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        await node.create("a")
        await node.append("a", a_batch(b"x"), needs_sync=False)
        end_s = asyncio.get_running_loop().time() + 10
        while not store.synced and asyncio.get_running_loop().time() < end_s:
            await node.log.committer.run(lambda: None)
        assert store.synced == [1]


async def test_closing_twice_is_closing() -> None:
    async with running_node(FaultyStore()) as node:
        await node.create("a")
        append = await node.submit("a", a_batch(b"x"))
        await asyncio.gather(node.log.committer.close(), node.log.committer.close())
        assert (await append.outcome()).failure is None


async def test_a_job_that_fails_fails_for_its_caller_only() -> None:
    async with running_node(FaultyStore()) as node:
        await node.create("a")
        with pytest.raises(ZeroDivisionError):
            await node.log.committer.run(lambda: 1 // 0)
        assert await node.append("a", a_batch(b"x"))


async def test_a_write_is_done_at_once_beside_the_sync_of_what_was_written_before() -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        append = await written_and_not_synced(node, store)
        loop_thread = threading.get_ident()

        written_by = await node.log.committer.write(threading.get_ident)

        assert written_by == loop_thread
        assert not append.append.settled
        store.may_sync.set()
        assert await append.acknowledged()


async def test_a_write_comes_behind_everything_submitted_before_it() -> None:
    store = FaultyStore()
    async with running_node(store) as node:
        await node.create("a")
        committer, begins, may_end = node.log.committer, threading.Event(), threading.Event()

        def job() -> None:
            begins.set()
            may_end.wait(5)

        seen: list[int] = []
        appends = [await node.submit("a", a_batch(b"x")) for _ in range(10)]
        behind_appends = asyncio.create_task(committer.write(lambda: seen.append(store.head.sequence)))
        await outcomes(appends)
        await behind_appends
        assert seen == [10]
        running = asyncio.wrap_future(committer.submit_job(job))
        assert await asyncio.to_thread(begins.wait, 5)
        behind_job = asyncio.create_task(committer.write(lambda: seen.append(may_end.is_set())))
        await asyncio.sleep(0.01)
        assert seen == [10]
        may_end.set()
        await running
        await behind_job
        assert seen == [10, True]


async def test_a_write_waits_for_a_busy_engine() -> None:
    store = StallingStore()
    async with running_node(store) as node:
        await node.create("a")
        store.is_busy = True
        seen: list[bool] = []
        write = asyncio.create_task(node.log.committer.write(lambda: seen.append(store.is_busy)))
        while store.asked_while_busy < 3:
            await asyncio.sleep(0)
        assert seen == []
        store.is_busy = False
        await write
        assert seen == [False]


async def test_a_write_that_fails_stops_the_log() -> None:
    store = FaultyStore(fails_at_write=1)
    async with running_node(store) as node:
        await node.create("a")
        with pytest.raises(StorageFailedError, match="no space left"):
            await node.log.committer.write(lambda: store.write([]))
        while not node.failures:
            await asyncio.sleep(0)
        calls: list[None] = []
        with pytest.raises(StorageFailedError, match="no space left"):
            await node.log.committer.write(lambda: calls.append(None))
        with pytest.raises(StorageFailedError, match="no space left"):
            await node.append("a", a_batch(b"z"))
        assert calls == []


class Panic(BaseException):
    """Resembles a panic in RocksDB's binding: not an Exception."""


@pytest.mark.parametrize("kind", [ZeroDivisionError, Panic])
@pytest.mark.parametrize("method", ["stall_reason", "write", "sync"])
async def test_a_defect_stops_the_log_and_acknowledges_nothing(
    method: str, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*_: object) -> None:
        raise kind

    store = FaultyStore()
    seen_by_loop: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen_by_loop.append(context["exception"]))
    async with running_node(store) as node:
        await node.create("a")
        good = await node.append("a", a_batch(b"good"))
        monkeypatch.setattr(store, method, defect)
        lost = await node.submit("a", a_batch(b"x"))
        while not node.failures:
            await asyncio.sleep(0)
        assert kind.__name__ in node.failures[0].message
        with pytest.raises(StorageFailedError):
            await node.submit("a", a_batch(b"y"))
        assert node.directory.find("a")[1].durable_tick == good
        assert (await lost.outcome()).failure is not None
        monkeypatch.undo()
        assert [type(error) for error in seen_by_loop] == [kind]


class Watched(FaultyStore):
    """Records the threads that sync; a sync takes ``sync_s`` of the clock.

    Attributes:
        syncing: Name of the thread of each sync.
    """

    def __init__(self, clock: SteppedClock, **faults: int) -> None:
        super().__init__(**faults)
        self.syncing: list[str] = []
        self.sync_s = 0.0
        self._clock = clock

    def sync(self, mark: WriteMark | None = None) -> None:
        self.syncing.append(threading.current_thread().name)
        self._clock.now_s += self.sync_s
        super().sync(mark)


async def append_alone(node: Node, clock: SteppedClock, number: int) -> None:
    """Append one message after the other, each a millisecond after the answer before."""
    for _ in range(number):
        clock.now_s += 0.001
        append = await (await node.submit("a", a_batch(b"x"))).outcome()
        assert append.failure is None


async def test_the_event_loop_syncs_the_appends_of_a_lone_caller() -> None:
    clock = SteppedClock()
    store = Watched(clock)
    here = threading.current_thread().name
    async with running_node(store, clock=clock) as node:
        await node.create("a")
        store.syncing.clear()
        await append_alone(node, clock, AFTER_GROUPS + 3)
        assert store.syncing == ["tidelog-sync"] * AFTER_GROUPS + [here] * 3
        # A slow sync gives the next ones to the thread.
        store.sync_s = 2 * FAST_SYNC_S
        await append_alone(node, clock, 1)
        store.sync_s = 0.0
        await append_alone(node, clock, AFTER_GROUPS + 1)
        assert store.syncing[-AFTER_GROUPS - 2 :] == [here, *["tidelog-sync"] * AFTER_GROUPS, here]
        # So do appends that arrive together.
        clock.now_s += 0.001
        await outcomes([await node.submit("a", a_batch(b"x")) for _ in range(2)])
        await append_alone(node, clock, 1)
        assert store.syncing[-2:] == ["tidelog-sync"] * 2
    assert sum(map(len, store.written)) == store.synced[-1]


async def test_the_append_of_a_lone_caller_is_committed_in_the_step_that_submits_it() -> None:
    clock = SteppedClock()
    store = Watched(clock)
    async with running_node(store, clock=clock) as node:
        await node.create("a")
        committer = node.log.committer
        await append_alone(node, clock, AFTER_GROUPS - 1)
        clock.now_s += 0.001
        early = await node.submit("a", a_batch(b"x"))
        committer.commit_lone()
        # Not yet known to be lone.
        assert not early.append.settled
        await early.outcome()
        # Every sixteenth one is not committed at once.
        await append_alone(node, clock, 1)
        for _ in range(3):
            clock.now_s += 0.001
            lone = await node.submit("a", a_batch(b"x"))
            committer.commit_lone()
            assert lone.append.settled
            assert lone.append.failure is None
            # Its scheduled step was cancelled, and there is nothing else to commit.
            written = len(store.written)
            committer.commit_lone()
            await asyncio.sleep(0)
            assert len(store.written) == written
        clock.now_s += 0.001
        several = [await node.submit("a", a_batch(b"x")) for _ in range(2)]
        committer.commit_lone()
        assert not any(each.append.settled for each in several)
        await outcomes(several)
        assert [len(entries) for entries in store.written[-2:]] == [1, 2]
    assert sum(map(len, store.written)) == store.synced[-1]


async def test_a_failed_sync_on_the_event_loop_stops_the_log() -> None:
    clock = SteppedClock()
    store = Watched(clock)
    async with running_node(store, clock=clock) as node:
        await node.create("a")
        await append_alone(node, clock, AFTER_GROUPS)
        store.fails_at_sync = len(store.synced) + 1
        clock.now_s += 0.001
        failed = await (await node.submit("a", a_batch(b"x"))).outcome()
        assert isinstance(failed.failure, StorageFailedError)
        assert failed.failure.effect is Effect.UNKNOWN
        assert store.syncing[-1] == threading.current_thread().name
        with pytest.raises(StorageFailedError):
            await node.submit("a", a_batch(b"later"))
