"""Node calls of the synchronous client."""

from collections.abc import Iterable, Mapping

from tidelog.admin.cluster_types import ChannelOwner, ClusterDescription
from tidelog.client import AsyncClient
from tidelog.transport.background import background


class NodeCalls:
    """Nodes, for ``Client``. See ``AsyncNodeCalls``."""

    _client: AsyncClient

    def describe_cluster(self) -> ClusterDescription:
        """Return the cluster as this server sees it. See ``AsyncClient.describe_cluster``."""
        return background.run(self._client.describe_cluster())

    def locate_channels(self, names: Iterable[str]) -> Mapping[str, ChannelOwner]:
        """Return the owners of channels, by channel. See ``AsyncClient.locate_channels``."""
        return background.run(self._client.locate_channels(names))
