"""Which node owns a channel, and what is done about channels of other nodes."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import structlog

from tidelog_server.broker.catalog import Catalog, ChannelRecord
from tidelog_server.cluster.cluster import Cluster
from tidelog_server.cluster.placement import place
from tidelog_server.core.cluster_errors import NotOwnerError
from tidelog_server.core.errors import TidelogServerError
from tidelog_server.core.nodes import ChannelOwner

_TELL_WITHIN_S: Final = 2.0
_log = structlog.get_logger()


class Ownership:
    """Channels and nodes together. For a server that is alone, every channel is its own."""

    def __init__(self, catalog: Catalog, cluster: Cluster | None) -> None:
        self._catalog = catalog
        self._cluster = cluster

    def check_here(self, channel: str, name: str) -> None:
        """Raise NotOwnerError if ``channel`` is another node's; ``name`` is what was asked for."""
        if self._cluster is None:
            return
        record = self._catalog.foreign().get(channel)
        if record is not None:
            owner = self._cluster.owner(channel, record.node_id)
            raise NotOwnerError(name, node_id=owner.node_id, address=owner.address, term=owner.term)

    def owner(self, channel: str) -> ChannelOwner | None:
        """Return who owns a channel; None if it does not exist."""
        record = self._catalog.records().get(channel) or self._catalog.foreign().get(channel)
        if record is None or record.is_destroying:
            return None
        if self._cluster is None:
            return ChannelOwner(channel, "")
        return self._cluster.owner(channel, record.node_id)

    def place(self, channels: int, vchannels: int) -> list[str]:
        """Return a node for each of so many new channels."""
        if self._cluster is None:
            return []
        loads = self._catalog.loads()
        return place({node_id: loads.get(node_id, 0) for node_id in self._cluster.nodes}, channels, vchannels)

    async def tell(self, records: Sequence[ChannelRecord]) -> None:
        """Tell the other nodes of channels that were created.

        From now on each serves its own, and says of the rest where they are; it would see their records by itself, but
        a moment later, and say until then that they do not exist. So does one that does not answer.
        """
        if self._cluster is None or not records:
            return
        others = [node_id for node_id in self._cluster.nodes if node_id != self._cluster.node_id]
        names = [record.name for record in records]
        await asyncio.gather(*(self._tell(node_id, names) for node_id in others))

    async def _tell(self, node_id: str, names: Sequence[str]) -> None:
        assert self._cluster is not None
        node = self._cluster.nodes.get(node_id)
        try:
            async with asyncio.timeout(_TELL_WITHIN_S):
                if node is not None:
                    await self._cluster.peers.note_channels(node.record.address_for_nodes, names)
        except (TidelogServerError, TimeoutError) as error:
            _log.warning("node_not_told", node=node_id, channels=len(names), error=str(error))

    @property
    def version(self) -> int:
        """A number that grows whenever an owner may have changed."""
        return self._catalog.version + (0 if self._cluster is None else self._cluster.version)

    def owners(self) -> dict[str, ChannelOwner]:
        """Return who owns each channel."""
        names = [*self._catalog.records(), *self._catalog.foreign()]
        return {name: owner for name in names if (owner := self.owner(name)) is not None}

    def counts(self) -> tuple[Counter[str], Counter[str]]:
        """Return how many channels and how many vchannels each node has."""
        channels: Counter[str] = Counter()
        vchannels: Counter[str] = Counter()
        for record in (*self._catalog.records().values(), *self._catalog.foreign().values()):
            channels[record.node_id] += 1
            vchannels[record.node_id] += len(record.vchannel_ids)
        return channels, vchannels

    def foreign(self) -> Mapping[str, ChannelRecord]:
        """Return the records of channels of other nodes."""
        return self._catalog.foreign()
