"""A former owner of a node gets no ticks, so each of its watermarks is below every tick of the new owner.

Method: clusters over one metadata store in memory, which call each other. The clock of the former owner stands still,
as on a suspended virtual machine, and it cannot renew its lease, so it never notices that the lease has ended.

Promises of docs/reference/guarantees.md: G56.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from tidelog_server.cluster.cluster import Cluster
from tidelog_server.cluster.session import Session
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.errors.cluster import MetadataUnavailableError, OwnershipLostError
from tidelog_server.core.nodes import NodeRecord, NodeTerm
from tidelog_server.core.ticks import NO_TICK, physical_ms
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_server.metadata.store import Change, Delete, Put, Watched
from tidelog_server.runtime.clock import Clock, SystemClock
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_testing.parts.clocks import SteppedClock

LEASE_S = 60
MOST_TICKS = 4_000_000


class Metadata(MemoryMetadataStore):
    """The connection of one node to the shared metadata.

    Attributes:
        is_cut: The lease cannot be renewed.
        is_late: No change of a registration is reported.
        may_save: Commits of the leader's bound wait for it.
        is_saving: A commit of the leader's bound waits, or has waited.
    """

    def __init__(self, shared: SharedMemory) -> None:
        super().__init__(shared)
        self.is_cut = False
        self.is_late = False
        self.is_saving = False
        self.may_save = asyncio.Event()
        self.may_save.set()

    async def renew_lease(self, lease_id: int) -> float:
        if self.is_cut:
            raise MetadataUnavailableError("it is cut off")
        return await super().renew_lease(lease_id)

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        if any(change.key == "root/timestamp" for change in changes):
            self.is_saving = not self.may_save.is_set()
            await self.may_save.wait()
        return await super().commit(changes, is_before_log=is_before_log)

    async def watch(self, prefix: str) -> AsyncGenerator[Watched, None]:
        async for watched in super().watch(prefix):
            if watched.is_snapshot or not (self.is_late and prefix == "root/node/"):
                yield watched


class Wire:
    """The calls between the nodes, by address. Implements ``cluster.Peers``."""

    def __init__(self) -> None:
        self.at: dict[str, Cluster] = {}

    async def allocate_ticks(self, address: str, *request: Any) -> int:
        return await self.at[address].hand_out(*request)

    async def note_channels(self, address: str, names: Sequence[str]) -> None:
        raise AssertionError(f"{address} was notified of {names}")


class Nodes:
    """The running processes, each a member of the cluster under a node id."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.shared = SharedMemory()
        self.metadata: dict[str, Metadata] = {}
        self.tasks: dict[str, TaskOwner] = {}
        self.sessions: dict[str, Session] = {}
        self.deaths: list[str] = []
        self._stack = stack
        self._wire = Wire()

    async def start(self, process: str, node_id: str, clock: Clock | None = None, *, is_late: bool = False) -> Cluster:
        """Return a new member, once it has registered and has ticks."""
        store = self.metadata[process] = Metadata(self.shared)
        store.is_late = is_late
        record = NodeRecord(node_id, process, process, process, "1")
        clock = clock or SystemClock()
        session = self.sessions[process] = Session(store, clock, record, root="root", ttl_s=LEASE_S)
        cluster = Cluster(session, clock, self._wire, root="root")
        tasks = self.tasks[process] = TaskOwner(lambda name, cause: self.deaths.append(f"{process}: {name}: {cause}"))
        self._wire.at[process] = cluster
        self._stack.push_async_callback(store.close)
        self._stack.push_async_callback(tasks.close)
        async with asyncio.timeout(20):
            await cluster.register(MemoryLogStore(), None)
            await cluster.open(NO_TICK, tasks)
        return cluster

    def end_lease(self, former: Cluster) -> None:
        """End the lease of a member that was suspended meanwhile, and does not know it."""
        self.metadata[former.record.address].is_cut = True
        self.shared.commit([Delete(f"root/node/{former.node_id}", None)], None)
        assert former.lease.is_held()

    async def suspended(self, process: str, node_id: str) -> Cluster:
        """Return a new member that was suspended until its lease had ended, and does not know it."""
        former = await self.start(process, node_id, SteppedClock())
        self.end_lease(former)
        return former


@asynccontextmanager
async def started() -> AsyncIterator[Nodes]:
    async with AsyncExitStack() as stack:
        nodes = Nodes(stack)
        yield nodes
    # A node whose registration has ended notices it, by whichever task is first.
    assert [death for death in nodes.deaths if "expired" not in death] == []


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


def term_of(cluster: Cluster) -> NodeTerm:
    return NodeTerm(cluster.node_id, cluster.lease.term)


