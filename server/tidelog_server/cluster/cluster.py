"""This node's membership in its cluster: registered nodes, the leader, and whether this node may serve.

Keys under the root (see docs/reference/format.md)::

    <root>/cluster          the cluster's id, created once
    <root>/node/<node id>   a node's registration, under a lease; its creation revision is the node's term
    <root>/leader           the node that hands out ticks, under the same lease
    <root>/timestamp        the oracle's bound, as on a single node

Of processes without a node, see ``log_records``.
"""

import asyncio
import json
import secrets
from contextlib import aclosing
from pathlib import Path
from typing import Final, Protocol

import structlog

from tidelog_server.channels.ownership import PeerCalls
from tidelog_server.cluster.log_records import StandbyRecord, standby_key, update_known
from tidelog_server.cluster.node_import import ImportOpenError, import_key
from tidelog_server.cluster.session import Session, node_key
from tidelog_server.cluster.terms import Terms
from tidelog_server.cluster.ticks import ClusterOracle
from tidelog_server.core.errors import DataLossError, Effect
from tidelog_server.core.errors.cluster import MetadataUnavailableError, NotLeaderError, OwnershipLostError
from tidelog_server.core.limits import LEASE_HELD_PART, MAX_NODES, TICK_SAVE_AHEAD_MS
from tidelog_server.core.nodes import ChannelOwner, Node, NodeRecord, NodeTerm
from tidelog_server.core.ticks import Tick
from tidelog_server.log.oracle import TickOracle
from tidelog_server.metadata.store import Put, RevisionConflictError, Versioned, Watched
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.format.cluster_file import ClusterIdentity, read_identity, write_identity
from tidelog_server.storage.log_store import LogStore

_ID_BYTES: Final = 8
_LOOK_AGAIN_S: Final = 0.5
_log = structlog.get_logger()


class Peers(PeerCalls, Protocol):
    """Calls to other nodes. Each raises a TidelogServerError: the other node's error, or that it does not answer."""

    async def allocate_ticks(self, address: str, count: int, caller: NodeTerm) -> int:
        """Return the first of ``count`` consecutive ticks from the leader, for the registration ``caller``.

        Raises:
            OwnershipLostError: The registration has ended.
        """
        ...


