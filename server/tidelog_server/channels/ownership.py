"""Ownership of channels: which node owns a channel, where new ones are placed, and how other nodes are notified."""

import asyncio
import heapq
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import structlog

from tidelog_server.channels.catalog import Catalog, ChannelRecord
from tidelog_server.core.errors import TidelogServerError
from tidelog_server.core.errors.cluster import NotOwnerError
from tidelog_server.core.nodes import ChannelOwner, Node

_NOTIFY_WITHIN_S: Final = 2.0
_log = structlog.get_logger()


class PeerCalls(Protocol):
    """Calls to other nodes. Each raises a TidelogServerError: the other node's error, or that it does not answer."""

    async def note_channels(self, address: str, names: Sequence[str]) -> None:
        """Notify a node that channels were created; it opens those that it owns."""
        ...


class Membership(Protocol):
    """What the ownership of channels needs of the cluster."""

    @property
    def node_id(self) -> str:
        """This node's id."""
        ...

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Registered nodes by node id."""
        ...

    @property
    def version(self) -> int:
        """A number that is incremented whenever a node registers or leaves."""
        ...

    @property
    def peers(self) -> PeerCalls:
        """Calls to other nodes."""
        ...

    def owner(self, channel: str, node_id: str) -> ChannelOwner:
        """Return a channel's owner with its address and term; without them if ``node_id`` is not registered."""
        ...

    def check_metadata(self) -> None:
        """Raise MetadataUnavailableError (effect: none) while the metadata store does not answer."""
        ...


class Ownership:
    """Maps channels to the nodes that own them. A standalone server owns every channel.

    Attributes:
        catalog: The records of channels.
    """

    def __init__(self, catalog: Catalog, cluster: Membership | None) -> None:
        self.catalog = catalog
        self._cluster = cluster
        # Shared by all watches: an object for each of thousands of channels, for each watch, would be gigabytes.
        self._owners: dict[str, ChannelOwner] = {}

    @property
    def node_id(self) -> str:
        """This node's id; empty on a standalone server."""
        return "" if self._cluster is None else self._cluster.node_id

    def check_metadata(self) -> None:
        """Raise MetadataUnavailableError (effect: none) while the metadata store does not answer."""
        if self._cluster is not None:
            self._cluster.check_metadata()

    def check_here(self, channel: str, name: str) -> None:
        """Raise NotOwnerError if another node owns ``channel``; ``name`` is the requested name, for the error."""
        if self._cluster is None:
            return
        record = self.catalog.foreign.get(channel)
        if record is not None:
            owner = self._cluster.owner(channel, record.node_id)
            raise NotOwnerError(name, node_id=owner.node_id, address=owner.address, term=owner.term)

    def owner(self, channel: str) -> ChannelOwner | None:
        """Return the owner of a channel; None if the channel does not exist."""
        record = self.catalog.records.get(channel)
        if record is None or record.is_destroying:
            self._owners.pop(channel, None)
            return None
        owner = ChannelOwner(channel, "") if self._cluster is None else self._cluster.owner(channel, record.node_id)
        if self._owners.get(channel) != owner:
            if len(self._owners) > len(self.catalog.names):
                # Most are of channels that were destroyed.
                self._owners.clear()
            self._owners[channel] = owner
        return self._owners[channel]

    def place(self, channels: int, vchannels: int) -> list[str]:
        """Return the node id for each of ``channels`` new channels; empty on a standalone server."""
        if self._cluster is None:
            return []
        loads = self.catalog.vchannels_of
        return place({node_id: loads[node_id] for node_id in self._cluster.nodes}, channels, vchannels)

    async def notify(self, records: Sequence[ChannelRecord]) -> None:
        """Notify the other nodes of new channels.

        Each then serves those that it owns and names the owner of the others. Without the notification, or if a node
        does not answer, it learns of them a moment later from its watch, and until then reports that they do not exist.
        """
        if self._cluster is None or not records:
            return
        others = [node_id for node_id in self._cluster.nodes if node_id != self._cluster.node_id]
        names = [record.name for record in records]
        await asyncio.gather(*(self._notify(node_id, names) for node_id in others))

    async def _notify(self, node_id: str, names: Sequence[str]) -> None:
        assert self._cluster is not None
        node = self._cluster.nodes.get(node_id)
        try:
            async with asyncio.timeout(_NOTIFY_WITHIN_S):
                if node is not None:
                    await self._cluster.peers.note_channels(node.record.address_for_nodes, names)
        except (TidelogServerError, TimeoutError) as error:
            _log.warning("node_not_notified", node=node_id, channels=len(names), error=str(error))

    @property
    def version(self) -> int:
        """A number that is incremented whenever an owner may have changed."""
        return self.catalog.version + self.nodes_version

    @property
    def nodes_version(self) -> int:
        """A number that is incremented whenever the owners of all channels may have changed."""
        return 0 if self._cluster is None else self._cluster.version


def place(loads: Mapping[str, int], channels: int, vchannels: int) -> list[str]:
    """Return the node id for each of ``channels`` new channels.

    Each channel goes to the node with the fewest vchannels, counting those placed before it; ties go to the smallest
    node id. So a cluster fills evenly, and equal loads give equal placements.

    Args:
        loads: Number of vchannels of each candidate node; not empty.
        channels: Number of new channels.
        vchannels: Number of vchannels of each new channel.
    """
    heap = [(load, node_id) for node_id, load in loads.items()]
    heapq.heapify(heap)
    placed = []
    for _ in range(channels):
        load, node_id = heap[0]
        placed.append(node_id)
        heapq.heapreplace(heap, (load + vchannels, node_id))
    return placed
