"""Node calls of the asynchronous client: describe the cluster, locate channels, and follow changes of owners."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from tidelog.admin import cluster_types as _wire
from tidelog.admin.cluster_types import ChannelOwner, ClusterDescription
from tidelog.transport.deadline import Deadline
from tidelog.transport.service_calls import ServiceCalls
from tidelog.v1 import cluster_service_pb2 as pb
from tidelog.wire.durations import check_seconds

_NAMES_PER_REQUEST = 100


@dataclass(frozen=True, slots=True)
class OwnersChange:
    """A change reported by ``owners_feed``.

    Attributes:
        owners: New or changed owners, by channel.
        gone: Channels that no longer exist.
        is_complete: True once the feed has reported all channels.
    """

    owners: dict[str, ChannelOwner]
    gone: tuple[str, ...]
    is_complete: bool


class AsyncNodeCalls(ServiceCalls):
    """Nodes, for ``AsyncClient``."""

    async def describe_cluster(self) -> ClusterDescription:
        """Return the cluster as this server sees it; a single server has no nodes."""
        answer = await self._read(self._services.cluster.DescribeCluster, pb.DescribeClusterRequest())
        return _wire.cluster(answer)

    async def reach(self, timeout_s: float) -> None:
        """Wait until the client is connected; for ``AsyncCluster``.

        Raises:
            UnavailableError: The connection was refused, or not established within ``timeout_s``.
        """
        await self._transport().reach(check_seconds("timeout_s", timeout_s))

    async def locate_channels(self, names: Iterable[str]) -> Mapping[str, ChannelOwner]:
        """Return the owners of channels, by channel; channels that do not exist are omitted.

        Raises:
            InvalidRequestError: A name is invalid.
        """
        wanted = list(names)
        found: dict[str, ChannelOwner] = {}
        deadline = Deadline(self.timeout_s)
        for begin in range(0, len(wanted), _NAMES_PER_REQUEST):
            request = pb.LocateChannelsRequest(names=wanted[begin : begin + _NAMES_PER_REQUEST])
            answer = await self._read(self._services.cluster.LocateChannels, request, deadline)
            found |= _wire.owners(answer.owners)
        return found

    async def owners_feed(self) -> AsyncGenerator[OwnersChange, None]:
        """Yield the owners of all channels, then every change; for ``AsyncCluster``.

        Raises:
            TidelogError: The server stopped answering, or the connection was lost.
        """
        answers = self._answers(
            lambda connection: connection.cluster.WatchOwners, pb.WatchOwnersRequest(), is_read=True
        )
        async with aclosing(answers):
            async for answer in answers:
                yield OwnersChange(_wire.owners(answer.owners), tuple(answer.gone), answer.is_complete)
