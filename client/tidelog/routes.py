"""Routing of calls in a cluster: to any node that answers, or to the owner of a channel, by a client of its node."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final, TypeVar

from tidelog.admin.cluster_types import ChannelOwner
from tidelog.client import AsyncClient
from tidelog.errors import ClosedError, DeadlineError, TidelogError, UnavailableError
from tidelog.transport.deadline import Deadline
from tidelog.transport.node.transport import Locate, NodeTransport
from tidelog.transport.retry import DEFAULT_RETRY, Retry
from tidelog.transport.transport import Transport

_Result = TypeVar("_Result")
_HEAD_START_S: Final = 0.5
"""Time that a node has to answer before the next one is called as well; less if the call's timeout is short."""
_FEED_WITHIN_S: Final = 10.0
_FEED_AFTER_S: Final = 1.0
"""Time from the first lookup to the feed: a program that ends before needs no list of all channels."""
# Between calls of all nodes while none answers: clients wait for the first that does.
_LOOKUPS: Final = Retry(cap_s=0.5)
_ABSENT: Final = (UnavailableError, DeadlineError)


class AsyncNodeClient(AsyncClient):
    """A client of a node of a cluster: it follows the node to the process that serves it. ``AsyncCluster`` makes it.

    Attributes:
        node_id: The node.
    """

    def __init__(self, node_id: str, endpoint: str, locate: Locate, **options: Any) -> None:
        """Create a client; does no I/O.

        Args:
            node_id: The node.
            endpoint: Its present address.
            locate: Looks its address up.
            options: Options of ``AsyncClient``.
        """
        super().__init__(endpoint, **options)
        self.node_id = node_id
        self._locate = locate

    @property
    def is_closed(self) -> bool:
        """Whether the client was closed: the cluster makes another one."""
        return self._is_closed

    def _new_transport(self, **options: Any) -> Transport:
        return NodeTransport(self.node_id, self.endpoint, self._locate, self._moved, **options)

    def _moved(self, endpoint: str) -> None:
        self._endpoint = endpoint


class Routes:
    """The owners of channels, updated by a feed from any node that answers. Lives in one event loop.

    Attributes:
        owners: The known owners, whether they run or not.
    """

    def __init__(self, client_at: Callable[[str], AsyncClient], endpoints: Sequence[str]) -> None:
        self._client_at = client_at
        self._named = tuple(endpoints)
        # The nodes to call, in order: those known to run, and those that were configured.
        self._endpoints = deque(endpoints)
        self.owners: dict[str, ChannelOwner] = {}
        self._runner: asyncio.Task[None] | None = None

    async def any_node(
        self, call: Callable[[AsyncClient], Awaitable[_Result]], deadline: Deadline, *, is_read: bool = True
    ) -> _Result:
        """Return the first response of any node to ``call``.

        If a node refuses connections, the next one is called at once; if it does not answer, the next one is called as
        well. All are called again until the timeout. The first node to answer is called first from then on.

        Args:
            call: Makes the call to a node.
            deadline: When the wait ends. A read is cancelled at it; another call must bound its request by it.
            is_read: Whether the call only reads, so that several nodes may be called at once.

        Raises:
            UnavailableError: No node has answered; the text names each with the reason.
            DeadlineError: No time is left. No node was called.
            TidelogError: The error that the node returned.
        """
        deadline.check("the next request")
        if is_read:
            return await self._first_answer(call, deadline.at_s)
        pauses_s = DEFAULT_RETRY.pauses_s()
        while True:
            endpoint = await self._first_answer(_endpoint_of, deadline.at_s)
            try:
                return await call(self._client_at(endpoint))
            except UnavailableError as error:
                pause_s = next(pauses_s)
                if error.effect == "unknown" or pause_s >= deadline.left_s:
                    raise
            self._ask_last(endpoint)
            await asyncio.sleep(pause_s)

    async def owner(self, channel: str, deadline: Deadline) -> ChannelOwner:
        """Return the owner of a channel.

        Raises:
            ChannelNotFoundError: The channel does not exist.
            UnavailableError: Its node is not running, or no node answers.
        """
        if self._runner is None:
            self._runner = asyncio.create_task(self._follow(), name="tidelog-owners")
        owner = self.owners.get(channel)
        if owner is None or not owner.address:
            found = await self.any_node(lambda client: client.locate_channels([channel]), deadline)
            owner = self.owners[channel] = ChannelOwner.running(found, channel)
        return owner

    async def address_of(self, node_id: str, former: str, deadline: Deadline) -> str:
        """Return the address of a node, empty if it is not registered.

        The node at ``former``, its address so far, is asked last: it may not know that it is replaced.

        Raises:
            UnavailableError, DeadlineError: No node answers.
        """
        self._ask_last(former)
        described = await self.any_node(lambda client: client.describe_cluster(), deadline)
        return next((node.address for node in described.nodes if node.node_id == node_id), "")

    def address(self, owner: ChannelOwner) -> str:
        """Return the address of an owner."""
        return owner.address or self._endpoints[0]

    async def aclose(self) -> None:
        """End the feed."""
        if self._runner is not None:
            self._runner.cancel()
            with suppress(asyncio.CancelledError):
                await self._runner
            self._runner = None

    async def _first_answer(self, call: Callable[[AsyncClient], Awaitable[_Result]], deadline_s: float) -> _Result:
        """Return the first answer of any node. Raises as ``any_node``."""
        clock = asyncio.get_running_loop().time
        begin_s = clock()
        pauses_s = _LOOKUPS.pauses_s()
        while True:
            absent: dict[str, TidelogError] = {}
            endpoints = tuple(self._endpoints)
            if (won := await _race(call, self._client_at, endpoints, deadline_s, absent)) is not None:
                endpoint, answer = won
                if endpoint in self._endpoints:
                    self._endpoints.remove(endpoint)
                    self._endpoints.appendleft(endpoint)
                return answer
            pause_s = next(pauses_s)
            if clock() + pause_s >= deadline_s:
                raise _no_answer(endpoints, absent, clock() - begin_s)
            await asyncio.sleep(pause_s)

    def _ask_last(self, endpoint: str) -> None:
        if endpoint in self._endpoints:
            self._endpoints.remove(endpoint)
            self._endpoints.append(endpoint)

    def _learn(self, owners: Mapping[str, ChannelOwner], reported_by: str) -> None:
        """Store the owners, and put ``reported_by`` and the running nodes first in the order of calls."""
        self.owners = dict(owners)
        running = {owner.address: None for owner in owners.values() if owner.address}
        self._endpoints = deque(dict.fromkeys((reported_by, *running, *self._named)))

    async def _follow(self) -> None:
        """Update the owners from the feed of one node after another, until cancelled."""
        clock = asyncio.get_running_loop().time
        pauses_s = DEFAULT_RETRY.pauses_s()
        await asyncio.sleep(_FEED_AFTER_S)
        while True:
            reported: dict[str, ChannelOwner] = {}
            is_complete = False
            endpoint: str | None = None
            try:
                endpoint = await self._first_answer(_endpoint_of, clock() + _FEED_WITHIN_S)
                async with aclosing(self._client_at(endpoint).owners_feed()) as changes:
                    async for change in changes:
                        reported |= change.owners
                        for name in change.gone:
                            reported.pop(name, None)
                        is_complete = is_complete or change.is_complete
                        if is_complete:
                            self._learn(reported, endpoint)
                            pauses_s = DEFAULT_RETRY.pauses_s()
            except ClosedError:
                # The cluster's client is closed, and will cancel this task.
                return
            except TidelogError:
                # The known owners stay in use: a node that no longer owns a channel answers with the new owner.
                if endpoint is not None:
                    self._ask_last(endpoint)
            await asyncio.sleep(next(pauses_s))


