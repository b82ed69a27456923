"""Processes without a node, over a metadata store in memory and logs in folders: which serves what, and what fails."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tidelog_server.cluster.log_records import Lag, LogRecord, StandbyRecord, log_key, standby_key
from tidelog_server.cluster.session import Session, node_key
from tidelog_server.cluster.standby import NODE_LEFT_S, LeftNodes, Standby, Won
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.nodes import NodeRecord
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_server.metadata.store import Delete, Put
from tidelog_server.recordlog.engine import LogMissingError, Read
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.recordlog.records import INCARNATION_BYTES, Position
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.engine.open import LogName, PreparedStore, open_engine_store, prepare_engine_store
from tidelog_testing.parts.folder_engine import FolderEngine

_ROOT = "root"
_CLOCK = SystemClock()
_WITHIN_S = 30.0


class HeldEngine(FolderEngine):
    """A log that shows waiting readers nothing while a test forbids it."""

    def __init__(self, folder: Path, may_show: threading.Event, showing: threading.Lock) -> None:
        super().__init__(folder)
        self._may_show = may_show
        self._showing = showing

    def read(self, begin: Position, max_bytes: int, wait_s: float = 0.0) -> Read:
        if not wait_s:
            return super().read(begin, max_bytes)
        if not self._may_show.wait(wait_s):
            return Read([], begin)
        with self._showing:
            return super().read(begin, max_bytes, wait_s) if self._may_show.is_set() else Read([], begin)


class World:
    """Logs in folders, and a metadata store.

    Attributes:
        left: Of each process, the nodes that it leaves to others.
        sessions: All registrations, also those that failed.
        may_open: Logs are opened while it is set.
        may_show: Logs show records to readers that wait while it is set, except for a read that has begun.
        showing: Held while a read that waits may show records.
        ttl_s: Duration of leases.
        standby_ttl_s: Duration of leases of standbys.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shared = SharedMemory(_CLOCK)
        self.store = MemoryMetadataStore(self.shared)
        self.left: dict[str, LeftNodes] = {}
        self.sessions: list[Session] = []
        self.may_open = threading.Event()
        self.may_open.set()
        self.may_show = threading.Event()
        self.may_show.set()
        self.showing = threading.Lock()
        self.ttl_s = self.standby_ttl_s = 60

    async def create(self, *nodes: str) -> None:
        for node in nodes:
            identity = node.encode().ljust(INCARNATION_BYTES)
            log = self.log(node)
            log.create(identity)
            log.close()
            await self.store.commit([Put(log_key(_ROOT, node), LogRecord(node, identity).encode(), 0)])

    def log(self, name: str) -> RecordLog:
        return RecordLog(HeldEngine(self.folder / "logs" / name, self.may_show, self.showing), _CLOCK)

    def standby(self, process: str, only: str | None = None) -> Standby:
        def new_session(node: str) -> Session:
            record = NodeRecord(node, "127.0.0.1:1", "127.0.0.1:2", process, "1")
            session = Session(MemoryMetadataStore(self.shared), _CLOCK, record, root=_ROOT, ttl_s=self.ttl_s)
            self.sessions.append(session)
            return session

        def open_log(node: str, record: LogRecord, is_abandoned: Callable[[], bool]) -> PreparedStore:
            self.may_open.wait(_WITHIN_S)
            log = self.log(record.topic)
            log.is_abandoned = is_abandoned
            return prepare_engine_store(self.folder / process / node, log, LogName("folder", record.topic))

        left = self.left.setdefault(process, LeftNodes(_CLOCK))
        return Standby(
            MemoryMetadataStore(self.shared), _CLOCK, root=_ROOT, process=process, only=only, max_follows=2,
            lease_ttl_s=self.standby_ttl_s, new_session=new_session, open_log=open_log, left=left,
            described=StandbyRecord(frozenset(), address=f"{process}:1"),
        )  # fmt: skip

    @asynccontextmanager
    async def waiting(self, standby: Standby) -> AsyncIterator["asyncio.Task[Won]"]:
        """Run a standby, which is not given a node meanwhile; cancel it in the end."""
        async with asyncio.TaskGroup() as group:
            running = group.create_task(standby.run())
            yield running
            running.cancel()

    async def records(self, prefix: str) -> dict[str, bytes]:
        return {key.removeprefix(prefix): found.value for key, found in (await self.store.list(prefix)).items()}


