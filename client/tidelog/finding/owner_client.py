"""The client that finds owners: ``AsyncClient`` of a URL, of the environment or of a context."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import wraps
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

from tidelog.admin.broadcast_types import AckMode, ResourceKey
from tidelog.admin.channel_types import ChannelDescription
from tidelog.admin.cluster_types import ChannelOwner
from tidelog.admin.mailboxes import AsyncClusterMailboxCalls
from tidelog.admin.tokens import TokenDescription
from tidelog.append.stream import AppendStream
from tidelog.client import DEFAULT_TIMEOUT_S, AsyncClient
from tidelog.cluster import AsyncCluster
from tidelog.errors import (
    BroadcastNotFoundError,
    DeadlineError,
    GroupNotFoundError,
    TidelogError,
    TransactionNotFoundError,
    UnavailableError,
)
from tidelog.journals.calls import AsyncClusterJournalCalls
from tidelog.mailboxes.calls import ClusterMessageCalls
from tidelog.mailboxes.mailbox import AsyncMailbox
from tidelog.read.merged_scan import MergedCore
from tidelog.read.scan import ScanCore
from tidelog.read.scan_plan import ScanArguments
from tidelog.read.scan_sources import Targets
from tidelog.read.scanned import Scanned
from tidelog.session import ClientSession
from tidelog.settings.resolver import access
from tidelog.transport.credentials import TlsOptions, TokenSource
from tidelog.transport.deadline import Deadline
from tidelog.transport.node.located import Located
from tidelog.transport.transport import Transport
from tidelog.types import TransactionDescription
from tidelog.wire.durations import Duration, seconds_or

_Method = TypeVar("_Method", bound=Callable[..., Any])
_Result = TypeVar("_Result")
_ABSENT: Final = (UnavailableError, DeadlineError)


def _at_owner(method: _Method, parameter: str) -> _Method:
    """Return the call of ``AsyncClient`` at the owner of what ``parameter`` names: channels, vchannels or commits."""
    signature = inspect.signature(method)
    place = list(signature.parameters).index(parameter) - 1

    @wraps(method)
    async def call(self: "OwnerFindingClient", *args: Any, **options: Any) -> Any:
        if place >= len(args) and parameter not in options:
            # Raises TypeError, as the method does, unless the parameter has a default.
            signature.bind(self, *args, **options)
        named = args[place] if place < len(args) else options.get(parameter, ())
        if not isinstance(named, str):
            # It may be an iterator.
            named = list(named)
            if place < len(args):
                args = (*args[:place], named, *args[place + 1 :])
            else:
                options[parameter] = named
        return await method(await self._node_of(_first(named)), *args, **options)

    return cast("_Method", call)


def _first(named: Any) -> str:
    """Return the first name; empty without names."""
    if isinstance(named, str):
        return named
    first = next(iter(named), "")
    return str(getattr(first, "vchannel", first))


def _anywhere(method: _Method, *, is_read: bool = True) -> _Method:
    """Return the call of ``AsyncClient`` at any node that answers."""

    @wraps(method)
    async def call(self: "OwnerFindingClient", *args: Any, **options: Any) -> Any:
        return await self._any_node(
            lambda node: method(node, *args, **options), Deadline(self.timeout_s), is_read=is_read
        )

    return cast("_Method", call)


def _spread(method: _Method, in_cluster: Callable[..., Awaitable[Any]]) -> _Method:
    """Return the call of ``AsyncClient`` on channels, which may belong to several nodes of a cluster."""

    @wraps(method)
    async def call(self: "OwnerFindingClient", *args: Any, **options: Any) -> Any:
        if (alone := await self._alone()) is not None:
            return await method(alone, *args, **options)
        return await in_cluster(self.cluster, *args, **options)

    return cast("_Method", call)


def _where_it_is(method: _Method, missing: type[TidelogError]) -> _Method:
    """Return the call of ``AsyncClient`` at the first node, in order of id, that does not raise ``missing``."""

    @wraps(method)
    async def call(self: "OwnerFindingClient", *args: Any, **options: Any) -> Any:
        absent: TidelogError | None = None
        unknown: TidelogError | None = None
        for node in await self._nodes():
            try:
                return await method(node, *args, **options)
            except missing as error:
                unknown = error
            except UnavailableError as error:
                if error.effect == "unknown":
                    raise
                absent = error
        # It may be on the node that does not answer.
        failure = absent or unknown
        assert failure is not None
        raise failure

    return cast("_Method", call)


def _listed(method: _Method, order: str) -> _Method:
    """Return the listing of ``AsyncClient`` at all nodes, in the order of an attribute of what is listed."""

    @wraps(method)
    async def call(self: "OwnerFindingClient", *args: Any, **options: Any) -> AsyncIterator[Any]:
        first, *others = [method(node, *args, **options) for node in await self._nodes()]
        if not others:
            async for item in first:
                yield item
            return
        for item in sorted([item for each in (first, *others) async for item in each], key=attrgetter(order)):
            yield item

    return cast("_Method", call)


class OwnerFindingClient(AsyncClient):
    """A client of a server, or of all nodes of a cluster. See ``AsyncClient``, whose constructor makes it.

    A call that names a channel, vchannel, journal or mailbox is made at the node that owns it. What spans several is
    made at the owner of the first. Groups, broadcasts and transactions that are named alone are looked for on all
    nodes. Checkpoints, blobs without a mailbox and prepared transactions are those of the first address.

    The lookup before the first call, or of an owner that is not known, takes at most ``timeout_s`` in addition.

    Attributes:
        cluster: Finds the nodes.
    """

    def __init__(
        self,
        endpoint: str | Iterable[str] | None = None,
        *,
        timeout_s: Duration = DEFAULT_TIMEOUT_S,
        tls: TlsOptions | None = None,
        token: TokenSource | None = None,
        **options: Any,
    ) -> None:
        """Create a client; see ``AsyncClient``."""
        endpoints, tls, token = access(endpoint, tls, token)
        super().__init__(endpoints[0], timeout_s=timeout_s, tls=tls, token=token, **options)
        self.cluster = AsyncCluster(endpoints, timeout_s=timeout_s, tls=tls, token=token, **options)
        self.journals = AsyncClusterJournalCalls(self._any_node, self.timeout_s)
        mailboxes = AsyncClusterMailboxCalls(self._any_node, self._owner_of, self.timeout_s)
        self.mailboxes = mailboxes
        self._calls_of_mailboxes = ClusterMessageCalls(mailboxes, self._retry)
        self._looking: asyncio.Task[bool | None] | None = None
        # Whether there is a server without a cluster; None while this is not known.
        self._is_alone: bool | None = None

    def __repr__(self) -> str:
        return f"<AsyncClient of {', '.join(self.cluster.endpoints)}{', closed' if self._is_closed else ''}>"

    # -- Calls at the owner --------------------------------------------------------------------------------

    latest_mvcc_tick = _at_owner(AsyncClient.latest_mvcc_tick, "vchannel")
    plan_scan = _at_owner(AsyncClient.plan_scan, "vchannels")
    trim = _at_owner(AsyncClient.trim, "vchannel")
    open_producer = _at_owner(AsyncClient.open_producer, "vchannel")
    fence = _at_owner(AsyncClient.fence, "vchannel")
    append = _at_owner(AsyncClient.append, "vchannel")
    append_numbered = _at_owner(AsyncClient.append_numbered, "vchannel")
    broadcast = _at_owner(AsyncClient.broadcast, "vchannels")
    ack = _at_owner(AsyncClient.ack, "vchannels")
    create_group = _at_owner(AsyncClient.create_group, "channels")
    subscribe_group = _at_owner(AsyncClient.subscribe_group, "channels")
    unsubscribe_group = _at_owner(AsyncClient.unsubscribe_group, "channels")
    commit_positions = _at_owner(AsyncClient.commit_positions, "commits")
    consume = _at_owner(AsyncClient.consume, "vchannel")

    def mailbox(self, name: str) -> AsyncMailbox:
        """See ``AsyncClient.mailbox``."""
        return AsyncMailbox(self._calls_of_mailboxes, name)

    # -- Channels, whichever nodes own them ----------------------------------------------------------------

    create_channel = _spread(AsyncClient.create_channel, AsyncCluster.create_channel)
    create_channels = _spread(AsyncClient.create_channels, AsyncCluster.create_channels)
    alter_channels = _spread(AsyncClient.alter_channels, AsyncCluster.alter_channels)
    destroy_channels = _spread(AsyncClient.destroy_channels, AsyncCluster.destroy_channels)
    describe_channels = _spread(AsyncClient.describe_channels, AsyncCluster.describe_channels)

    # -- Calls at any node, or at all ----------------------------------------------------------------------

    wal_name = _anywhere(AsyncClient.wal_name)
    allocate_ticks = _anywhere(AsyncClient.allocate_ticks)
    metrics_text = _anywhere(AsyncClient.metrics_text)
    describe_cluster = _anywhere(AsyncClient.describe_cluster)
    locate_channels = _anywhere(AsyncClient.locate_channels)
    create_token = _anywhere(AsyncClient.create_token, is_read=False)
    revoke_token = _anywhere(AsyncClient.revoke_token, is_read=False)
    describe_group = _where_it_is(AsyncClient.describe_group, GroupNotFoundError)
    seek_group = _where_it_is(AsyncClient.seek_group, GroupNotFoundError)
    describe_txn = _where_it_is(AsyncClient.describe_txn, TransactionNotFoundError)
    abort_txn = _where_it_is(AsyncClient.abort_txn, TransactionNotFoundError)
    describe_broadcast = _where_it_is(AsyncClient.describe_broadcast, BroadcastNotFoundError)
    abort_broadcast = _where_it_is(AsyncClient.abort_broadcast, BroadcastNotFoundError)

    list_groups = _listed(AsyncClient.list_groups, "name")
    list_broadcasts = _listed(AsyncClient.list_broadcasts, "broadcast_id")

    async def wait_acked(
        self, key_or_id: ResourceKey | int, *, mode: AckMode = AckMode.ALL, timeout_s: Duration | None = None
    ) -> None:
        """See ``AsyncClient.wait_acked``. Broadcasts of each node that hold a key are waited for."""
        if isinstance(key_or_id, ResourceKey):
            deadline = Deadline(seconds_or("timeout_s", timeout_s, self.timeout_s))
            for node in await self._nodes():
                await node.wait_acked(key_or_id, mode=mode, timeout_s=max(0.0, deadline.left_s))
        else:
            await self._wait_acked(key_or_id, mode=mode, timeout_s=timeout_s)

    _wait_acked = _where_it_is(AsyncClient.wait_acked, BroadcastNotFoundError)

    async def destroy_group(self, group: str, *, ignore_missing: bool = False, force: bool = False) -> bool:
        """See ``AsyncClient.destroy_group``."""
        try:
            return await self._destroy_group(group, force=force)
        except GroupNotFoundError:
            if ignore_missing:
                return False
            raise

    _destroy_group = _where_it_is(AsyncClient.destroy_group, GroupNotFoundError)

    async def list_txns(self) -> list[TransactionDescription]:
        """See ``AsyncClient.list_txns``; those of all nodes."""
        found = [txn for node in await self._nodes() for txn in await node.list_txns()]
        return sorted(found, key=lambda txn: txn.txn_id)

    async def list_channels(
        self, prefix: str = "", *, include_system: bool = False, only_readable: bool = False
    ) -> AsyncIterator[ChannelDescription]:
        """See ``AsyncClient.list_channels``."""
        alone = await self._alone()
        async for channel in (self.cluster if alone is None else alone).list_channels(
            prefix, include_system=include_system, only_readable=only_readable
        ):
            yield channel

    async def list_tokens(self, *, everything: bool = False) -> AsyncIterator[TokenDescription]:
        """See ``AsyncClient.list_tokens``."""
        async for token in (await self._node_of("")).list_tokens(everything=everything):
            yield token

    async def reach(self, timeout_s: float) -> None:
        """See ``AsyncClient.reach``; at any node."""
        await (await self._node_of("")).reach(timeout_s)

    # -- The client itself ---------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close the clients of all nodes as ``AsyncClient.aclose`` does."""
        self._is_closed = True
        if (looking := self._looking) is not None and looking.get_loop() is asyncio.get_running_loop():
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        await self.cluster.aclose()

    async def pause(self) -> bool:
        """See ``AsyncCluster.pause``."""
        return await self.cluster.pause()

    def _session(self) -> ClientSession:
        """Return the session at the first address, for what belongs to no channel and no node."""
        self.check_open()
        return self.cluster._client_at(self.endpoint)._session()  # noqa: SLF001 - its own client

    def _appends(self) -> Callable[[], AppendStream]:
        return self._located(lambda node: node._appends())  # noqa: SLF001 - a client of a node

    def _scanned(self, resolve: Callable[[], Awaitable[Targets]], plan: ScanArguments) -> Scanned:
        async def opened() -> list[ScanCore]:
            self.check_open()
            if (alone := await self._alone()) is not None:
                return [ScanCore(alone._own_transport, resolve, plan)]  # noqa: SLF001 - a client of a node
            return await self.cluster._opened_scans(resolve, plan)  # noqa: SLF001 - its own cluster

        return MergedCore(opened, plan)

    def _reader_transport(self) -> Callable[[], Transport]:
        return self._located(lambda node: node._own_transport)  # noqa: SLF001 - a client of a node

    def _located(self, part: Callable[[AsyncClient], Callable[[], _Result]]) -> Callable[[], _Result]:
        async def find(names: Sequence[str], mailboxes: Sequence[str]) -> Callable[[], _Result]:
            if not names and mailboxes and await self._alone() is None:
                names = [await self.mailboxes.channel_of(mailboxes[0])]
            return part(await self._node_of(_first(names)))

        return Located(find)

    async def _node_of(self, name: str) -> AsyncClient:
        """Return a client of the node that owns a channel or vchannel; of a node that answers if the name is empty."""
        self.check_open()
        if (alone := await self._alone()) is not None:
            return alone
        return await (self.cluster.client_of(name.partition("/")[0]) if name else self._anyone())

    async def _owner_of(self, channel: str, deadline: Deadline) -> AsyncClient:
        """Return a client of the owner of a channel, within a deadline; for mailboxes."""
        if (alone := await self._alone()) is not None:
            return alone
        return await self.cluster._client_of(channel, deadline)  # noqa: SLF001 - its own cluster

    async def _any_node(
        self, call: Callable[[Any], Awaitable[_Result]], deadline: Deadline, *, is_read: bool = True
    ) -> _Result:
        """Return the answer of any node to ``call``."""
        self.check_open()
        if (alone := await self._alone()) is not None:
            return await call(alone)
        return await self.cluster._ask_any(call, deadline, is_read=is_read)  # noqa: SLF001 - its own cluster

    async def _nodes(self) -> list[AsyncClient]:
        """Return clients of all running nodes, in order of id."""
        self.check_open()
        if (alone := await self._alone()) is not None:
            return [alone]
        return [
            await self.cluster.client_for(ChannelOwner("", node.node_id, node.address, node.term))
            for node in (await self.cluster.describe()).nodes
        ]

    async def _anyone(self) -> AsyncClient:
        return await self.cluster.client_for(ChannelOwner("", "", "", 0))

    async def _alone(self) -> AsyncClient | None:
        """Return a client of the server if there is no cluster, or if the only address is not reached now.

        Then the call itself waits for the server, or fails, as that of a client of an address does.
        """
        if self._is_alone is None:
            looking, loop = self._looking, asyncio.get_running_loop()
            if looking is None or looking.done() or looking.get_loop() is not loop:
                # One for all calls that begin meanwhile.
                looking = self._looking = asyncio.create_task(self._looks_alone(), name="tidelog-look")
            try:
                self._is_alone = await asyncio.shield(looking)
            except asyncio.CancelledError:
                if looking.cancelled():
                    # ``aclose`` has cancelled the lookup. The call was not cancelled.
                    self.check_open()
                raise
        return None if self._is_alone is False else await self._anyone()

    async def _looks_alone(self) -> bool | None:
        """Return whether there is a server without a cluster; None if the only address is not reached."""
        deadline, is_one = Deadline(self.timeout_s), len(self.cluster.endpoints) == 1
        try:
            if is_one:
                # It fails at once if no process listens there.
                await (await self._anyone()).reach(min(self._connect_timeout_s, deadline.left_s))
            described = await self.cluster._ask_any(  # noqa: SLF001 - its own cluster
                lambda node: node.describe_cluster(), deadline
            )
        except _ABSENT:
            if is_one:
                return None
            raise
        return not described.cluster_id
