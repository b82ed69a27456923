"""Connections to a node of a cluster, whichever process serves it, at whichever address."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, Final

import grpc
import grpc.aio

from tidelog.errors import TidelogError, UnauthenticatedError, UnavailableError
from tidelog.transport.absence import why_not_connected
from tidelog.transport.credentials import check_endpoint
from tidelog.transport.node.channel import MovingChannel
from tidelog.transport.transport import Transport, is_connected
from tidelog.v1 import cluster_service_pb2 as pb

_ATTEMPT_S: Final = 0.5
"""Maximum seconds to connect to the known address, or to ask the process there, before other nodes are asked."""
_LAST_PAUSE_S: Final = 0.5
"""Maximum seconds between two lookups: another process may serve the node already."""
_log = logging.getLogger("tidelog")

Locate = Callable[[str], Awaitable[str]]
"""Returns the address of the node according to any node, but the given address last; empty if it is not registered."""


class NodeTransport(Transport):
    """The connections of one client to a node. They follow it to the process that serves it.

    The address is in doubt at first, when the connection breaks, and when a call ends as unavailable or without an
    answer. Then the next call, or the next attempt of one, asks the process there which node it serves; if it is not
    this one, or has begun to stop, it asks any node of the cluster for the address. What resumes after a restart of a
    server resumes there.

    Attributes:
        node_id: The node.
        term: Term of the process that served the node when it was last asked; 0 before that.
    """

    def __init__(
        self, node_id: str, endpoint: str, locate: Locate, on_move: Callable[[str], None], **options: Any
    ) -> None:
        """Begin at ``endpoint``, without I/O; ``on_move`` is called with each new address. Options of ``Transport``."""
        self.node_id = node_id
        self._locate = locate
        self._on_move = on_move
        self._is_in_doubt = True
        self._is_running = True
        # The last term whose process has begun to stop; 0 for none.
        self._stopped_term = 0
        # One task at a time looks the address up, for all.
        self._looking = asyncio.Lock()
        self._look_at_s = 0.0
        self._pauses_s: Iterator[float] | None = None
        super().__init__(endpoint, **options)

    def _open_channel(self) -> Any:
        return MovingChannel(super()._open_channel(), self._doubt)

    def _doubt(self) -> None:
        self._is_in_doubt = True

    def note_stop(self, term: int) -> None:
        """Leave the process that serves the node in ``term``: it refuses calls, and may close before it answers one.

        It may still accept connections, and state that it serves the node. The next process has a greater term.
        """
        self._stopped_term = max(self._stopped_term, term)
        if self.term <= self._stopped_term:
            self._doubt()

    def _is_ready(self) -> bool:
        # Another process may listen at the address when it is connected again.
        self._is_in_doubt = self._is_in_doubt or not super()._is_ready()
        return not self._is_in_doubt

    async def _ready(self, timeout_s: float, *, tries_once: bool = False) -> None:
        """Return once the process that serves the node is connected. For as long as a lease lasts, no process may."""
        del tries_once
        if self._is_ready():
            return
        timeout_s = min(timeout_s, max(self.connect_timeout_s, self.retry.give_up_s))
        try:
            async with asyncio.timeout(timeout_s):
                while not self._is_ready():
                    async with self._looking:
                        if not self._is_ready():
                            await self._look()
        except TimeoutError:
            raise await self._absence(timeout_s) from None

    async def _look(self) -> None:
        """Make one attempt to reach the process that serves the node. Returns after it, or clears the doubt."""
        clock = asyncio.get_running_loop().time
        if await self._connects(max(0.0, self._look_at_s - clock())):
            if await self._serves():
                self._is_in_doubt, self._pauses_s = False, None
                return
            await asyncio.sleep(max(0.0, self._look_at_s - clock()))
        # An answer that is no error may be out of date: it is asked for again, until a process serves the node.
        with suppress(UnavailableError, TimeoutError):
            address = await self._locate(self.endpoint)
            self._is_running = bool(address)
            if address not in ("", self.endpoint):
                await self._move(address)
                return
        if self._pauses_s is None:
            self._pauses_s = self.retry.pauses_s()
        self._look_at_s = clock() + min(next(self._pauses_s), _LAST_PAUSE_S)

    async def _connects(self, pause_s: float) -> bool:
        """Return whether the process at the address accepts connections now, or before the pause is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s or _ATTEMPT_S):
                return await is_connected(self.services.channel, tries_once=not pause_s)
        return False

    async def _serves(self) -> bool:
        """Return whether the process at the address serves the node, knows of no other that does, and does not stop."""
        describe = self.services.cluster.DescribeCluster
        try:
            answer = await describe(pb.DescribeClusterRequest(), timeout=_ATTEMPT_S, metadata=self.metadata())
        except grpc.aio.AioRpcError:
            return False
        served = [each for each in answer.nodes if each.node_id == self.node_id]
        if answer.node_id != self.node_id or [each.address for each in served] != [self.endpoint]:
            return False
        if 0 < served[0].term <= self._stopped_term:
            return False
        self.term = served[0].term
        return True

    async def _move(self, address: str) -> None:
        try:
            check_endpoint(address, has_token=self._token is not None, has_tls=self._tls is not None)
        except ValueError as error:
            raise UnauthenticatedError(f"node '{self.node_id}' moved to {address}: {error}") from error
        _log.info("node '%s' moved to %s from %s", self.node_id, address, self.endpoint)
        self.endpoint = address
        self._on_move(address)
        moving: list[Any] = [connection.channel for connection in self._connections]
        for channel in moving:
            channel.move(super()._open_channel())
        # Ordering: once all have moved, because the caller's time may end here.
        for channel in moving:
            await channel.close_left()

    async def _absence(self, timeout_s: float) -> TidelogError:
        if not self._is_running:
            return UnavailableError(
                f"no process served node '{self.node_id}', last known at {self.endpoint}, within {timeout_s:.1f} s: "
                "start that node",
                values={"node_id": self.node_id},
            )
        moving: Any = self.services.channel
        why = await why_not_connected(moving.place.channel, self.endpoint, self._tls)
        return UnavailableError(
            f"no connection to node '{self.node_id}' at {self.endpoint} within {timeout_s:.1f} s{why}",
            values={"node_id": self.node_id},
        )
