"""The synchronous twin of ``AsyncCluster``."""

from collections.abc import Iterable
from typing import Any, Unpack

from tidelog.admin.channel_types import ChannelSettings
from tidelog.client import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S
from tidelog.cluster import AsyncCluster
from tidelog.sync.client import Client
from tidelog.sync.generated.cluster import ClusterBase
from tidelog.sync.journals import JournalCalls
from tidelog.sync.mailboxes import MailboxCalls
from tidelog.transport.background import background
from tidelog.transport.in_one_process import InOneProcess


class Cluster(InOneProcess, ClusterBase):
    """Tidelog servers that share one etcd, or a single server. See ``AsyncCluster``."""

    def __init__(
        self, endpoints: str | Iterable[str] = DEFAULT_ENDPOINT, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Any
    ) -> None:
        """Create a client of the cluster. See ``AsyncCluster``."""
        self._cluster: AsyncCluster = AsyncCluster(endpoints, timeout_s=timeout_s, **options)
        self.endpoints = self._cluster.endpoints
        self.timeout_s = timeout_s
        self.journals = JournalCalls(self._cluster.journals)
        self.mailboxes = MailboxCalls(self._cluster.mailboxes)
        self._options = options
        self._clients: dict[str, Client] = {}
        background.add(self._cluster)

    def client_of(self, channel: str) -> Client:
        """Return a client of the node that owns ``channel``. See ``AsyncCluster.client_of``."""
        return self._client_at(background.run(self._cluster.client_of(channel)).endpoint)

    def client_with(self, channel: str, **settings: Unpack[ChannelSettings]) -> Client:
        """Create a channel if it does not exist. See ``AsyncCluster.client_with``."""
        return self._client_at(background.run(self._cluster.client_with(channel, **settings)).endpoint)

    def _client_at(self, endpoint: str) -> Client:
        if endpoint not in self._clients:
            self._clients[endpoint] = Client(endpoint, timeout_s=self.timeout_s, **self._options)
        return self._clients[endpoint]

    def close(self) -> None:
        """Close the clients of all nodes. See ``AsyncCluster.aclose``."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()
        background.run(self._cluster.aclose())