@pytest.fixture
async def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(_WITHIN_S):
        while not holds():
            await asyncio.sleep(0.01)


async def won(standby: Standby) -> Won:
    async with asyncio.timeout(_WITHIN_S):
        return await standby.run()


async def test_processes_serve_a_node_each_and_the_rest_applies_their_logs(world: World) -> None:
    await world.create("n1", "n2")
    first, second = await won(world.standby("p1")), await won(world.standby("p2"))
    assert {first.session.record.node_id, second.session.record.node_id} == {"n1", "n2"}
    third = world.standby("p3")
    async with world.waiting(third) as running:
        await until(lambda: third.caught_up == {"n1", "n2"})
        [(process, value)] = (await world.records(standby_key(_ROOT, ""))).items()
        assert process == "p3"
        assert StandbyRecord.decode("", value).follows == {"n1", "n2"}
        assert not running.done()
        # The owner ends: its registration is gone at once.
        first.store.create_vchannels([7])
        first.store.close()
        await first.session.leave()
        async with asyncio.timeout(_WITHIN_S):
            taken = await asyncio.shield(running)
    assert taken.session.record.node_id == first.session.record.node_id
    assert first.session.lease.term < taken.session.lease.term
    assert taken.store.vchannel_ids() == [7]
    # It is no standby any more, and its registration is that of its term.
    assert await world.records(standby_key(_ROOT, "")) == {}
    registered = await world.store.list(node_key(_ROOT, ""))
    assert {found.revision for found in registered.values()} == {taken.session.lease.term, second.session.lease.term}
    for each in (taken, second):
        each.store.close()


async def test_a_standby_tells_how_far_it_is_behind(world: World) -> None:
    world.standby_ttl_s = 1
    await world.create("n1")
    owner = await won(world.standby("p1"))
    standby = world.standby("p2")

    async def told(holds: Callable[[Lag], bool]) -> StandbyRecord:
        async with asyncio.timeout(_WITHIN_S):
            while True:
                for key, value in (await world.records(standby_key(_ROOT, ""))).items():
                    record = StandbyRecord.decode(key, value)
                    if (lag := record.lags.get("n1")) is not None and holds(lag):
                        return record
                await asyncio.sleep(0.05)

    async with world.waiting(standby):
        record = await told(lambda lag: lag == (0, 0.0))
        assert (record.follows, record.address) == (frozenset({"n1"}), "p2:1")
        assert standby.lags["n1"].positions == 0
        # It looks each second, and had everything then.
        assert standby.lags["n1"].seconds < _WITHIN_S
        world.may_show.clear()
        # A read that has begun ends.
        await asyncio.to_thread(world.showing.acquire)
        world.showing.release()
        for vchannel in range(3):
            await asyncio.to_thread(owner.store.create_vchannels, [vchannel + 1])
        record = await told(lambda lag: lag.positions == 3 and lag.seconds > 1.5)
        before = record.lags["n1"].seconds
        await told(lambda lag: lag.seconds > before)
        assert standby.lags["n1"].positions == 3
        world.may_show.set()
        await told(lambda lag: lag == (0, 0.0))
    owner.store.close()


async def test_a_record_of_a_standby_of_an_earlier_version_is_known() -> None:
    assert StandbyRecord.decode("key", b'{"version":1,"follows":["n2","n1"]}') == StandbyRecord(frozenset({"n1", "n2"}))


async def test_the_term_of_a_claim_is_that_of_the_registration(world: World) -> None:
    await world.create("n1")
    owner = await won(world.standby("p1", "n1"))
    owner.store.close()
    with closing(prepare_engine_store(world.folder / "looked", world.log("n1"), LogName("folder", "n1"))) as view:
        while view.follow():
            pass
        assert view.term == owner.session.lease.term


async def test_a_process_with_a_node_id_takes_that_node_only(world: World) -> None:
    await world.create("n1", "n2")
    owner = await won(world.standby("p1", "n1"))
    second = world.standby("p2", "n1")
    async with world.waiting(second) as running:
        await until(lambda: second.caught_up)
        assert second.follows == {"n1"}
        assert not running.done()
    owner.store.close()


