"""Nodes, and who owns which channel, as calls describe them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ChannelOwner:
    """Where a channel is.

    Attributes:
        channel: Its name.
        node_id: The node that owns it; empty for a server that is alone.
        address: ``host:port`` of that node; empty while it is not running, and for a server that is alone.
        term: Of the owner: what a smaller one says is out of date.
    """

    channel: str
    node_id: str
    address: str
    term: int


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """One node of a cluster.

    Attributes:
        node_id: Its name.
        address: ``host:port`` of its gRPC.
        http_address: ``host:port`` of its health and metrics.
        term: Grows with each registration in the cluster.
        version: Of its software.
        channels: How many it owns.
        vchannels: How many these have.
    """

    node_id: str
    address: str
    http_address: str
    term: int
    version: str
    channels: int
    vchannels: int


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster as one of its nodes sees it.

    Attributes:
        cluster_id: Its own, made with it; empty for a server that is alone.
        node_id: The node that told this.
        leader_node_id: Who hands out ticks; empty while nobody does.
        nodes: All that are registered, in order of id; none for a server that is alone.
    """

    cluster_id: str
    node_id: str
    leader_node_id: str
    nodes: tuple[NodeDescription, ...]


def owner(wire: Any) -> ChannelOwner:
    """Return an owner as it travelled."""
    return ChannelOwner(wire.channel, wire.node_id, wire.address, wire.term)


def owners(wire: Iterable[Any]) -> dict[str, ChannelOwner]:
    """Return owners by channel."""
    return {each.channel: owner(each) for each in wire}


def cluster(wire: Any) -> ClusterDescription:
    """Return a cluster as it travelled."""
    nodes = tuple(
        NodeDescription(
            each.node_id, each.address, each.http_address, each.term, each.version, each.channels, each.vchannels
        )
        for each in wire.nodes
    )
    return ClusterDescription(wire.cluster_id, wire.node_id, wire.leader_node_id, nodes)
