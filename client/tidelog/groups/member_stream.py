"""A member of a consumer group: maintains its stream."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from tidelog.errors import ClosedError, TidelogError
from tidelog.groups.member_queue import MemberQueue, Position
from tidelog.read.reader_watch import ReaderWatch
from tidelog.transport.in_one_process import InOneProcess
from tidelog.transport.pipeline import Pipeline
from tidelog.transport.transport import Transport
from tidelog.v1 import group_service_pb2 as pb

_LEAVE_WITHIN_S: Final = 2.0


class MemberStream(InOneProcess):
    """One member of a group, across lost connections and restarts of the server. Lives on one event loop.

    Attributes:
        queue: What it knows of its vchannels.
    """

    def __init__(
        self,
        transport: Callable[[], Transport],
        join: pb.JoinGroupStart,
        *,
        is_named: bool,
        on_changed: Callable[[], None],
        watch: ReaderWatch,
    ) -> None:
        """Create the member; ``start`` joins.

        Args:
            transport: Returns the client's connections.
            join: The join request, including a member id.
            is_named: Whether the caller chose the id: then another member with the same id ends this one.
            on_changed: Called when the queue's ``version`` has changed.
            watch: Receives the state of the connection.
        """
        self._get_transport = transport
        self._on_changed = on_changed
        self._watch = watch
        self.queue = MemberQueue(join, is_named=is_named, listener=self)
        self._pipeline: Pipeline | None = None
        self._has_joined = asyncio.Event()
        # Since when the member is without its server; None while it is connected.
        self._since_s: float | None = None

    @property
    def endpoint(self) -> str:
        """The address of its server; empty before ``start``."""
        return "" if self._pipeline is None else self._transport.endpoint

    @property
    def is_away(self) -> bool:
        """Whether the member is without its server, and tries to rejoin."""
        return self._since_s is not None

    async def start(self) -> None:
        """Join, and return once the server has sent the member's vchannels. Idempotent.

        Raises:
            TidelogError: The member cannot join.
        """
        if self.queue.is_leaving:
            raise ClosedError("the consumer is closed: create a new one")
        if self._pipeline is None:
            self._transport = self._get_transport()
            self._pipeline = Pipeline(self._transport, "member", self.queue, self._open)
            self._since_s = asyncio.get_running_loop().time()
            self._pipeline.send_soon()
            self.queue.join()
        await self._has_joined.wait()
        if self.queue.failure is not None:
            raise self.queue.failure

    def commit(self, positions: Mapping[str, Position]) -> "asyncio.Future[None]":
        """Commit positions; see ``MemberQueue.commit``."""
        self._send_soon()
        return self.queue.commit(positions)

    def release(self, vchannels: Mapping[str, int]) -> None:
        """Release vchannels that are held under these epochs."""
        self._send_soon()
        self.queue.release(vchannels)

    async def aclose(self) -> None:
        """Send pending commits, leave the group, and end the stream. Idempotent."""
        if self._pipeline is None:
            self.queue.end_waits()
        else:
            await self._pipeline.aclose(_LEAVE_WITHIN_S)

    def _send_soon(self) -> None:
        if self._pipeline is not None:
            self._pipeline.send_soon()

    def _open(self) -> Any:
        transport = self._transport
        metadata = transport.metadata()
        connection = transport.lease()
        call = connection.join_group(metadata=metadata)
        call.add_done_callback(lambda _: transport.release(connection))
        return call

    def answered(self) -> None:
        """See ``Listener``."""
        self._since_s = None
        self._watch.answered(self)

    def lost(self, error: TidelogError) -> None:
        """See ``Listener``."""
        if self._since_s is None:
            self._since_s = asyncio.get_running_loop().time()
        self._watch.lost(self, error, self._transport, self._since_s)

    def ended(self, error: TidelogError) -> None:
        """See ``Listener``."""
        self._watch.failed(self, error)

    def changed(self) -> None:
        """See ``Listener``."""
        self._has_joined.set()
        self._on_changed()
