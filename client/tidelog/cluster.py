"""A client of a cluster: asks any node for cluster-wide calls, and the owner of a channel for everything else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from tidelog.admin.channel_types import ChannelDescription, ChannelSettings, CreateOptions, Retention, RetentionChange
from tidelog.admin.channels import partly_done
from tidelog.admin.cluster_types import ChannelOwner, ClusterDescription
from tidelog.admin.journals import AsyncClusterJournalCalls
from tidelog.admin.mailboxes import AsyncClusterMailboxCalls
from tidelog.admin.nodes import CallsWithin
from tidelog.client import DEFAULT_ENDPOINT, DEFAULT_TIMEOUT_S, AsyncClient
from tidelog.errors import ChannelNotFoundError, ClosedError, TidelogError
from tidelog.handles import AsyncChannel, AsyncVchannel
from tidelog.mailboxes.calls import ClusterMessageCalls
from tidelog.mailboxes.mailbox import AsyncMailbox
from tidelog.routes import Routes
from tidelog.transport.deadline import Deadline
from tidelog.transport.endpoints import check_address
from tidelog.transport.in_one_process import InOneProcess
from tidelog.transport.looks import Looks
from tidelog.transport.retry import DEFAULT_RETRY
from tidelog.wire.durations import check_seconds

_Result = TypeVar("_Result")


class AsyncCluster(InOneProcess):
    """Tidelog servers that share one etcd, or a single server. ``Cluster`` is its synchronous twin.

    Each channel is owned by one node, which serves all calls on it. ``client_of``, ``channel`` and ``vchannel`` return
    objects connected to the owner. Transactions, broadcasts and consumer groups span channels of one node. Use it with
    ``async with``.
    """

    def __init__(
        self, endpoints: str | Iterable[str] = DEFAULT_ENDPOINT, *, timeout_s: float = DEFAULT_TIMEOUT_S, **options: Any
    ) -> None:
        """Create a client of the cluster; does no I/O.

        Args:
            endpoints: ``host:port`` of one or more nodes, as a comma-separated string or an iterable. The other nodes
                are discovered.
            timeout_s: Timeout of a call in seconds.
            options: Options of ``AsyncClient``, for the client of each node.

        Raises:
            ValueError: There is no endpoint, or an endpoint is invalid.
        """
        self.endpoints = endpoint_list(endpoints)
        for endpoint in self.endpoints:
            check_address(endpoint)
        self.timeout_s = check_seconds("timeout_s", timeout_s)
        self._options = options
        self._clients: dict[str, AsyncClient] = {}
        self._routes: Routes | None = None
        self._is_closed = False
        self.journals = AsyncClusterJournalCalls(self._ask_any, timeout_s)
        self.mailboxes = AsyncClusterMailboxCalls(self._ask_any, self._client_of, timeout_s)
        self._message_calls = ClusterMessageCalls(self.mailboxes, options.get("retry", DEFAULT_RETRY))

    async def describe(self) -> ClusterDescription:
        """Return the cluster as one of its nodes sees it."""
        return await self._ask_any(lambda client: client.describe_cluster(), Deadline(self.timeout_s))

    async def owner_of(self, channel: str) -> ChannelOwner:
        """Return the owner of a channel.

        Raises:
            ChannelNotFoundError: The channel does not exist.
            UnavailableError: Its node is not running, or no node answers.
        """
        return await self._open_routes().owner(channel, Deadline(self.timeout_s))

    async def client_of(self, channel: str) -> AsyncClient:
        """Return a client of the node that owns ``channel``; ``aclose`` closes it. Raises as ``owner_of``."""
        return await self._client_of(channel, Deadline(self.timeout_s))

    async def channel(self, name: str) -> AsyncChannel:
        """Return a handle for a channel, connected to its owner. Raises as ``owner_of``."""
        return (await self.client_of(name)).channel(name)

    async def vchannel(self, name: str) -> AsyncVchannel:
        """Return a handle for a vchannel, such as ``orders/0``, connected to its owner. Raises as ``owner_of``."""
        return (await self.client_of(name.partition("/")[0])).vchannel(name)

    def mailbox(self, name: str) -> AsyncMailbox:
        """Return a handle for a mailbox; its calls find the owner. Does no I/O."""
        return AsyncMailbox(self._message_calls, name)

    async def create_channel(self, name: str, **options: Unpack[CreateOptions]) -> ChannelDescription:
        """Create a channel on the node with the fewest vchannels. Raises as ``AsyncClient.create_channel``."""
        return (await self.create_channels([name], **options))[0]

    async def create_channels(
        self, names: Iterable[str] = (), *, number: int = 0, **options: Unpack[CreateOptions]
    ) -> list[ChannelDescription]:
        """Create channels, each on the node with the fewest vchannels. Raises as ``AsyncClient.create_channels``."""
        return await self._created(names, Deadline(self.timeout_s), number=number, **options)

    async def ensure_channel(self, name: str, **settings: Unpack[ChannelSettings]) -> AsyncChannel:
        """Create a channel if it does not exist, and return its handle. Raises as ``AsyncClient.ensure_channel``."""
        return (await self.client_with(name, **settings)).channel(name)

    async def client_with(self, channel: str, **settings: Unpack[ChannelSettings]) -> AsyncClient:
        """Create a channel if it does not exist, and return a client of its owner; for ``ensure_channel``."""
        deadline = Deadline(self.timeout_s)
        await self._created([channel], deadline, if_not_exists=True, **settings)
        return await self._client_of(channel, deadline)

    async def alter_channels(
        self, names: Iterable[str], *, retention: Retention | RetentionChange
    ) -> list[ChannelDescription]:
        """Change settings of channels, atomically per node. Raises as ``AsyncClient.alter_channels``."""
        return await self._at_owners(
            names, lambda calls, part: calls.alter_channels(part, retention=retention), Deadline(self.timeout_s)
        )

    async def destroy_channels(
        self, names: Iterable[str], *, ignore_missing: bool = False, force: bool = False
    ) -> list[str]:
        """Delete channels, atomically per node. Raises as ``AsyncClient.destroy_channels``."""
        wanted = list(names)
        try:
            return await self._at_owners(
                wanted,
                lambda calls, part: calls.destroy_channels(part, ignore_missing=ignore_missing, force=force),
                Deadline(self.timeout_s),
                ignore_missing=ignore_missing,
            )
        finally:
            # Not ``_open_routes``: its error, if the client was closed meanwhile, would replace that of the call.
            if self._routes is not None:
                self._routes.forget(wanted)

    async def describe_channels(
        self, names: Iterable[str], *, ignore_missing: bool = False
    ) -> list[ChannelDescription]:
        """Return channels, whichever nodes own them. Raises as ``AsyncClient.describe_channels`` and ``owner_of``."""
        return await self._described(names, Deadline(self.timeout_s), ignore_missing=ignore_missing)

    async def list_channels(
        self, prefix: str = "", *, include_system: bool = False
    ) -> AsyncIterator[ChannelDescription]:
        """Yield the channels whose names begin with ``prefix``, in order of name; see ``AsyncClient.list_channels``.

        Channels that another node owns are yielded without vchannels; ``describe_channels`` returns these.
        """
        last = ""
        found = await self._ask_any(
            lambda client: _listed(client, prefix, include_system=include_system), Deadline(self.timeout_s)
        )
        for channel in found:
            assert last < channel.name
            last = channel.name
            yield channel

    async def allocate_ticks(self, count: int = 1) -> range:
        """Return ``count`` consecutive ticks; no other caller or message in the cluster ever gets them."""
        return await self._ask_any(lambda client: client.allocate_ticks(count), Deadline(self.timeout_s))

    async def aclose(self) -> None:
        """Close the clients of all nodes as ``AsyncClient.aclose`` does."""
        self._is_closed = True
        await self._end_feed()
        clients, self._clients = self._clients, {}
        await asyncio.gather(*(client.aclose() for client in clients.values()))

    async def pause(self) -> bool:
        """Close the connections until the next call, unless one is in use; return whether all are closed.

        For use before a fork. The feed of owners ends until it is needed again.
        """
        await self._end_feed()
        return all([await client.pause() for client in list(self._clients.values())])

    async def _end_feed(self) -> None:
        routes, self._routes = self._routes, None
        if routes is not None:
            await routes.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    # -- Private -------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the cluster's client is closed: create a new one")

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

    async def _client_of(self, channel: str, deadline: Deadline) -> AsyncClient:
        owner = await self._open_routes().owner(channel, deadline)
        return self._client_at(self._open_routes().address(owner))

    async def _ask_any(
        self, call: Callable[[AsyncClient], Awaitable[_Result]], deadline: Deadline, *, is_read: bool = True
    ) -> _Result:
        return await self._open_routes().any_node(call, deadline, is_read=is_read)

    async def _created(
        self, names: Iterable[str], deadline: Deadline, *, number: int = 0, **options: Unpack[CreateOptions]
    ) -> list[ChannelDescription]:
        wanted = list(names)
        created = await self._ask_any(
            lambda client: client.within(deadline).create_channels(wanted, number=number, **options),
            deadline,
            is_read=False,
        )
        # The node that created them does not know the details of channels that other nodes own.
        try:
            return await self._described([channel.name for channel in created], deadline)
        except TidelogError as error:
            # Only the description failed.
            error.effect = "unknown"
            raise

    async def _described(
        self, names: Iterable[str], deadline: Deadline, *, ignore_missing: bool = False
    ) -> list[ChannelDescription]:
        wanted = list(names)
        described = await self._at_owners(
            wanted,
            lambda calls, part: calls.describe_channels(part, ignore_missing=ignore_missing),
            deadline,
            ignore_missing=ignore_missing,
        )
        place = {name: index for index, name in enumerate(wanted)}
        return sorted(described, key=lambda channel: place[channel.name])

    async def _at_owners(
        self,
        names: Iterable[str],
        call: Callable[[CallsWithin, Sequence[str]], Awaitable[Sequence[_Result]]],
        deadline: Deadline,
        *,
        ignore_missing: bool = False,
    ) -> list[_Result]:
        """Call the owners of the channels one after the other, each with the names of its channels.

        Raises:
            ChannelsPartlyDoneError: A call failed after others had succeeded.
        """
        parts: dict[str, list[str]] = {}
        for name in names:
            try:
                owner = await self._open_routes().owner(name, deadline)
            except ChannelNotFoundError:
                if not ignore_missing:
                    raise
            else:
                parts.setdefault(self._open_routes().address(owner), []).append(name)
        results: list[_Result] = []
        done: list[str] = []
        for address, part in parts.items():
            try:
                results += await self._when_open(call, self._client_at(address), part, deadline)
            except TidelogError as error:
                rest = [name for other in parts.values() for name in other if name not in done and name not in part]
                if not done:
                    raise
                is_unknown = error.effect == "unknown"
                raise partly_done(
                    error,
                    done=done,
                    not_done=rest if is_unknown else [*part, *rest],
                    unknown=part if is_unknown else [],
                ) from error
            done += part
        return results

    async def _when_open(
        self,
        call: Callable[[CallsWithin, Sequence[str]], Awaitable[Sequence[_Result]]],
        client: AsyncClient,
        names: Sequence[str],
        deadline: Deadline,
    ) -> Sequence[_Result]:
        """Call the owner of channels, and retry while it has not opened them yet."""
        looks = Looks(deadline)
        while True:
            try:
                return await call(client.within(deadline), names)
            except ChannelNotFoundError as error:
                await looks.again(error)


async def _listed(client: AsyncClient, prefix: str, *, include_system: bool) -> list[ChannelDescription]:
    return [channel async for channel in client.list_channels(prefix, include_system=include_system)]


def endpoint_list(endpoints: str | Iterable[str]) -> tuple[str, ...]:
    """Split ``endpoints`` into a tuple. Raises ValueError if it is empty."""
    several = endpoints.split(",") if isinstance(endpoints, str) else endpoints
    found = tuple(endpoint.strip() for endpoint in several if endpoint.strip())
    if not found:
        raise ValueError("there is no endpoint: pass the host:port of at least one node")
    return found