async def _race(
    call: Callable[[AsyncClient], Awaitable[_Result]],
    client_at: Callable[[str], AsyncClient],
    endpoints: Sequence[str],
    deadline_s: float,
    absent: dict[str, TidelogError],
) -> tuple[str, _Result] | None:
    """Call nodes, each a head start after the previous one, or as soon as that one has failed.

    Return the first response with its endpoint; None if no endpoint answers by the deadline. ``absent`` receives the
    nodes that do not answer, with the reason.

    Raises:
        TidelogError: A node answered with an error.
    """
    clock = asyncio.get_running_loop().time

    async def answer(endpoint: str) -> _Result:
        client = client_at(endpoint)
        # Connect first: a call alone would wait for a connection until its timeout, even if connections are refused.
        await client.reach(max(0.0, deadline_s - clock()))
        return await call(client)

    head_start_s = max(0.0, min(_HEAD_START_S, (deadline_s - clock()) / (len(endpoints) + 1)))
    waiting = deque(endpoints)
    asked: dict[asyncio.Task[_Result], str] = {}
    try:
        while waiting or asked:
            if waiting:
                endpoint = waiting.popleft()
                asked[asyncio.create_task(answer(endpoint), name="tidelog-ask-node")] = endpoint
            left_s = max(0.0, deadline_s - clock())
            done, _ = await asyncio.wait(
                asked, timeout=min(left_s, head_start_s) if waiting else left_s, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                endpoint = asked.pop(task)
                try:
                    return endpoint, task.result()
                except _ABSENT as error:
                    absent[endpoint] = error
            if not done and not waiting:
                return None
        return None
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _endpoint_of(client: AsyncClient) -> str:
    return client.endpoint


def _no_answer(endpoints: Sequence[str], absent: Mapping[str, TidelogError], within_s: float) -> TidelogError:
    """Return the error when no node has answered."""
    if len(endpoints) == 1 and endpoints[0] in absent:
        return absent[endpoints[0]]
    silent = f"no answer within {within_s:.1f} s"
    reasons = "; ".join(f"{endpoint}: {absent.get(endpoint, silent)}" for endpoint in endpoints)
    return UnavailableError(f"no node of the cluster answers: {reasons}")
