"""The synchronous twin of ``AsyncCluster``."""

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from tidelog.admin.channel_types import OwnerDescription, Retention
from tidelog.client import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S
from tidelog.cluster import AsyncCluster
from tidelog.sync.client import Client
from tidelog.sync.generated.cluster import ClusterCalls
from tidelog.sync.generated.handles import Channel, Vchannel
from tidelog.transport.background import background


class Cluster(ClusterCalls):
    """Tidelog servers that share one etcd, or a single server. See ``AsyncCluster``."""

    def __init__(
        self, endpoints: str | Iterable[str] = DEFAULT_ENDPOINT, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Any
    ) -> None:
        """Create a client of the cluster. See ``AsyncCluster``."""
        self._cluster: AsyncCluster = AsyncCluster(endpoints, timeout_s=timeout_s, **options)
        self.endpoints = self._cluster.endpoints
        self.timeout_s = timeout_s
        self._options = options
        self._clients: dict[str, Client] = {}
        background.add(self._cluster)

    def client_of(self, channel: str) -> Client:
        """Return a client of the node that owns ``channel``. See ``AsyncCluster.client_of``."""
        endpoint = background.run(self._cluster.client_of(channel)).endpoint
        if endpoint not in self._clients:
            self._clients[endpoint] = Client(endpoint, timeout_s=self.timeout_s, **self._options)
        return self._clients[endpoint]

    def channel(self, name: str) -> Channel:
        """Return a handle for a channel, connected to its owner. See ``AsyncCluster.channel``."""
        return self.client_of(name).channel(name)

    def vchannel(self, name: str) -> Vchannel:
        """Return a handle for a vchannel, connected to its owner. See ``AsyncCluster.vchannel``."""
        return self.client_of(name.partition("/")[0]).vchannel(name)

    def ensure_channel(
        self,
        name: str,
        *,
        vchannels: int = 1,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> Channel:
        """Create a channel if it does not exist, and return its handle. See ``AsyncCluster.ensure_channel``."""
        self.create_channel(name, vchannels=vchannels, if_not_exists=True, owner=owner, retention=retention)
        return self.channel(name)

    def close(self) -> None:
        """Close the clients of all nodes. See ``AsyncCluster.aclose``."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()
        background.run(self._cluster.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
