"""A cluster as its clients use it: any node for what concerns all, the owner for what concerns a channel."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from tidelog._async_client import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S, AsyncClient
from tidelog._async_handles import AsyncChannel, AsyncVchannel
from tidelog._channel_types import ChannelDescription, OwnerDescription, Retention, RetentionChange
from tidelog._cluster_types import ChannelOwner, ClusterDescription
from tidelog._endpoints import check_address
from tidelog._errors import ChannelNotFoundError, ChannelsPartlyDoneError, ClosedError, TidelogError
from tidelog._routes import Routes

_Result = TypeVar("_Result")
# A node that a channel was just created for may take a moment to open it.
_LOOK_AGAIN_S = 0.05
_OPEN_WITHIN_S = 2.0


class AsyncCluster:
    """Several Tidelog servers that share one etcd; a server that is alone will do as well. ``Cluster`` is its twin.

    Each channel belongs to one node, and everything that concerns it happens there: ``client_of``, ``channel`` and
    ``vchannel`` give what is connected to the owner. Transactions, broadcasts and consumer groups span channels of one
    node. Use it with ``async with``.
    """

    def __init__(
        self, endpoints: str | Iterable[str] = DEFAULT_ENDPOINT, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Any
    ) -> None:
        """Name one node or several; the others are found. Does no I/O.

        Args:
            endpoints: ``host:port`` of nodes; in one text with commas between, or several.
            timeout_s: How long a call may take.
            options: Of ``AsyncClient``, for each of its connections.

        Raises:
            ValueError: There is no endpoint, or one of them is none.
        """
        self.endpoints = endpoint_list(endpoints)
        for endpoint in self.endpoints:
            check_address(endpoint)
        self.timeout_s = timeout_s
        self._options = options
        self._clients: dict[str, AsyncClient] = {}
        self._routes: Routes | None = None
        self._is_closed = False

    async def describe(self) -> ClusterDescription:
        """Return the cluster as one of its nodes sees it."""
        return await self._ask_any(lambda client: client.describe_cluster())

    async def owner_of(self, channel: str) -> ChannelOwner:
        """Return who owns a channel.

        Raises:
            ChannelNotFoundError: It does not exist.
            UnavailableError: Its node is not running, or no node answers.
        """
        return await self._open_routes().owner(channel, self.timeout_s)

    async def client_of(self, channel: str) -> AsyncClient:
        """Return a client of the node that owns ``channel``, which belongs to this. Raises as ``owner_of``."""
        owner = await self.owner_of(channel)
        return self._client_at(self._open_routes().address(owner))

    async def channel(self, name: str) -> AsyncChannel:
        """Return a handle of a channel, at its owner. Raises as ``owner_of``."""
        return (await self.client_of(name)).channel(name)

    async def vchannel(self, name: str) -> AsyncVchannel:
        """Return a handle of a vchannel, ``orders/0``, at its owner. Raises as ``owner_of``."""
        return (await self.client_of(name.partition("/")[0])).vchannel(name)

    async def create_channel(
        self,
        name: str,
        *,
        vchannels: int = 1,
        if_not_exists: bool = False,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> ChannelDescription:
        """Create a channel on the node that has least, and return it. Raises as ``AsyncClient.create_channel``."""
        created = await self.create_channels(
            [name], vchannels=vchannels, if_not_exists=if_not_exists, owner=owner, retention=retention
        )
        return created[0]

    async def create_channels(
        self,
        names: Iterable[str] = (),
        *,
        number: int = 0,
        vchannels: int = 1,
        if_not_exists: bool = False,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> list[ChannelDescription]:
        """Create channels, each on the node that has least. Raises as ``AsyncClient.create_channels``."""
        wanted = list(names)
        created = await self._ask_any(
            lambda client: client.create_channels(
                wanted, number=number, vchannels=vchannels, if_not_exists=if_not_exists, owner=owner,
                retention=retention,
            ),
            is_read=False,
        )  # fmt: skip
        # What the node that was asked cannot tell of others' channels, their owners do.
        return await self.describe_channels([channel.name for channel in created])

    async def ensure_channel(
        self,
        name: str,
        *,
        vchannels: int = 1,
        owner: OwnerDescription | None = None,
        retention: Retention | None = None,
    ) -> AsyncChannel:
        """Create a channel unless it is there, and return its handle. Raises as ``AsyncClient.ensure_channel``."""
        await self.create_channel(name, vchannels=vchannels, if_not_exists=True, owner=owner, retention=retention)
        return await self.channel(name)

    async def alter_channels(
        self, names: Iterable[str], *, retention: Retention | RetentionChange
    ) -> list[ChannelDescription]:
        """Change settings of channels; all or none of those of one node. Raises as ``AsyncClient.alter_channels``."""
        return await self._at_owners(names, lambda client, part: client.alter_channels(part, retention=retention))

    async def destroy_channels(
        self, names: Iterable[str], *, ignore_missing: bool = False, force: bool = False
    ) -> list[str]:
        """Remove channels; all or none of those of one node. Raises as ``AsyncClient.destroy_channels``."""
        wanted = list(names)
        try:
            return await self._at_owners(
                wanted,
                lambda client, part: client.destroy_channels(part, ignore_missing=ignore_missing, force=force),
                ignore_missing=ignore_missing,
            )
        finally:
            self._open_routes().forget(wanted)

    async def describe_channels(
        self, names: Iterable[str], *, ignore_missing: bool = False
    ) -> list[ChannelDescription]:
        """Return channels of any nodes. Raises as ``AsyncClient.describe_channels`` and ``owner_of``."""
        wanted = list(names)
        described = await self._at_owners(
            wanted,
            lambda client, part: client.describe_channels(part, ignore_missing=ignore_missing),
            ignore_missing=ignore_missing,
        )
        place = {name: index for index, name in enumerate(wanted)}
        return sorted(described, key=lambda channel: place[channel.name])

    async def list_channels(self, prefix: str = "") -> AsyncIterator[ChannelDescription]:
        """Yield the channels whose names begin with ``prefix``, in order of name.

        Of channels whose node is not the one that is asked, vchannels are left out: ``describe_channels`` has them.
        """
        last = ""
        found = await self._ask_any(lambda client: _listed(client, prefix))
        for channel in found:
            assert last < channel.name
            last = channel.name
            yield channel

    async def allocate_ticks(self, count: int = 1) -> range:
        """Return ``count`` consecutive ticks that nobody else in the cluster ever gets."""
        return await self._ask_any(lambda client: client.allocate_ticks(count))

    async def aclose(self) -> None:
        """Close all connections, each once its appends are settled."""
        self._is_closed = True
        await self.pause()
        clients, self._clients = self._clients, {}
        await asyncio.gather(*(client.aclose() for client in clients.values()))

    async def pause(self) -> bool:
        """End the feed of owners until it is needed again; for use around a fork."""
        routes, self._routes = self._routes, None
        if routes is not None:
            await routes.aclose()
        return True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # -- Private -------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the cluster's client is closed: make a new one")

    def _open_routes(self) -> Routes:
        self._check_open()
        if self._routes is None:
            self._routes = Routes(self._client_at, self.endpoints)
        return self._routes

    def _client_at(self, address: str) -> AsyncClient:
        self._check_open()
        if address not in self._clients:
            self._clients[address] = AsyncClient(address, timeout_s=self.timeout_s, **self._options)
        return self._clients[address]

    async def _ask_any(self, call: Callable[[AsyncClient], Awaitable[_Result]], *, is_read: bool = True) -> _Result:
        return await self._open_routes().any_node(call, self.timeout_s, is_read=is_read)

    async def _at_owners(
        self,
        names: Iterable[str],
        call: Callable[[AsyncClient, Sequence[str]], Awaitable[Sequence[_Result]]],
        *,
        ignore_missing: bool = False,
    ) -> list[_Result]:
        """Call the owner of each channel, one after the other, with the names of its channels.

        Raises:
            ChannelsPartlyDoneError: One failed, and others before it did not.
        """
        parts: dict[str, list[str]] = {}
        for name in names:
            try:
                owner = await self.owner_of(name)
            except ChannelNotFoundError:
                if not ignore_missing:
                    raise
            else:
                parts.setdefault(self._open_routes().address(owner), []).append(name)
        results: list[_Result] = []
        done: list[str] = []
        for address, part in parts.items():
            try:
                results += await self._when_open(partial(call, self._client_at(address), part))
            except TidelogError as error:
                rest = [name for other in parts.values() for name in other if name not in done and name not in part]
                if not done:
                    raise
                is_unknown = error.effect == "unknown"
                raise ChannelsPartlyDoneError.of(
                    error,
                    done=done,
                    not_done=rest if is_unknown else [*part, *rest],
                    unknown=part if is_unknown else [],
                ) from error
            done += part
        return results

    async def _when_open(self, call: Callable[[], Awaitable[Sequence[_Result]]]) -> Sequence[_Result]:
        """Call a node that owns channels, as long as it does not know yet that it does."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + min(self.timeout_s, _OPEN_WITHIN_S)
        while True:
            try:
                return await call()
            except ChannelNotFoundError:
                if loop.time() >= deadline_s:
                    raise
            await asyncio.sleep(_LOOK_AGAIN_S)


async def _listed(client: AsyncClient, prefix: str) -> list[ChannelDescription]:
    return [channel async for channel in client.list_channels(prefix)]


def endpoint_list(endpoints: str | Iterable[str]) -> tuple[str, ...]:
    """Return endpoints one by one. Raises ValueError if there is none."""
    several = endpoints.split(",") if isinstance(endpoints, str) else endpoints
    found = tuple(endpoint.strip() for endpoint in several if endpoint.strip())
    if not found:
        raise ValueError("there is no endpoint: give host:port of at least one node")
    return found
