"""ClusterService: the owners of channels, and calls between nodes."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from tidelog.v1 import cluster_service_pb2 as pb
from tidelog_server.channels.lifecycle import Lifecycle
from tidelog_server.channels.ownership import Ownership
from tidelog_server.cluster.cluster import Cluster
from tidelog_server.cluster.log_records import Lag, StandbyRecord
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.errors.cluster import NotLeaderError
from tidelog_server.core.limits import MAX_CHANNELS_PER_REQUEST, MAX_TICKS_PER_REQUEST
from tidelog_server.core.message_checks import check_within
from tidelog_server.core.names import check_existing_channel_name, is_mailbox_channel
from tidelog_server.core.nodes import ChannelOwner, NodeTerm, is_node_id
from tidelog_server.log.node import LogNode
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.lists.looks import Looks
from tidelog_server.rpc.lists.pages import Found
from tidelog_server.rpc.lists.watches import Table, Wakes
from tidelog_server.security.access import current_access
from tidelog_server.security.grants import OF_CHANNELS

METRICS_PART_BYTES: Final = 1 << 20
MAX_TICK_RANGE: Final = 4 * MAX_TICKS_PER_REQUEST


class ClusterService:
    """Handlers of ClusterService, from the view of one node."""

    def __init__(
        self,
        cluster: Cluster | None,
        ownership: Ownership,
        lifecycle: Lifecycle,
        node: LogNode,
        metrics_text: Callable[[], Awaitable[bytes]],
    ) -> None:
        """Serve a node. ``metrics_text`` returns its metrics; callers share its results, which have a bounded rate."""
        self._metrics_text = metrics_text
        self._cluster = cluster
        self._ownership = ownership
        self._lifecycle = lifecycle
        self._node = node
        self._wakes = Wakes(node, lambda: ownership.version)

    async def describe_cluster(self, _request: pb.DescribeClusterRequest, _: Context) -> pb.DescribeClusterResponse:
        """Return all nodes."""
        cluster = self._cluster
        if cluster is None:
            return pb.DescribeClusterResponse()
        catalog = self._ownership.catalog
        channels, vchannels = catalog.channels_of, catalog.vchannels_of
        leader = cluster.leader
        return pb.DescribeClusterResponse(
            cluster_id=cluster.cluster_id,
            node_id=cluster.node_id,
            leader_node_id=leader.record.node_id if leader else "",
            nodes=[
                pb.NodeDescription(
                    node_id=node_id,
                    address=node.record.address,
                    http_address=node.record.http_address,
                    term=node.term,
                    version=node.record.version,
                    channels=channels.get(node_id, 0),
                    vchannels=vchannels.get(node_id, 0),
                )
                for node_id, node in sorted(cluster.nodes.items())
            ],
            standbys=[_standby(process, record) for process, record in sorted(cluster.standbys.items())],
        )

    async def locate_channels(self, request: pb.LocateChannelsRequest, _: Context) -> pb.LocateChannelsResponse:
        """Return the owners of channels."""
        _check_names(request.names)
        owners = {name: self._ownership.owner(name) for name in request.names}
        return pb.LocateChannelsResponse(
            owners=[_owner(owner) for owner in owners.values() if owner is not None],
            missing=[name for name, owner in owners.items() if owner is None],
        )

    async def watch_owners(self, request: pb.WatchOwnersRequest, context: Context) -> None:
        """Stream the owners of all channels, then the changes."""
        ownership, looks = self._ownership, Looks.of(self._node, context)
        table = Table(
            ownership.catalog.names,
            ownership.catalog.changes,
            OF_CHANNELS,
            self._visible_owner,
            version=lambda: ownership.nodes_version,
        )

        async def write(page: Sequence[pb.ChannelOwner], gone: Sequence[str], is_last: bool) -> None:
            response = pb.WatchOwnersResponse(
                owners=page, gone=gone, is_complete=is_last, heartbeat_interval_ms=request.heartbeat_interval_ms
            )
            await context.write(response.SerializeToString())

        interval_ms = request.heartbeat_interval_ms
        await self._wakes.stream(table, looks, interval_ms, lambda owner: (_owner(owner), 1), write)

    def _visible_owner(self, channel: str) -> Found[ChannelOwner]:
        """Return the owner of a channel on which, or on whose mailbox, the caller has a permission."""
        access = current_access()
        return (self._ownership.owner(channel), 1) if access is None or access.may_locate(channel) else (None, 0)

    async def allocate_tick_range(
        self, request: pb.AllocateTickRangeRequest, _: Context
    ) -> pb.AllocateTickRangeResponse:
        """Allocate ticks to another node."""
        check_within(request.count, 1, MAX_TICK_RANGE, "count")
        if self._cluster is None:
            raise NotLeaderError(node_id="", address="")
        if request.node_id and not is_node_id(request.node_id):
            raise InvalidRequestError(f"'{request.node_id}' is not the id of a node", name="node_id")
        caller = NodeTerm(request.node_id, request.term) if request.node_id else None
        first_tick = await self._cluster.hand_out(request.count, caller)
        return pb.AllocateTickRangeResponse(first_tick=first_tick)

    async def note_channels(self, request: pb.NoteChannelsRequest, _: Context) -> pb.NoteChannelsResponse:
        """Note channels that another node has created, and open those that this node owns."""
        _check_names(request.names)
        await self._lifecycle.note_created(request.names)
        return pb.NoteChannelsResponse()

    async def read_metrics(self, _: pb.ReadMetricsRequest, context: Context) -> None:
        """Stream the metrics of this node in parts."""
        text = await self._metrics_text()
        for begin in range(0, len(text), METRICS_PART_BYTES):
            part = pb.ReadMetricsResponse(text=text[begin : begin + METRICS_PART_BYTES])
            await context.write(part.SerializeToString())


def _standby(process: str, record: StandbyRecord) -> pb.StandbyDescription:
    return pb.StandbyDescription(
        process=process, address=record.address, http_address=record.http_address, version=record.version,
        follows=[_followed(node_id, record.lags.get(node_id)) for node_id in sorted(record.follows)],
    )  # fmt: skip


def _followed(node_id: str, lag: Lag | None) -> pb.FollowedNode:
    if lag is None:
        return pb.FollowedNode(node_id=node_id)
    return pb.FollowedNode(node_id=node_id, lag_positions=lag.positions, lag_seconds=lag.seconds)


def _owner(owner: ChannelOwner) -> pb.ChannelOwner:
    return pb.ChannelOwner(channel=owner.channel, node_id=owner.node_id, address=owner.address, term=owner.term)


def _check_names(names: Any) -> None:
    check_within(len(names), 1, MAX_CHANNELS_PER_REQUEST, "names", "the request names {value} channels")
    for name in names:
        if not is_mailbox_channel(name):
            check_existing_channel_name(name)
