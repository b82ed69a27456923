"""The synchronous twin of ``AsyncCluster``."""

from functools import cache
from typing import Self, Unpack, overload

from tidelog.client import AsyncClient
from tidelog.cluster import AsyncCluster
from tidelog.session import ClientOptions
from tidelog.settings.resolver import context_access
from tidelog.sync.client import Client, twin_of
from tidelog.sync.generated.cluster import ClusterBase
from tidelog.sync.generated.journals import JournalCalls
from tidelog.sync.generated.mailboxes import MailboxCalls
from tidelog.transport.in_one_process import InOneProcess


class Cluster(InOneProcess, ClusterBase):
    """Tidelog servers that share one etcd, or a single server. See ``AsyncCluster``."""

    @classmethod
    def from_context(cls, name: str | None = None, **options: Unpack[ClientOptions]) -> Self:
        """Return a client of a context. See ``AsyncClient.from_context``."""
        endpoints, tls, token = context_access(name, options.get("tls"), options.get("token"))
        options["tls"], options["token"] = tls, token
        return cls(endpoints, **options)

    def _wrap(self, cluster: AsyncCluster) -> None:
        self._cluster = cluster
        self.endpoints = cluster.endpoints
        self.timeout_s = cluster.timeout_s
        self.journals = JournalCalls(cluster.journals)
        self.mailboxes = MailboxCalls(cluster.mailboxes)
        # One twin of each client, as for all calls of the asynchronous cluster.
        self._twin_of = cache(twin_of)

    def __repr__(self) -> str:
        return f"<Cluster of {', '.join(self.endpoints)}>"


@overload
def inner_of(client: Client) -> AsyncClient: ...
@overload
def inner_of(client: Client | Cluster) -> AsyncClient | AsyncCluster: ...
def inner_of(client: Client | Cluster) -> AsyncClient | AsyncCluster:
    """Return the asynchronous client inside of a synchronous one, for what is built on clients."""
    return client._cluster if isinstance(client, Cluster) else client._client  # noqa: SLF001 - its twin
