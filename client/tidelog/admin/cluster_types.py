"""Descriptions of clusters, nodes and the owners of channels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.errors import ChannelNotFoundError, UnavailableError


@dataclass(frozen=True, slots=True)
class ChannelOwner:
    """Owner of a channel.

    Attributes:
        channel: Name of the channel.
        node_id: The node that owns it; empty for a server without a cluster.
        address: ``host:port`` of that node; empty while it is not running, and for a server without a cluster.
        term: Term of the owner; an answer with a smaller term is out of date.
    """

    channel: str
    node_id: str
    address: str
    term: int

    @staticmethod
    def running(owners: Mapping[str, "ChannelOwner"], channel: str) -> "ChannelOwner":
        """Return the owner of a channel in ``owners``, the result of ``locate_channels``.

        Raises:
            ChannelNotFoundError: The channel does not exist.
            UnavailableError: Its node is not running.
        """
        owner = owners.get(channel)
        if owner is None:
            raise ChannelNotFoundError(
                f"channel '{channel}' does not exist: create it with `tidelog channel create {channel}`, or correct "
                "the name",
                values={"name": channel},
            )
        if owner.node_id and not owner.address:
            raise UnavailableError(
                f"channel '{channel}' is owned by node '{owner.node_id}', which is not running: start that node",
                values={"name": channel, "node_id": owner.node_id},
            )
        return owner


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """One node of a cluster.

    Attributes:
        node_id: Name of the node.
        address: ``host:port`` of its gRPC endpoint.
        http_address: ``host:port`` of its health and metrics endpoint.
        term: Number of its registration; grows with each registration in the cluster.
        version: Version of its software.
        channels: Number of channels that it owns.
        vchannels: Number of vchannels of these channels.
    """

    node_id: str
    address: str
    http_address: str
    term: int
    version: str
    channels: int
    vchannels: int


@dataclass(frozen=True, slots=True)
class FollowedNode:
    """A node whose log a standby applies.

    Attributes:
        node_id: Name of the node.
        lag_positions: Positions of the log that the standby had not read at its last report; None if not known.
        lag_seconds: Seconds since it had read the whole log, at its last report; 0 if it had, None if not known.
    """

    node_id: str
    lag_positions: int | None
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class StandbyDescription:
    """A process of a cluster that serves no node, and takes over one that has no process.

    Attributes:
        process: Id of the process, new with each start.
        address: ``host:port`` at which it will serve gRPC.
        http_address: ``host:port`` of its health and metrics endpoint.
        version: Version of its software.
        follows: The nodes whose logs it applies, in order of id.
    """

    process: str
    address: str
    http_address: str
    version: str
    follows: tuple[FollowedNode, ...]


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster as one of its nodes sees it.

    Attributes:
        cluster_id: Id assigned when the cluster was created; empty for a server without a cluster.
        node_id: The node that answered.
        leader_node_id: The node that allocates ticks; empty while there is no leader.
        nodes: All registered nodes, in order of id; empty for a server without a cluster.
        standbys: All processes that stand by, in order of process.
    """

    cluster_id: str
    node_id: str
    leader_node_id: str
    nodes: tuple[NodeDescription, ...]
    standbys: tuple[StandbyDescription, ...] = ()


def owners(wire: Iterable[Any]) -> dict[str, ChannelOwner]:
    """Return the owners in protobuf messages, by channel."""
    return {each.channel: ChannelOwner(each.channel, each.node_id, each.address, each.term) for each in wire}


def cluster(wire: Any) -> ClusterDescription:
    """Return the cluster in a protobuf message."""
    nodes = tuple(
        NodeDescription(
            each.node_id, each.address, each.http_address, each.term, each.version, each.channels, each.vchannels
        )
        for each in wire.nodes
    )
    standbys = tuple(
        StandbyDescription(
            each.process, each.address, each.http_address, each.version, tuple(map(_followed, each.follows))
        )
        for each in wire.standbys
    )
    return ClusterDescription(wire.cluster_id, wire.node_id, wire.leader_node_id, nodes, standbys)


def _followed(wire: Any) -> FollowedNode:
    return FollowedNode(
        wire.node_id,
        wire.lag_positions if wire.HasField("lag_positions") else None,
        wire.lag_seconds if wire.HasField("lag_seconds") else None,
    )