async def test_a_damaged_log_is_left_to_others_and_another_node_is_taken(world: World) -> None:
    await world.create("n1", "n2")
    (world.folder / "logs" / "n1" / f"{0:020}").write_bytes(b"TLOG" + bytes(100))
    open_engine_store(world.folder / "warm", world.log("n2"), LogName("folder", "n2")).close()
    with capture_logs() as logs:
        owner = await won(world.standby("p1"))
        assert owner.session.record.node_id == "n2"
        second = world.standby("p2")
        async with world.waiting(second):
            await until(lambda: "n1" in world.left["p2"].until_s)
            assert NODE_LEFT_S - 5 < world.left["p2"].until_s["n1"] - _CLOCK.monotonic_s() <= NODE_LEFT_S
            await until(lambda: second.follows == {"n2"})
            assert await world.records(node_key(_ROOT, "n1")) == {}
    told = [each for each in logs if each["event"] == "node_not_opened"]
    assert {(each["node"], each["left_s"], each["log_level"]) for each in told} == {("n1", NODE_LEFT_S, "error")}
    owner.store.close()


async def test_a_damaged_log_ends_a_process_that_is_to_serve_it(world: World) -> None:
    await world.create("n1")
    (world.folder / "logs" / "n1" / f"{0:020}").unlink()
    other = world.log("n1")
    other.create(b"another log".ljust(INCARNATION_BYTES))
    other.close()
    with pytest.raises(DataLossError, match="'n1' is another one than the cluster has recorded"):
        await won(world.standby("p1", "n1"))
    # Its registration did not outlive it.
    assert await world.records(node_key(_ROOT, "")) == {}


async def test_a_metadata_store_that_is_older_than_the_log_is_refused(world: World) -> None:
    await world.create("n1")
    open_engine_store(world.folder / "other", world.log("n1"), LogName("folder", "n1"), term=1_000).close()
    with pytest.raises(DataLossError, match="was claimed in term 1000: etcd was restored to an earlier state"):
        await won(world.standby("p1", "n1"))


async def test_without_a_node_or_without_the_node_a_start_is_refused(world: World) -> None:
    with pytest.raises(LogMissingError, match="the cluster has no node: create the log of one"):
        await won(world.standby("p1"))
    await world.create("n1")
    with pytest.raises(LogMissingError, match="node 'n2' has no log: create it with `tidelog engine create n2`"):
        await won(world.standby("p1", "n2"))


async def test_a_node_that_is_created_later_is_served(world: World) -> None:
    await world.create("n1")
    owner = await won(world.standby("p1"))
    second = world.standby("p2")
    async with world.waiting(second) as running:
        await until(lambda: second.caught_up)
        await world.create("n2")
        async with asyncio.timeout(_WITHIN_S):
            taken = await asyncio.shield(running)
    assert taken.session.record.node_id == "n2"
    # A record that someone deleted is no node any more.
    await world.store.commit([Delete(log_key(_ROOT, "n1"), None)])
    for each in (owner, taken):
        each.store.close()


async def test_a_registration_that_ends_during_the_claim_is_made_again_in_a_new_term(world: World) -> None:
    await world.create("n1")
    world.ttl_s = 2
    world.may_open.clear()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(won(world.standby("p1")))
        await until(lambda: world.sessions and world.sessions[0].lease.term)
        lost = world.sessions[0]
        await world.store.revoke_lease(lost.lease_id)
        await until(lambda: not lost.lease.is_held())
        world.may_open.set()
        owner = await running
    assert owner.session.lease.term > lost.lease.term
    assert owner.session.lease.is_held()
    owner.store.close()


async def test_a_node_that_was_won_is_given_back_if_the_process_ends_in_that_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("n1")
    standby = world.standby("p1")
    stand_by = standby._stand_by

    async def then_end() -> None:
        await stand_by()
        raise asyncio.CancelledError

    monkeypatch.setattr(standby, "_stand_by", then_end)
    with pytest.raises(asyncio.CancelledError):
        await standby.run()

    assert await world.records(node_key(_ROOT, "")) == {}
    owner = await won(world.standby("p2"))
    owner.store.close()