class Cluster:
    """A node's membership in its cluster. Lives on the event loop; re-created after the lease was lost.

    A node registers, and opens its channels once it has ticks. In between, the owner of a log in an engine claims it.

    Attributes:
        record, node_id: This node's registration record, and its id.
        lease: Whether this node holds its lease and may serve its channels.
        nodes: Registered nodes by node id; includes this one once it is registered.
        standbys: Processes without a node, by the id of the process.
        oracle: This node's source of ticks.
        peers: Calls to other nodes.
        waits_for: Why ``open`` has not returned yet; empty if only the metadata store has to answer.
        leader: The node that hands out ticks; None while no leader is elected.
    """

    def __init__(self, session: Session, clock: Clock, peers: Peers, *, root: str) -> None:
        self.record = session.record
        self.node_id = session.record.node_id
        self.lease = session.lease
        self.nodes: dict[str, Node] = {}
        self.standbys: dict[str, StandbyRecord] = {}
        self.oracle = ClusterOracle(clock, self._fetch)
        self.peers = peers
        self.cluster_id = ""
        self._store = session.store
        self._clock = clock
        self._root = root
        self._session = session
        self.waits_for = ""
        self.leader: Node | None = None
        self._terms = Terms(self.node_id)
        self._has_led = asyncio.Event()
        # Incremented whenever a node registers or leaves.
        self.version = 0

    async def register(self, log: LogStore, folder: Path | None) -> None:
        """Register this node, whose log is in a data folder, however long that takes.

        Args:
            log: This node's log, open.
            folder: The node's data folder; None for a log in memory.

        Raises:
            DataLossError: The metadata store is older than the data folder, or belongs to another cluster or node.
        """
        identity = await self._identify(folder)
        term = await self._session.register()
        if folder is not None:
            self._check_term(identity, term)
            next_sequence = log.head.sequence + 1
            await asyncio.to_thread(write_identity, folder, identity.with_term(term, next_sequence))

    async def open(self, last_tick: Tick, tasks: TaskOwner) -> None:
        """Take part in the cluster, registered, and return once ticks are available, however long that takes.

        Args:
            last_tick: The greatest tick in this node's log.
            tasks: Owner of the background tasks, of which the first to notice the loss of the lease fails.

        Raises:
            OwnershipLostError: The lease was lost meanwhile.
            ImportOpenError: The cluster has a part of the metadata of its first node only.
        """
        term = self.lease.term
        assert term
        # Ordering: after the registration, which an import looks for once it has set its mark.
        key = import_key(self._root)
        if (mark := await self._store.get(key)) is not None:
            raise ImportOpenError.of(key, mark.value)
        self.nodes[self.node_id] = Node(self.record, term)
        self._terms.note(self.nodes[self.node_id])
        self.oracle.leave_behind(last_tick)
        tasks.keep("lease", self._session.keep())
        if not self.cluster_id:
            await self._identify(None)
        tasks.keep("nodes", self._follow_nodes())
        tasks.keep("leader", self._follow_leader())
        tasks.keep("standbys", self._follow_standbys())
        await self._has_led.wait()
        await self._first_ticks(last_tick)
        _log.info("registered", node=self.node_id, term=term, cluster=self.cluster_id)

    async def _first_ticks(self, last_tick: int) -> None:
        """Wait for ticks. The leader may be registered and not listening yet: it opens its log first."""
        while True:
            try:
                await self.oracle.allocate(1, last_tick)
            except MetadataUnavailableError as error:
                self.lease.check()
                self.waits_for = str(error)
                _log.warning("waits_for_ticks", node=self.node_id, error=str(error))
            else:
                return

    async def hand_out(self, count: int, caller: NodeTerm | None) -> Tick:
        """Return the first of ``count`` consecutive ticks for another node.

        Every tick of a node is above all that its former owners received or can still promise by a watermark: the
        owner requests ticks after its registration, and from then on the former ones are refused.

        Args:
            count: Number of ticks.
            caller: The registration that requests them; None from a node of a version that does not state it.

        Raises:
            NotLeaderError: This node is not the leader.
            OwnershipLostError: The caller's registration has ended, or this node may no longer lead.
            MetadataUnavailableError: This node may no longer lead.
            InvalidRequestError: The caller is not stated, and every registered node states it.
        """
        self.lease.check()
        if self.oracle.leading is None:
            leader = self.leader
            raise NotLeaderError(
                node_id=leader.record.node_id if leader else "", address=leader.record.address if leader else ""
            )
        await self._learn(caller)
        self._terms.check(caller, self.nodes)
        first = await self.oracle.allocate(count)
        self.lease.check()
        # Ordering: again, because during the wait a new owner may have received ticks, which are below these.
        self._terms.check(caller, self.nodes)
        return first

    async def _learn(self, caller: NodeTerm | None) -> None:
        """Read the registration of a caller whose term is greater than the known one: the watch may be late."""
        if caller is not None and caller.term > self._terms.newest(caller.node_id):
            key = node_key(self._root, caller.node_id)
            if (found := await self._store.get(key)) is not None:
                self._terms.note(_node_of(key, found))

    def owner(self, channel: str, node_id: str) -> ChannelOwner:
        """Return a channel's owner with its address and term; without them if ``node_id`` is not registered."""
        node = self.nodes.get(node_id)
        return (
            ChannelOwner(channel, node_id, node.record.address, node.term) if node else ChannelOwner(channel, node_id)
        )

    def check_metadata(self) -> None:
        """Raise MetadataUnavailableError (effect: none) if the metadata store has not answered for 1 s."""
        if self._store.silent_s > 1.0:
            raise MetadataUnavailableError(f"it has not answered for {self._store.silent_s:.1f} s", effect=Effect.NONE)

    # -- Registration --------------------------------------------------------------------------------------

    async def _identify(self, folder: Path | None) -> ClusterIdentity:
        """Read or create the cluster's id. Raises DataLossError if the data folder is of another cluster or node."""
        key = f"{self._root}/cluster"
        while (found := await self._store.get(key)) is None:
            value = json.dumps({"version": 1, "cluster_id": secrets.token_hex(_ID_BYTES)}, separators=(",", ":"))
            if folder is not None and (known := await asyncio.to_thread(read_identity, folder)) is not None:
                raise DataLossError(
                    f"the data folder belongs to cluster {known.cluster_id}, but etcd has no cluster under this "
                    "prefix: correct metadata.etcd_endpoints and metadata.etcd_prefix, or restore etcd from a backup",
                    cluster_id=known.cluster_id,
                )
            try:
                await self._store.commit([Put(key, value.encode(), 0)])
            except RevisionConflictError:
                continue
        self.cluster_id = json.loads(found.value)["cluster_id"]
        known = None if folder is None else await asyncio.to_thread(read_identity, folder)
        if known is None:
            return ClusterIdentity(self.cluster_id, self.node_id, 0)
        expected = (known.cluster_id, known.node_id)
        if expected != (self.cluster_id, self.node_id):
            raise DataLossError(
                f"the data folder belongs to node '{known.node_id}' of cluster {known.cluster_id}, but this is node "
                f"'{self.node_id}' of cluster {self.cluster_id}: correct cluster.node_id, or use another data folder",
                node_id=known.node_id, cluster_id=known.cluster_id,
            )  # fmt: skip
        return known

    def _check_term(self, identity: ClusterIdentity, term: int) -> None:
        if term <= identity.revision:
            raise DataLossError(
                f"etcd is at revision {term}, but this node has seen revision {identity.revision}: etcd was "
                "restored to an earlier state; restore its newest backup, or etcd and all nodes from matching backups",
                revision=term, seen_revision=identity.revision,
            )  # fmt: skip

    # -- Registered nodes ----------------------------------------------------------------------------------

    async def _follow_nodes(self) -> None:
        prefix = node_key(self._root, "")
        async with aclosing(self._store.watch(prefix)) as changes:
            async for watched in changes:
                self._note_nodes(prefix, watched)

    def _note_nodes(self, prefix: str, watched: Watched) -> None:
        if watched.is_snapshot:
            self.nodes.clear()
        for key in watched.deleted:
            self.nodes.pop(key.removeprefix(prefix), None)
        for key, found in watched.values.items():
            node = _node_of(key, found)
            self.nodes[node.record.node_id] = node
            self._terms.note(node)
        if len(self.nodes) > MAX_NODES:
            _log.warning("too_many_nodes", nodes=len(self.nodes), max_nodes=MAX_NODES)
        self.version += 1

    async def _follow_standbys(self) -> None:
        prefix = standby_key(self._root, "")
        async with aclosing(self._store.watch(prefix)) as changes:
            async for watched in changes:
                update_known(self.standbys, prefix, watched, StandbyRecord.decode)

    # -- Leader election -----------------------------------------------------------------------------------

    async def _follow_leader(self) -> None:
        key = f"{self._root}/leader"
        async with aclosing(self._store.watch(key)) as changes:
            async for watched in changes:
                found = watched.values.get(key)
                if found is not None:
                    record = NodeRecord.decode(key, found.value)
                    self.leader = Node(record, found.revision)
                    if record.incarnation != self.record.incarnation:
                        self._has_led.set()
                        # So that a new leader soon knows of every node that it states its term.
                        self.oracle.is_wanted.set()
                    elif self.oracle.leading is None:
                        # This process was elected by a commit whose response was lost.
                        await self._lead()
                elif watched.deleted or watched.is_snapshot:
                    self.leader = None
                    await self._campaign(key)

    async def _campaign(self, key: str) -> None:
        """Try to become the leader while the lease is held. If another node is faster, the watch reports it."""
        while True:
            try:
                await self._store.commit([Put(key, self.record.encode(), 0, self._session.lease_id)])
            except RevisionConflictError:
                return
            except MetadataUnavailableError as error:
                # Ordering: after a short outage no change follows that the watch would report.
                self.lease.check()
                _log.warning("not_elected", error=str(error))
                await asyncio.sleep(_LOOK_AGAIN_S)
            else:
                return

    async def _lead(self) -> None:
        ahead_ms = TICK_SAVE_AHEAD_MS + int(LEASE_HELD_PART * self._session.ttl_s * 1_000)
        oracle = TickOracle(self._clock, self._store, f"{self._root}/timestamp", save_ahead_ms=ahead_ms)
        while True:
            try:
                await oracle.open(self.oracle.last)
                # Ordering: after the election. A former leader knew of later registrations, from their requests.
                for key, found in (await self._store.list(node_key(self._root, ""))).items():
                    self._terms.note(_node_of(key, found))
            except MetadataUnavailableError as error:
                # While this node is registered as the leader, no other one is elected.
                self.lease.check()
                _log.warning("not_leading_yet", error=str(error))
                await asyncio.sleep(_LOOK_AGAIN_S)
            else:
                break
        self.oracle.lead(oracle)
        self._has_led.set()
        _log.info("leads", node=self.node_id)

    async def _fetch(self, count: int) -> int:
        leader = self.leader
        if leader is None or leader.record.incarnation == self.record.incarnation:
            raise NotLeaderError(node_id="", address="")
        address = leader.record.address_for_nodes
        try:
            return await self.peers.allocate_ticks(address, count, NodeTerm(self.node_id, self.lease.term))
        except OwnershipLostError:
            # Another process has registered as this node, whatever the clock that measures the lease says.
            self.lease.end()
            raise
        except (NotLeaderError, MetadataUnavailableError) as error:
            if isinstance(error, NotLeaderError):
                problem = "the node at this address is not the leader"
            else:
                problem = error.values["cause"]
            raise MetadataUnavailableError(
                f"the leader, node '{leader.record.node_id}', was called at {address}: {problem}; nodes call each "
                "other at cluster.peer_address, which defaults to cluster.advertise"
            ) from error


def _node_of(key: str, found: Versioned) -> Node:
    """Return a registered node. A registration is written once, so its revision is its creation revision: the term."""
    return Node(NodeRecord.decode(key, found.value), found.revision)
