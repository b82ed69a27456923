"""The calls of the asynchronous client that tell about nodes, and the feed of who owns which channel."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc.aio

from tidelog import _cluster_types as _wire
from tidelog._cluster_types import ChannelOwner, ClusterDescription
from tidelog._status import error_of_status
from tidelog._transport import Transport
from tidelog.v1 import cluster_service_pb2 as pb

_NAMES_PER_REQUEST = 100


@dataclass(frozen=True, slots=True)
class OwnersChange:
    """What a feed of owners tells.

    Attributes:
        owners: New, or changed.
        gone: Channels that are no more.
        is_complete: Whether the feed has told everything by now.
    """

    owners: dict[str, ChannelOwner]
    gone: tuple[str, ...]
    is_complete: bool


class AsyncNodeCalls(ABC):
    """Nodes, for ``AsyncClient``.

    Attributes:
        timeout_s: How long a call may take.
    """

    timeout_s: float

    @abstractmethod
    def _transport(self) -> Transport:
        """Return the open connections of this event loop."""

    async def describe_cluster(self) -> ClusterDescription:
        """Return the cluster as this server sees it; without nodes for a server that is alone."""
        transport = self._transport()
        answer = await transport.call(
            transport.cluster.DescribeCluster, pb.DescribeClusterRequest(), timeout_s=self.timeout_s, is_read=True
        )
        return _wire.cluster(answer)

    async def reach(self, timeout_s: float) -> None:
        """Return once a connection stands; for ``AsyncCluster``.

        Raises:
            UnavailableError: It was refused, or not there within ``timeout_s``.
        """
        await self._transport().reach(timeout_s)

    async def locate_channels(self, names: Iterable[str]) -> Mapping[str, ChannelOwner]:
        """Return who owns channels, by name; those that do not exist are left out.

        Raises:
            InvalidRequestError: A name is not allowed.
        """
        wanted = list(names)
        found: dict[str, ChannelOwner] = {}
        for begin in range(0, len(wanted), _NAMES_PER_REQUEST):
            transport = self._transport()
            request = pb.LocateChannelsRequest(names=wanted[begin : begin + _NAMES_PER_REQUEST])
            answer = await transport.call(
                transport.cluster.LocateChannels, request, timeout_s=self.timeout_s, is_read=True
            )
            found |= _wire.owners(answer.owners)
        return found

    async def owners_feed(self) -> AsyncGenerator[OwnersChange, None]:
        """Yield who owns every channel, then what changes; for ``AsyncCluster``.

        Raises:
            TidelogError: The server does not answer any more, or the connection is lost.
        """
        transport = self._transport()
        await transport.ready(transport.connect_timeout_s)
        connection = transport.lease()
        call: Any = connection.cluster.WatchOwners(pb.WatchOwnersRequest(), metadata=transport.metadata())
        try:
            while True:
                async with transport.calls.entered(holds_close=False):
                    answer = await call.read()
                if answer is grpc.aio.EOF:
                    return
                yield OwnersChange(_wire.owners(answer.owners), tuple(answer.gone), answer.is_complete)
        except grpc.aio.AioRpcError as error:
            raise error_of_status(error, is_read=True) from error
        finally:
            call.cancel()
            transport.release(connection)
