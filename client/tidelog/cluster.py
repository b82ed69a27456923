"""A client of a cluster: asks any node for cluster-wide calls, and the owner of a channel for everything else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Self, TypeVar, Unpack

from tidelog._closing import AsyncClosing
from tidelog.admin.channel_types import ChannelDescription, ChannelSettings, CreateOptions, Retention, RetentionChange
from tidelog.admin.channels import partly_done, targets_of
from tidelog.admin.cluster_types import ChannelOwner, ClusterDescription
from tidelog.admin.mailboxes import AsyncClusterMailboxCalls
from tidelog.admin.nodes import CallsWithin
from tidelog.append.numbered_channel import NumberedChannels
from tidelog.client import DEFAULT_TIMEOUT_S, AsyncClient
from tidelog.errors import ChannelNotFoundError, ClosedError, InvalidRequestError, TidelogError
from tidelog.handles import AsyncChannel, AsyncVchannel
from tidelog.journals.calls import AsyncClusterJournalCalls
from tidelog.mailboxes.calls import ClusterMessageCalls
from tidelog.mailboxes.mailbox import AsyncMailbox
from tidelog.read.channel_patterns import patterns_of
from tidelog.read.merged_scan import MergedCore
from tidelog.read.positions import EARLIEST, FOLLOW, LATEST, WATERMARK, At, End, Positions, Start
from tidelog.read.scan import AsyncScan, ScanCore
from tidelog.read.scan_plan import ScanArguments, ScanOptions, check_options, scan_arguments
from tidelog.read.scan_sources import Targets, sources_of
from tidelog.routes import AsyncNodeClient, Routes
from tidelog.session import ClientOptions
from tidelog.settings.resolver import access, context_access
from tidelog.transport.credentials import TlsOptions, TokenSource
from tidelog.transport.deadline import Deadline
from tidelog.transport.in_one_process import InOneProcess
from tidelog.transport.looks import Looks
from tidelog.transport.retry import DEFAULT_RETRY
from tidelog.wire.durations import Duration, check_seconds

_Result = TypeVar("_Result")
_LOOKUP_S: Final = 2.0
"""Maximum seconds of one lookup of the address of a node."""


class AsyncCluster(InOneProcess, AsyncClosing):
    """Tidelog servers that share one etcd, or a single server. ``Cluster`` is its synchronous twin.

    Each channel is owned by one node, which serves all calls on it. ``client_of``, ``channel`` and ``vchannel`` return
    objects connected to the owner. They follow the node if another process serves it later, at another address, and
    resume as after a restart of a server. Transactions, broadcasts and consumer groups span channels of one node. Use
    it with ``async with``.
    """

    @classmethod
    def from_context(cls, name: str | None = None, **options: Unpack[ClientOptions]) -> Self:
        """Return a client of a context. See ``AsyncClient.from_context``."""
        endpoints, tls, token = context_access(name, options.get("tls"), options.get("token"))
        options["tls"], options["token"] = tls, token
        return cls(endpoints, **options)

    def __init__(
        self,
        endpoints: str | Iterable[str] | None = None,
        *,
        timeout_s: Duration = DEFAULT_TIMEOUT_S,
        tls: TlsOptions | None = None,
        token: TokenSource | None = None,
        **options: Any,
    ) -> None:
        """Create a client of the cluster; does no I/O with a server.

        Args:
            endpoints: ``host:port`` of one or more nodes, as a comma-separated string, an iterable or a URL. The other
                nodes are discovered. Default None: as for ``AsyncClient``.
            timeout_s: Timeout of a call in seconds.
            tls: TLS settings, as for ``AsyncClient``.
            token: Access token, as for ``AsyncClient``.
            options: Further options of ``AsyncClient``, for the client of each node.

        Raises:
            ValueError: There is no endpoint, an endpoint or the context is invalid, or the token would be sent
                unencrypted to another machine.
        """
        self.endpoints, tls, token = access(endpoints, tls, token)
        self.timeout_s = check_seconds("timeout_s", timeout_s)
        self._options = {**options, "tls": tls, "token": token}
        # Clients of addresses, for calls that any node answers, and clients of nodes.
        self._clients: dict[str, AsyncClient] = {}
        self._node_clients: dict[str, AsyncNodeClient] = {}
        # Of all of them: which one serves a channel is not known before the cluster answers.
        self._numbered = NumberedChannels()
        self._routes: Routes | None = None
        self._is_closing = self._is_closed = False
        self.journals = AsyncClusterJournalCalls(self._ask_any, self.timeout_s)
        self.mailboxes = AsyncClusterMailboxCalls(self._ask_any, self._client_of, self.timeout_s)
        self._message_calls = ClusterMessageCalls(self.mailboxes, options.get("retry", DEFAULT_RETRY))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self.endpoints)}{', closed' if self._is_closed else ''}>"

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
        """Return a client of the node that owns ``channel``; ``aclose`` closes it.

        Raises as ``owner_of``, unless it returned a client of the node before: that one waits for the node.
        """
        return await self._client_of(channel, Deadline(self.timeout_s))

    async def client_for(self, owner: ChannelOwner) -> AsyncClient:
        """Return a client of the node of ``owner``, which was looked up before, maybe long ago. Does no I/O."""
        node_id, address = owner.node_id, self._open_routes().address(owner)
        if not node_id:
            # A server without a cluster.
            return self._client_at(address)
        client = self._node_clients.get(node_id)
        if client is None or client.is_closed:

            async def locate(former: str) -> str:
                return await self._known_routes().address_of(node_id, former, Deadline(_LOOKUP_S))

            client = AsyncNodeClient(node_id, address, locate, timeout_s=self.timeout_s, **self._options)
            client._numbered = self._numbered  # noqa: SLF001 - it makes the client
            self._node_clients[node_id] = client
        return client

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
        self,
        names: Iterable[str],
        *,
        retention: Retention | RetentionChange | None = None,
        vchannels: int | None = None,
    ) -> list[ChannelDescription]:
        """Change settings of channels, atomically per node. Raises as ``AsyncClient.alter_channels``."""
        return await self._at_owners(
            names,
            lambda calls, part: calls.alter_channels(part, retention=retention, vchannels=vchannels),
            Deadline(self.timeout_s),
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
            if (routes := self._routes) is not None:
                # The next lookup asks a node again.
                for channel in wanted:
                    routes.owners.pop(channel, None)

    async def describe_channels(
        self, names: Iterable[str], *, ignore_missing: bool = False
    ) -> list[ChannelDescription]:
        """Return channels, whichever nodes own them. Raises as ``AsyncClient.describe_channels`` and ``owner_of``."""
        return await self._described(names, Deadline(self.timeout_s), ignore_missing=ignore_missing)

    async def list_channels(
        self, prefix: str = "", *, include_system: bool = False, only_readable: bool = False
    ) -> AsyncIterator[ChannelDescription]:
        """Yield the channels whose names begin with ``prefix``, or match it as a pattern, in order of name.

        See ``AsyncClient.list_channels``. Channels that another node owns are yielded without vchannels;
        ``describe_channels`` returns these.
        """
        last = ""

        async def listed(client: AsyncClient) -> list[ChannelDescription]:
            channels = client.list_channels(prefix, include_system=include_system, only_readable=only_readable)
            return [channel async for channel in channels]

        found = await self._ask_any(listed, Deadline(self.timeout_s))
        for channel in found:
            assert last < channel.name
            last = channel.name
            yield channel

    async def vchannels_of(self, names: Iterable[str]) -> list[str]:
        """Return full names of vchannels, whichever nodes own them; see ``AsyncClient.vchannels_of``."""
        return list((await targets_of(self, names)).vchannels)

    def scan(
        self,
        vchannels: str | Iterable[str],
        *,
        start: Start | Positions = EARLIEST,
        until: End = WATERMARK,
        **options: Unpack[ScanOptions],
    ) -> AsyncScan:
        """Return a scan of vchannels of any nodes, merged in tick order; see ``AsyncClient.scan``.

        A batch is delivered once no node can have an earlier one, so a node that is away delays the others. Without an
        end, the scan ends at one tick on all nodes, after everything that was acknowledged before it opens.

        Raises:
            ValueError: A position, option or pattern is invalid.
        """
        names = [vchannels] if isinstance(vchannels, str) else list(vchannels)
        check_options(options)
        plan = replace(scan_arguments(start, until, **options), patterns=patterns_of(names))
        return AsyncScan(MergedCore(lambda: self._opened_scans(lambda: targets_of(self, names), plan), plan))

    def tail(
        self,
        vchannels: str | Iterable[str],
        *,
        start: Start | Positions = LATEST,
        until: End = FOLLOW,
        **options: Unpack[ScanOptions],
    ) -> AsyncScan:
        """Return a scan that follows new messages, by default from now on. Otherwise as ``scan``."""
        return self.scan(vchannels, start=start, until=until, **options)

    async def allocate_ticks(self, count: int = 1) -> range:
        """Return ``count`` consecutive ticks; no other caller or message in the cluster ever gets them."""
        return await self._ask_any(lambda client: client.allocate_ticks(count), Deadline(self.timeout_s))

    async def aclose(self) -> None:
        """Close the clients of all nodes as ``AsyncClient.aclose`` does."""
        self._is_closing = True
        try:
            # Ordering: they look their node up, if they must, for what a close waits for.
            await asyncio.gather(*(client.aclose() for client in self._node_clients.values()))
        finally:
            self._is_closed = True
            await self._end_feed()
            clients = self._all_clients()
            self._clients, self._node_clients = {}, {}
            await asyncio.gather(*(client.aclose() for client in clients))

    async def pause(self) -> bool:
        """Close the connections until the next call, unless one is in use; return whether all are closed.

        For use before a fork. The feed of owners ends until it is needed again.
        """
        await self._end_feed()
        return all([await client.pause() for client in self._all_clients()])

    def _all_clients(self) -> list[AsyncClient]:
        return [*self._clients.values(), *self._node_clients.values()]

    async def _end_feed(self) -> None:
        routes, self._routes = self._routes, None
        if routes is not None:
            await routes.aclose()

    # -- Private -------------------------------------------------------------------------------------------

    def _open_routes(self) -> Routes:
        _check_open(is_closed=self._is_closing)
        return self._known_routes()

    def _known_routes(self) -> Routes:
        _check_open(is_closed=self._is_closed)
        if self._routes is None:
            self._routes = Routes(self._client_at, self.endpoints)
        return self._routes

    def _client_at(self, address: str) -> AsyncClient:
        _check_open(is_closed=self._is_closed)
        if address not in self._clients:
            client = self._clients[address] = AsyncClient(address, timeout_s=self.timeout_s, **self._options)
            client._numbered = self._numbered  # noqa: SLF001 - it makes the client
        return self._clients[address]

    async def _client_of(self, channel: str, deadline: Deadline) -> AsyncClient:
        known = self._open_routes().owners.get(channel)
        if known is not None and (client := self._node_clients.get(known.node_id)) and not client.is_closed:
            # It looks the address up itself, when it needs to.
            return client
        return await self.client_for(await self._open_routes().owner(channel, deadline))

    async def _ask_any(
        self, call: Callable[[AsyncClient], Awaitable[_Result]], deadline: Deadline, *, is_read: bool = True
    ) -> _Result:
        return await self._open_routes().any_node(call, deadline, is_read=is_read)

    async def _opened_scans(self, resolve: Callable[[], Awaitable[Targets]], plan: ScanArguments) -> list[ScanCore]:
        """Return the scans of the nodes that own the targets, with a common end if the plan ends at the watermark."""
        deadline = Deadline(self.timeout_s)
        targets = await resolve()
        if not targets.vchannels:
            raise InvalidRequestError("the scan names no vchannel, expected one or more", values={"field": "sources"})
        # For its checks, which are of all vchannels.
        sources_of(plan, targets)
        parts: dict[AsyncClient, list[str]] = {}
        for name in targets.vchannels:
            parts.setdefault(await self._client_of(name.partition("/")[0], deadline), []).append(name)
        if plan.until.kind == "watermark" and len(parts) > 1:
            # Each node has ticks of its own range: the end is above those of all.
            ticks = await asyncio.gather(*(client.allocate_ticks() for client in parts))
            plan = replace(plan, until=At.tick(max(tick.start for tick in ticks)))
        return [client.scan_core(targets.of(part), plan) for client, part in parts.items()]

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
        parts: dict[AsyncClient, list[str]] = {}
        for name in names:
            try:
                owner = await self._open_routes().owner(name, deadline)
            except ChannelNotFoundError:
                if not ignore_missing:
                    raise
            else:
                parts.setdefault(await self.client_for(owner), []).append(name)
        results: list[_Result] = []
        done: list[str] = []
        for client, part in parts.items():
            try:
                results += await self._when_open(call, client, part, deadline)
            except TidelogError as error:
                rest = [name for other in parts.values() for name in other if name not in done and name not in part]
                if not done:
                    raise
                raise partly_done(error, done=done, failed=part, rest=rest) from error
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


def _check_open(*, is_closed: bool) -> None:
    if is_closed:
        raise ClosedError("the cluster's client is closed: create a new one")
