"""The synchronous twin of ``AsyncCluster``."""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from tidelog.admin.channel_types import ChannelDescription, OwnerDescription, Retention, RetentionChange
from tidelog.admin.cluster_types import ChannelOwner, ClusterDescription
from tidelog.client import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S
from tidelog.cluster import AsyncCluster
from tidelog.sync.client import Client
from tidelog.sync.handles import Channel, Vchannel
from tidelog.transport.background import background


class Cluster:
    """Tidelog servers that share one etcd, or a single server. See ``AsyncCluster``."""

    def __init__(
        self, endpoints: str | Iterable[str] = DEFAULT_ENDPOINT, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Any
    ) -> None:
        """Create a client of the cluster. See ``AsyncCluster``."""
        self._cluster = AsyncCluster(endpoints, timeout_s=timeout_s, **options)
        self.endpoints = self._cluster.endpoints
        self.timeout_s = timeout_s
        self._options = options
        self._clients: dict[str, Client] = {}
        background.add(self._cluster)

    def describe(self) -> ClusterDescription:
        """Return the cluster as one of its nodes sees it."""
        return background.run(self._cluster.describe())

    def owner_of(self, channel: str) -> ChannelOwner:
        """Return the owner of a channel. See ``AsyncCluster.owner_of``."""
        return background.run(self._cluster.owner_of(channel))

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

    def create_channel(
        self,
        name: str,
        *,
        vchannels: int = 1,
        if_not_exists: bool = False,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> ChannelDescription:
        """Create a channel on the node with the fewest vchannels. See ``AsyncCluster.create_channel``."""
        return background.run(
            self._cluster.create_channel(
                name, vchannels=vchannels, if_not_exists=if_not_exists, owner=owner, retention=retention
            )
        )

    def create_channels(
        self,
        names: Iterable[str] = (),
        *,
        number: int = 0,
        vchannels: int = 1,
        if_not_exists: bool = False,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> list[ChannelDescription]:
        """Create channels, each on the node with the fewest vchannels. See ``AsyncCluster.create_channels``."""
        return background.run(
            self._cluster.create_channels(
                names, number=number, vchannels=vchannels, if_not_exists=if_not_exists, owner=owner,
                retention=retention,
            )
        )  # fmt: skip

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

    def alter_channels(
        self, names: Iterable[str], *, retention: Retention | RetentionChange
    ) -> list[ChannelDescription]:
        """Change settings of channels, atomically per node. See ``AsyncCluster.alter_channels``."""
        return background.run(self._cluster.alter_channels(names, retention=retention))

    def destroy_channels(self, names: Iterable[str], *, ignore_missing: bool = False, force: bool = False) -> list[str]:
        """Delete channels, atomically per node. See ``AsyncCluster.destroy_channels``."""
        return background.run(self._cluster.destroy_channels(names, ignore_missing=ignore_missing, force=force))

    def describe_channels(self, names: Iterable[str], *, ignore_missing: bool = False) -> list[ChannelDescription]:
        """Return channels, whichever nodes own them. See ``AsyncCluster.describe_channels``."""
        return background.run(self._cluster.describe_channels(names, ignore_missing=ignore_missing))

    def list_channels(self, prefix: str = "") -> Iterator[ChannelDescription]:
        """Yield channels in order of name. See ``AsyncCluster.list_channels``."""
        yield from background.run(self._listed(prefix))

    def allocate_ticks(self, count: int = 1) -> range:
        """Return ``count`` consecutive ticks. See ``AsyncCluster.allocate_ticks``."""
        return background.run(self._cluster.allocate_ticks(count))

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

    async def _listed(self, prefix: str) -> list[ChannelDescription]:
        return [channel async for channel in self._cluster.list_channels(prefix)]
