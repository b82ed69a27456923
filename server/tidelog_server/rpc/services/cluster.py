"""ClusterService: the owners of channels, and calls between nodes."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tidelog.v1 import cluster_service_pb2 as pb
from tidelog_server.channels.lifecycle import Lifecycle
from tidelog_server.channels.ownership import Ownership
from tidelog_server.cluster.cluster import Cluster
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.errors.cluster import NotLeaderError
from tidelog_server.core.limits import MAX_CHANNELS_PER_REQUEST, MAX_LIST_PAGE, MAX_TICK_RANGE, OWNERS_LOOK_INTERVAL_S
from tidelog_server.core.names import check_existing_channel_name, is_mailbox_channel
from tidelog_server.core.nodes import ChannelOwner
from tidelog_server.log.node import LogNode
from tidelog_server.rpc.context import Context
from tidelog_server.security.access import current_access


class ClusterService:
    """Handlers of ClusterService, from the view of one node."""

    def __init__(self, cluster: Cluster | None, ownership: Ownership, lifecycle: Lifecycle, node: LogNode) -> None:
        self._cluster = cluster
        self._ownership = ownership
        self._lifecycle = lifecycle
        self._node = node

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Return the handler of each method of the service."""
        return {
            "DescribeCluster": self.describe_cluster,
            "LocateChannels": self.locate_channels,
            "WatchOwners": self.watch_owners,
            "AllocateTickRange": self.allocate_tick_range,
            "NoteChannels": self.note_channels,
        }

    async def describe_cluster(self, _request: pb.DescribeClusterRequest, _: Context) -> pb.DescribeClusterResponse:
        """Return all nodes."""
        cluster = self._cluster
        if cluster is None:
            return pb.DescribeClusterResponse()
        channels, vchannels = self._ownership.counts()
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
        )

    async def locate_channels(self, request: pb.LocateChannelsRequest, _: Context) -> pb.LocateChannelsResponse:
        """Return the owners of channels."""
        _check_names(request.names)
        owners = {name: self._ownership.owner(name) for name in request.names}
        return pb.LocateChannelsResponse(
            owners=[_owner(owner) for owner in owners.values() if owner is not None],
            missing=[name for name, owner in owners.items() if owner is None],
        )

    async def watch_owners(self, _request: pb.WatchOwnersRequest, context: Context) -> None:
        """Stream the owners of all channels, then the changes.

        A response has the differences from the previous one: changes that cancel each other in between are not sent.
        """
        told: dict[str, ChannelOwner] = {}
        version = -1
        watcher = asyncio.Event()
        self._node.watchers.add(watcher)
        try:
            while True:
                self._node.admission.check_serving()
                before, version = version, self._ownership.version
                if before != version:
                    owners = _visible(self._ownership.owners())
                    for response in _changes(told, owners):
                        await context.write(response.SerializeToString())
                    told = owners
                await self._changed(watcher)
        finally:
            self._node.watchers.discard(watcher)

    async def allocate_tick_range(
        self, request: pb.AllocateTickRangeRequest, _: Context
    ) -> pb.AllocateTickRangeResponse:
        """Allocate ticks to another node."""
        if not 1 <= request.count <= MAX_TICK_RANGE:
            raise InvalidRequestError(f"count is {request.count}, expected 1 to {MAX_TICK_RANGE}", field="count")
        if self._cluster is None:
            raise NotLeaderError(node_id="", address="")
        first_tick = await self._cluster.hand_out(request.count)
        return pb.AllocateTickRangeResponse(first_tick=first_tick)

    async def note_channels(self, request: pb.NoteChannelsRequest, _: Context) -> pb.NoteChannelsResponse:
        """Note channels that another node has created, and open those that this node owns."""
        _check_names(request.names)
        await self._lifecycle.note_created(request.names)
        return pb.NoteChannelsResponse()

    async def _changed(self, watcher: asyncio.Event) -> None:
        """Wait until an owner may have changed or the node stops, at most OWNERS_LOOK_INTERVAL_S."""
        watcher.clear()
        try:
            async with asyncio.timeout(OWNERS_LOOK_INTERVAL_S):
                await watcher.wait()
        except TimeoutError:
            return


def _changes(told: Mapping[str, ChannelOwner], owners: Mapping[str, ChannelOwner]) -> Iterator[pb.WatchOwnersResponse]:
    """Yield the differences from ``told``, in pages; the last page has ``is_complete`` set."""
    new = [_owner(owner) for name, owner in owners.items() if told.get(name) != owner]
    gone = [name for name in told if name not in owners]
    pages = [new[begin : begin + MAX_LIST_PAGE] for begin in range(0, len(new), MAX_LIST_PAGE)] or [[]]
    for page in pages[:-1]:
        yield pb.WatchOwnersResponse(owners=page)
    yield pb.WatchOwnersResponse(owners=pages[-1], gone=gone, is_complete=True)


def _visible(owners: dict[str, ChannelOwner]) -> dict[str, ChannelOwner]:
    """Return the owners of the channels on which, or on whose mailboxes, the caller has a permission."""
    access = current_access()
    if access is None:
        return owners
    return {name: owner for name, owner in owners.items() if access.may_locate(name)}


def _owner(owner: ChannelOwner) -> pb.ChannelOwner:
    return pb.ChannelOwner(channel=owner.channel, node_id=owner.node_id, address=owner.address, term=owner.term)


def _check_names(names: Any) -> None:
    if not 1 <= len(names) <= MAX_CHANNELS_PER_REQUEST:
        raise InvalidRequestError(
            f"the request names {len(names)} channels, expected 1 to {MAX_CHANNELS_PER_REQUEST}", field="names"
        )
    for name in names:
        if not is_mailbox_channel(name):
            check_existing_channel_name(name)
