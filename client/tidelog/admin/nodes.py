"""Node calls of the asynchronous client: describe the cluster, locate channels, and follow changes of owners."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass

from tidelog.admin import cluster_types as _wire
from tidelog.admin.channels import AsyncChannelCalls
from tidelog.admin.cluster_types import ChannelOwner, ClusterDescription
from tidelog.admin.mailboxes import AsyncMailboxCalls
from tidelog.journals.calls import AsyncJournalCalls
from tidelog.transport.deadline import Deadline
from tidelog.transport.service_calls import ServiceCalls
from tidelog.transport.transport import Transport
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

    async def metrics_text(self) -> str:
        """Return the metrics of the server in Prometheus' text format, as its HTTP endpoint serves them.

        Of a client of a cluster, those of a node that answers. Callers share what is rendered once a second.

        Raises:
            InvalidRequestError: The server is of a version that serves them by HTTP only.
            PermissionDeniedError: The caller lacks ``admin.read``.
        """
        answers = self._answers(
            lambda connection: connection.cluster.ReadMetrics, pb.ReadMetricsRequest(), is_read=True,
            later_within_s=lambda _: self.timeout_s,
        )  # fmt: skip
        async with aclosing(answers):
            return b"".join([answer.text async for answer in answers]).decode()

    async def reach(self, timeout_s: float) -> None:
        """Wait until the client is connected; for ``AsyncCluster``.

        Raises:
            UnavailableError: The connection was refused, or not established within ``timeout_s``.
        """
        await self._transport().reach(check_seconds("timeout_s", timeout_s))

    def within(self, deadline: Deadline) -> "CallsWithin":
        """Return the calls that ``AsyncCluster`` makes as a part of one of its own, which has a deadline.

        Raises:
            DeadlineError: No time is left.
        """
        deadline.check("the next request")
        return CallsWithin(self._transport, deadline.left_s)

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
        answers = self._watched(lambda connection: connection.cluster.WatchOwners, pb.WatchOwnersRequest())
        async with aclosing(answers):
            async for answer in answers:
                if not (answer.owners or answer.gone or answer.is_complete):
                    # A heartbeat.
                    continue
                yield OwnersChange(_wire.owners(answer.owners), tuple(answer.gone), answer.is_complete)


class CallsWithin(AsyncChannelCalls):
    """Calls of one node that end within what was left of a deadline: create it for each call.

    Attributes:
        journals, mailboxes: As those of ``AsyncClient``.
    """

    def __init__(self, transport: Callable[[], Transport], left_s: float) -> None:
        """Create the calls; does no I/O. ``transport`` returns the transport of the node's client."""
        super().__init__(transport, left_s)
        self.journals = AsyncJournalCalls(transport, left_s)
        self.mailboxes = AsyncMailboxCalls(transport, left_s)
