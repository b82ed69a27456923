"""This node's membership in its cluster: registered nodes, the leader, and whether this node may serve.

Keys under the root (see docs/reference/format.md)::

    <root>/cluster          the cluster's id, created once
    <root>/node/<node id>   a node's registration, under a lease; its creation revision is the node's term
    <root>/leader           the node that hands out ticks, under the same lease
    <root>/timestamp        the oracle's bound, as on a single node
"""

import asyncio
import json
import secrets
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Final, Protocol

import structlog

from tidelog_server.cluster.session import Session
from tidelog_server.cluster.ticks import ClusterOracle
from tidelog_server.core.errors import DataLossError, Effect
from tidelog_server.core.errors.cluster import MetadataUnavailableError, NotLeaderError
from tidelog_server.core.limits import LEASE_HELD_PART, MAX_NODES, TICK_SAVE_AHEAD_MS
from tidelog_server.core.nodes import ChannelOwner, Node, NodeRecord
from tidelog_server.core.ticks import Tick
from tidelog_server.log.lease_validity import LeaseValidity
from tidelog_server.log.oracle import TickOracle
from tidelog_server.metadata.store import Put, RevisionConflictError, SharedMetadataStore, Watched
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.tasks import TaskOwner
from tidelog_server.storage.format.cluster_file import ClusterIdentity, read_identity, write_identity
from tidelog_server.storage.log_store import LogStore

_ID_BYTES: Final = 8
_LOOK_AGAIN_S: Final = 0.5
_log = structlog.get_logger()


class Peers(Protocol):
    """Calls to other nodes. Each raises a TidelogServerError: the other node's error, or that it does not answer."""

    async def allocate_ticks(self, address: str, count: int) -> int:
        """Return the first of ``count`` consecutive ticks from the leader."""
        ...

    async def note_channels(self, address: str, names: Sequence[str]) -> None:
        """Notify a node that channels were created; it opens those that it owns."""
        ...