async def promise_is_kept(former: Cluster, owner: Cluster) -> bool:
    """Return whether a watermark of ``former``, which asks for ticks, is below the next tick of ``owner``."""
    await owner.oracle.allocate(1)
    with suppress(OwnershipLostError):
        await former.oracle.refresh()
    watermark = former.oracle.now()
    return watermark < await owner.oracle.allocate(1)


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_watermark_of_a_former_owner_is_below_every_tick_of_the_new_one(is_late: bool) -> None:
    async with started() as nodes:
        await nodes.start("leader", "n0", is_late=is_late)
        former = await nodes.suspended("former", "n1")
        owner = await nodes.start("owner", "n1")

        assert await promise_is_kept(former, owner)
        # Only now does it know.
        assert not former.lease.is_held()


async def test_a_leader_that_was_elected_later_refuses_a_former_owner_too() -> None:
    async with started() as nodes:
        await nodes.start("leader", "n0")
        former = await nodes.start("former", "n1", SteppedClock())
        # It does not hear of registrations that follow its own.
        next_leader = await nodes.start("next leader", "n2", is_late=True)
        nodes.end_lease(former)
        await nodes.start("owner", "n1")
        await nodes.sessions["leader"].leave()
        await until(lambda: next_leader.oracle.leading is not None)

        with pytest.raises(OwnershipLostError, match="n1"):
            await next_leader.hand_out(1, term_of(former))


async def test_a_new_owner_that_leads_refuses_the_former_one() -> None:
    async with started() as nodes:
        await nodes.start("leader", "n0")
        former = await nodes.suspended("former", "n1")
        owner = await nodes.start("owner", "n1")
        await nodes.sessions["leader"].leave()
        await until(lambda: owner.oracle.leading is not None)

        with pytest.raises(OwnershipLostError, match="n1"):
            await owner.hand_out(1, term_of(former))


async def test_a_request_of_a_former_owner_that_waits_while_the_new_one_gets_ticks_is_refused() -> None:
    async with started() as nodes:
        clock = SteppedClock()
        leader = await nodes.start("leader", "n0", clock)
        former = await nodes.suspended("former", "n1")
        assert leader.oracle.leading is not None
        clock.now_ms = leader.oracle.leading._state.bound_ms - 5
        nodes.metadata["leader"].may_save.clear()

        # These ticks take 16 ms, and the bound is 5 ms away. Those of the new owner fit below it.
        waiting = asyncio.create_task(leader.hand_out(MOST_TICKS, term_of(former)))
        await until(lambda: nodes.metadata["leader"].is_saving)
        owner = await nodes.start("owner", "n1")
        tick = await owner.oracle.allocate(1)
        nodes.metadata["leader"].may_save.set()

        with pytest.raises(OwnershipLostError):
            await waiting
        assert physical_ms(tick) == clock.now_ms


async def test_a_term_that_no_process_has_gets_no_ticks_and_takes_none_away() -> None:
    async with started() as nodes:
        leader = await nodes.start("leader", "n0")
        owner = await nodes.start("owner", "n1")
        node_id, term = term_of(owner)

        for caller in (NodeTerm(node_id, term + 1_000), NodeTerm("n9", 1)):
            with pytest.raises(OwnershipLostError, match=caller.node_id):
                await leader.hand_out(1, caller)
        assert await leader.hand_out(1, term_of(owner)) < await leader.hand_out(1, term_of(owner))


async def test_a_request_without_a_term_is_served_while_a_registered_node_has_stated_none() -> None:
    async with started() as nodes:
        leader = await nodes.start("leader", "n0")
        with pytest.raises(InvalidRequestError, match="states no node and no term"):
            await leader.hand_out(1, None)

        # A node of an earlier version registers, and is then upgraded.
        record = NodeRecord("n1", "earlier", "earlier", "earlier", "1")
        nodes.shared.commit([Put("root/node/n1", record.encode(), 0)], None)
        await until(lambda: "n1" in leader.nodes)
        await leader.hand_out(1, None)
        nodes.shared.commit([Delete("root/node/n1", None)], None)
        await nodes.start("upgraded", "n1")
        await until(lambda: leader.nodes["n1"].record.address == "upgraded")

        with pytest.raises(InvalidRequestError, match="states no node and no term"):
            await leader.hand_out(1, None)


async def test_nodes_state_their_terms_to_a_new_leader_before_they_need_ticks() -> None:
    async with started() as nodes:
        await nodes.start("leader", "n0")
        others = [await nodes.start(node_id, node_id) for node_id in ("n1", "n2")]
        for other in others:
            nodes.tasks[other.node_id].keep("oracle", other.oracle.run())
        await nodes.sessions["leader"].leave()
        await until(lambda: any(other.oracle.leading for other in others))
        [next_leader] = [other for other in others if other.oracle.leading]

        async def refuses() -> bool:
            with suppress(InvalidRequestError):
                await next_leader.hand_out(1, None)
                return False
            return True

        async with asyncio.timeout(20):
            while not await refuses():
                await asyncio.sleep(0.01)
