"""Routing of calls in a cluster: to any node that answers, or to the owner of a channel."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Final, Generic, TypeVar

from tidelog.admin.cluster_types import ChannelOwner
from tidelog.client import AsyncClient
from tidelog.errors import ClosedError, DeadlineError, TidelogError, UnavailableError
from tidelog.transport.deadline import Deadline
from tidelog.transport.retry import DEFAULT_RETRY

_Result = TypeVar("_Result")
_HEAD_START_S: Final = 0.5
"""Time that a node has to answer before the next one is called as well; less if the call's timeout is short."""
_FEED_WITHIN_S: Final = 10.0
_ABSENT: Final = (UnavailableError, DeadlineError)


class Routes:
    """The owners of channels, updated by a feed from any node that answers. Lives in one event loop."""

    def __init__(self, client_at: Callable[[str], AsyncClient], endpoints: Sequence[str]) -> None:
        self._client_at = client_at
        self._named = tuple(endpoints)
        # The nodes to call, in order: those known to run, and those that were configured.
        self._endpoints = deque(endpoints)
        self._owners: dict[str, ChannelOwner] = {}
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
        owner = self._owners.get(channel)
        if owner is None or not owner.address:
            found = await self.any_node(lambda client: client.locate_channels([channel]), deadline)
            owner = self._owners[channel] = ChannelOwner.running(found, channel)
        return owner

    def forget(self, channels: Iterable[str]) -> None:
        """Discard the known owners of channels; the next lookup asks a node again."""
        for channel in channels:
            self._owners.pop(channel, None)

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
        pauses_s = DEFAULT_RETRY.pauses_s()
        while True:
            absent: dict[str, TidelogError] = {}
            endpoints = tuple(self._endpoints)
            race = _Race(call, self._client_at, deadline_s, absent)
            try:
                if (won := await race.run(endpoints)) is not None:
                    self._ask_first(won[0])
                    return won[1]
            finally:
                await race.aclose()
            pause_s = next(pauses_s)
            if clock() + pause_s >= deadline_s:
                raise _no_answer(endpoints, absent, clock() - begin_s)
            await asyncio.sleep(pause_s)

    def _ask_first(self, endpoint: str) -> None:
        if endpoint in self._endpoints:
            self._endpoints.remove(endpoint)
            self._endpoints.appendleft(endpoint)

    def _ask_last(self, endpoint: str) -> None:
        if endpoint in self._endpoints:
            self._endpoints.remove(endpoint)
            self._endpoints.append(endpoint)

    def _learn(self, owners: Mapping[str, ChannelOwner], reported_by: str) -> None:
        """Store the owners, and put ``reported_by`` and the running nodes first in the order of calls."""
        self._owners = dict(owners)
        running = {owner.address: None for owner in owners.values() if owner.address}
        self._endpoints = deque(dict.fromkeys((reported_by, *running, *self._named)))

    async def _follow(self) -> None:
        """Update the owners from the feed of one node after another, until cancelled."""
        clock = asyncio.get_running_loop().time
        pauses_s = DEFAULT_RETRY.pauses_s()
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


class _Race(Generic[_Result]):
    """Calls nodes, each a head start after the previous one, or as soon as that one has failed."""

    def __init__(
        self,
        call: Callable[[AsyncClient], Awaitable[_Result]],
        client_at: Callable[[str], AsyncClient],
        deadline_s: float,
        absent: dict[str, TidelogError],
    ) -> None:
        """Create the race without calling a node; ``absent`` receives the nodes that do not answer, with the reason."""
        self._call = call
        self._client_at = client_at
        self._deadline_s = deadline_s
        self._absent = absent
        self._asked: dict[asyncio.Task[_Result], str] = {}

    async def run(self, endpoints: Sequence[str]) -> tuple[str, _Result] | None:
        """Return the first response with its endpoint; None if no endpoint answers by the deadline.

        Raises:
            TidelogError: A node answered with an error.
        """
        clock = asyncio.get_running_loop().time
        head_start_s = max(0.0, min(_HEAD_START_S, (self._deadline_s - clock()) / (len(endpoints) + 1)))
        waiting = deque(endpoints)
        while waiting or self._asked:
            if waiting:
                self._ask(waiting.popleft())
            left_s = max(0.0, self._deadline_s - clock())
            done, _ = await asyncio.wait(
                self._asked, timeout=min(left_s, head_start_s) if waiting else left_s,
                return_when=asyncio.FIRST_COMPLETED,
            )  # fmt: skip
            for task in done:
                endpoint = self._asked.pop(task)
                try:
                    return endpoint, task.result()
                except _ABSENT as error:
                    self._absent[endpoint] = error
            if not done and not waiting:
                return None
        return None

    async def aclose(self) -> None:
        """Cancel the calls that are still in progress."""
        for task in self._asked:
            task.cancel()
        await asyncio.gather(*self._asked, return_exceptions=True)

    def _ask(self, endpoint: str) -> None:
        self._asked[asyncio.create_task(self._answer(endpoint), name="tidelog-ask-node")] = endpoint

    async def _answer(self, endpoint: str) -> _Result:
        client = self._client_at(endpoint)
        # Connect first: a call alone would wait for a connection until its timeout, even if connections are refused.
        await client.reach(max(0.0, self._deadline_s - asyncio.get_running_loop().time()))
        return await self._call(client)


async def _endpoint_of(client: AsyncClient) -> str:
    return client.endpoint


def _no_answer(endpoints: Sequence[str], absent: Mapping[str, TidelogError], within_s: float) -> TidelogError:
    """Return the error when no node has answered."""
    if len(endpoints) == 1 and endpoints[0] in absent:
        return absent[endpoints[0]]
    silent = f"no answer within {within_s:.1f} s"
    reasons = "; ".join(f"{endpoint}: {absent.get(endpoint, silent)}" for endpoint in endpoints)
    return UnavailableError(f"no node of the cluster answers: {reasons}")
