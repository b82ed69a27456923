"""A two-way stream of the server: it reads ahead of its answers, within bounds, and answers what it has read.

During a shutdown a stream remains open until its client has stopped writing. A client of gRPC that writes to a closed
stream loses the answers that it has not read yet, so the outcome of its requests is unknown.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from tidelog_server.core.errors import Effect, ShutdownError, TidelogServerError
from tidelog_server.core.errors.cluster import LogFailure
from tidelog_server.log.append import Append
from tidelog_server.log.node import LogNode
from tidelog_server.rpc.context import Context

REST_S: Final = 1.0
"""Time without a request after which a stream is closed. A client on a busy machine may be that slow."""
DRAIN_S: Final = 2.0
"""Time after which a stream is closed although its client continues to write."""


@dataclass(slots=True, eq=False, kw_only=True)
class Unanswered:
    """A request that appends and was not answered yet.

    Attributes:
        append: Its append, submitted or not; None until the request is validated.
        refusal: Why it was refused, at any time before the submission.
    """

    append: Append | None = None
    refusal: TidelogServerError | None = None

    @property
    def is_ready(self) -> bool:
        """True if it can be answered."""
        return self.refusal is not None or (self.append is not None and self.append.settled)

    @property
    def error(self) -> TidelogServerError | None:
        """Why it failed; None if it succeeded."""
        if self.append is None or self.append.failure is None:
            return self.refusal
        return unknown_outcome(self.append.failure)


def unknown_outcome(failure: LogFailure) -> LogFailure:
    """Return the failure of an append that was in flight, with effect unknown: it may be in the log after a restart."""
    return failure.with_effect(Effect.UNKNOWN)


class Duplex(ABC):
    """One two-way call. A subclass takes its requests, and writes their answers.

    Invariant: ``_held_bytes`` is the sum over all unanswered requests, and at most the limit of a stream plus one
    message; ``_unanswered`` is their number, at most ``_max_unanswered`` plus the requests of one message.
    """

    _max_unanswered: int | None = None
    """Number of unanswered requests from which on no more are read; None for any."""

    def __init__(self, node: LogNode, context: Context) -> None:
        self._node = node
        self._context = context
        self._unanswered = self._held_bytes = 0
        # Set when there are answers to write, the client has closed its side, or the node changes its state.
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_read_to_end = False
        # Why the stream ends; the requests before are answered.
        self._failed: TidelogServerError | None = None
        # Whether answers are not wanted any more.
        self._is_closed = False
        self._scope = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, requests: AsyncIterator[bytes]) -> None:
        """Serve the stream to its end.

        Raises:
            InvalidRequestError: A message is invalid as a whole. The requests before it are answered.
            ShutdownError: The node is shutting down. All requests that were read are answered; no other had an effect.
        """
        self._node.watchers.add(self._changed)
        try:
            async with self._scope:
                try:
                    self._start(self._read(requests))
                    await self._answer()
                finally:
                    # Ordering: before the group ends its tasks, because it refuses new ones from then on.
                    self._is_closed = True
                    self._close()
                    for task in self._tasks:
                        task.cancel()
        finally:
            self._node.watchers.discard(self._changed)
        if self._failed is not None:
            raise self._failed
        if not self._is_read_to_end:
            self._node.admission.check_serving()
            raise ShutdownError

    @abstractmethod
    def _take(self, encoded: bytes) -> Coroutine[Any, Any, None] | None:
        """Begin the requests of a message, or return a coroutine that does.

        Why not a coroutine always: apart from the disk, the latency of a lone request is Python's overhead.

        Raises:
            TidelogServerError: The message is invalid as a whole. Nothing of it is begun.
        """

    @abstractmethod
    async def _write_answers(self) -> None:
        """Write the answers that are ready."""

    def _close(self) -> None:  # noqa: B027 - not every stream has something
        """Let go of what is unanswered: the call is over, perhaps cancelled."""

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until the stream ends."""
        task = self._scope.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hold(self, size_bytes: int, count: int = 1) -> None:
        """Count unanswered requests and their bytes."""
        self._unanswered += count
        self._held_bytes += size_bytes
        if not self._is_under_limit():
            self._has_room.clear()

    def _let_go(self, size_bytes: int, count: int = 1) -> None:
        """Count requests as answered."""
        self._unanswered -= count
        self._held_bytes -= size_bytes
        if not self._has_room.is_set() and self._is_under_limit():
            self._has_room.set()

    def _is_under_limit(self) -> bool:
        if self._held_bytes >= self._node.admission.limits.max_in_flight_bytes_per_stream:
            return False
        return self._max_unanswered is None or self._unanswered < self._max_unanswered

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        """Take messages until the client closes its side, or one is invalid. Back-pressure: HTTP/2 stops the client."""
        try:
            async for encoded in requests:
                if (rest := self._take(encoded)) is not None:
                    await rest
                # Not held while the stream rests.
                del encoded, rest
                if not self._has_room.is_set():
                    await self._has_room.wait()
        except TidelogServerError as error:
            self._failed = error
        self._is_read_to_end = True
        self._changed.set()

    async def _answer(self) -> None:
        """Write answers until all are written and the client has closed its side, or the node stops; then drain."""
        while True:
            self._changed.clear()
            await self._write_answers()
            if not self._unanswered and (self._is_read_to_end or self._node.admission.is_shutting_down):
                break
            await self._changed.wait()
        await self._drain()

    async def _drain(self) -> None:
        """Answer further requests, which the node refuses, until the client has closed its side or stopped writing."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + DRAIN_S
        while not self._is_read_to_end and loop.time() < end_s:
            self._changed.clear()
            await self._write_answers()
            try:
                async with asyncio.timeout(REST_S):
                    await self._changed.wait()
            except TimeoutError:
                break
        await self._write_answers()