class Cluster:
    """A node's membership in its cluster. Lives on the event loop; re-created after the lease was lost.

    Attributes:
        record: This node's registration record.
        lease: Whether this node holds its lease and may serve its channels.
        nodes: Registered nodes by node id; includes this one once it is registered.
        oracle: This node's source of ticks.
        peers: Calls to other nodes.
        waits_for: Why ``open`` has not returned yet; empty if only the metadata store has to answer.
    """

    def __init__(
        self,
        store: SharedMetadataStore,
        clock: Clock,
        record: NodeRecord,
        peers: Peers,
        *,
        root: str,
        lease_ttl_s: int,
    ) -> None:
        self.record = record
        self.lease = LeaseValidity(clock, record.node_id)
        self.nodes: dict[str, Node] = {}
        self.oracle = ClusterOracle(clock, self._fetch)
        self.peers = peers
        self.cluster_id = ""
        self._store = store
        self._clock = clock
        self._root = root
        self._lease_ttl_s = lease_ttl_s
        self._session = Session(store, clock, self.lease, key=self._node_key(record.node_id), ttl_s=lease_ttl_s)
        self.waits_for = ""
        self._leader: Node | None = None
        self._has_led = asyncio.Event()
        # Incremented whenever a node registers or leaves.
        self.version = 0

    @property
    def node_id(self) -> str:
        """This node's id."""
        return self.record.node_id

    @property
    def leader(self) -> Node | None:
        """The node that hands out ticks; None while no leader is elected."""
        return self._leader

    @property
    def silent_s(self) -> float:
        """Seconds since the metadata store stopped answering; 0 while it answers."""
        return self._store.silent_s

    async def open(self, log: LogStore, folder: Path | None, tasks: TaskOwner) -> None:
        """Register this node, and return once ticks are available, however long that takes.

        Args:
            log: This node's log, open.
            folder: The node's data folder; None for a log in memory.
            tasks: Owner of the background tasks, of which the first to notice the loss of the lease fails.

        Raises:
            DataLossError: The metadata store is older than the data folder, or belongs to another cluster or node.
            OwnershipLostError: The lease was lost meanwhile.
        """
        identity = await self._identify(folder)
        term = await self._session.register(self.record)
        if folder is not None:
            self._check_term(identity, term)
            next_sequence = log.head.sequence + 1
            await asyncio.to_thread(write_identity, folder, identity.with_term(term, next_sequence))
        self.nodes[self.node_id] = Node(self.record, term)
        self.oracle.open(log.head.last_tick)
        tasks.keep("lease", self._session.keep())
        tasks.keep("nodes", self._follow_nodes())
        tasks.keep("leader", self._follow_leader())
        await self._has_led.wait()
        await self._first_ticks(log.head.last_tick)
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

    async def close(self) -> None:
        """Delete this node's registration. Called when no request is acknowledged any more."""
        await self._session.leave()

    async def hand_out(self, count: int) -> Tick:
        """Return the first of ``count`` consecutive ticks for another node.

        Raises:
            NotLeaderError: This node is not the leader.
            OwnershipLostError, MetadataUnavailableError: This node may no longer lead.
        """
        self.lease.check()
        if self.oracle.leading is None:
            leader = self._leader
            raise NotLeaderError(
                node_id=leader.record.node_id if leader else "", address=leader.record.address if leader else ""
            )
        first = await self.oracle.allocate(count)
        self.lease.check()
        return first

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
        prefix = self._node_key("")
        async with aclosing(self._store.watch(prefix)) as changes:
            async for watched in changes:
                self._note_nodes(prefix, watched)

    def _note_nodes(self, prefix: str, watched: Watched) -> None:
        if watched.is_snapshot:
            self.nodes.clear()
        for key in watched.deleted:
            self.nodes.pop(key.removeprefix(prefix), None)
        for key, found in watched.values.items():
            # A registration is written once, so its revision is its creation revision: the node's term.
            node = Node(NodeRecord.decode(key, found.value), found.revision)
            self.nodes[node.record.node_id] = node
        if len(self.nodes) > MAX_NODES:
            _log.warning("too_many_nodes", nodes=len(self.nodes), max_nodes=MAX_NODES)
        self.version += 1

    # -- Leader election -----------------------------------------------------------------------------------

    async def _follow_leader(self) -> None:
        key = f"{self._root}/leader"
        async with aclosing(self._store.watch(key)) as changes:
            async for watched in changes:
                found = watched.values.get(key)
                if found is not None:
                    record = NodeRecord.decode(key, found.value)
                    self._leader = Node(record, found.revision)
                    if record.incarnation != self.record.incarnation:
                        self._has_led.set()
                    elif self.oracle.leading is None:
                        # This process was elected by a commit whose response was lost.
                        await self._lead()
                elif watched.deleted or watched.is_snapshot:
                    self._leader = None
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
        ahead_ms = TICK_SAVE_AHEAD_MS + int(LEASE_HELD_PART * self._lease_ttl_s * 1_000)
        oracle = TickOracle(self._clock, self._store, f"{self._root}/timestamp", save_ahead_ms=ahead_ms)
        while True:
            try:
                await oracle.open(self.oracle.last)
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
        leader = self._leader
        if leader is None or leader.record.incarnation == self.record.incarnation:
            raise NotLeaderError(node_id="", address="")
        address = leader.record.address_for_nodes
        try:
            return await self.peers.allocate_ticks(address, count)
        except (NotLeaderError, MetadataUnavailableError) as error:
            if isinstance(error, NotLeaderError):
                problem = "the node at this address is not the leader"
            else:
                problem = error.values["cause"]
            raise MetadataUnavailableError(
                f"the leader, node '{leader.record.node_id}', was called at {address}: {problem}; nodes call each "
                "other at cluster.peer_address, which defaults to cluster.advertise"
            ) from error

    def _node_key(self, node_id: str) -> str:
        return f"{self._root}/node/{node_id}"
