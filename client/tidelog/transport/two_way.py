"""A two-way stream of gRPC: one task writes requests, another reads answers, until either meets the end."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import grpc.aio

from tidelog.errors import TidelogError
from tidelog.transport.stream_end import StreamEnd, half_close
from tidelog.transport.transport import Transport
from tidelog.v1 import wal_service_pb2

HANG_UP_S: Final = 1.0
"""Maximum wait for the server to end a stream: it must not delay the exit of a program that waits for no answer."""


class TwoWayStream:
    """The tasks of a stream that is opened on demand, and again after each end; at most one call at a time.

    Args:
        transport: Transport of the client.
        name: Name of the stream for its tasks, such as ``append``.
        next_request: Returns the next request; ``None`` if none may be written until ``wake`` is set.
        read: Reads answers until the call ends, and returns the reason of the end.
        defect: Returns the error of the end of a stream that a defect of the client has caused, from its text.

    Attributes:
        wake: Set when ``next_request`` may have a request; cleared by the writer.
    """

    def __init__(
        self,
        transport: Transport,
        name: str,
        next_request: Callable[[], bytes | None],
        read: Callable[[Any, StreamEnd], Coroutine[Any, Any, TidelogError]],
        defect: Callable[[str], TidelogError],
    ) -> None:
        self.wake = asyncio.Event()
        self._transport = transport
        self._name = name
        self._next_request = next_request
        self._read = read
        self._defect = defect
        self._call: Any = None
        self._reader: asyncio.Task[TidelogError] | None = None
        self._was_broken = False
        self._is_finishing = False

    def finish(self) -> None:
        """Half-close the current call before the next request: its server stops, and refuses what is written to it.

        The end of the call is then clean. A server that ends the call while the client writes makes gRPC lose answers.
        """
        self._is_finishing = True
        self.wake.set()

    async def connect(self) -> None:
        """Wait until the client is connected, also during its close, which waits for what is to be written.

        After a break gRPC may consider a dead connection alive until it writes to it. That would make the outcome of
        the next requests unknown for no reason, so the first write is a call that can be retried.

        Raises:
            TidelogError: No server can be reached.
        """
        transport = self._transport
        await transport.ready(transport.connect_timeout_s, holds_close=True)
        if self._was_broken:
            await transport.call(
                transport.services.wal.GetWalName, wal_service_pb2.GetWalNameRequest(),
                timeout_s=transport.connect_timeout_s, is_read=True, holds_close=True,
            )  # fmt: skip

    async def serve(self, call: Any) -> TidelogError:
        """Write to and read from a new call until it ends; return the reason of the end."""
        self._is_finishing = False
        reader = asyncio.create_task(self._read(call, StreamEnd(call)), name=f"tidelog-{self._name}-read")
        writer = asyncio.create_task(self._write(call), name=f"tidelog-{self._name}-write")
        self._call, self._reader = call, reader
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            if writer.done() and writer.exception() is None:
                # The writer met the end of the call; the reader will meet it next, and gets the reason.
                await asyncio.wait((reader,))
            return self._reason_of_end(reader, writer)
        finally:
            call.cancel()
            reader.cancel()
            writer.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
            self._call = self._reader = None
            self._was_broken = True

    async def hang_up(self) -> None:
        """Half-close the call and wait for the server to end it, so that no part of it outlives the event loop."""
        call, reader = self._call, self._reader
        if call is None or reader is None:
            return
        with suppress(TimeoutError):
            # The timeout covers the half-close as well: it blocks if the server does not read.
            async with asyncio.timeout(HANG_UP_S):
                await half_close(call)
                await asyncio.wait((reader,))

    async def _write(self, call: Any) -> None:
        # A write to an RPC that has ended raises one of these; the reader reports the reason.
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while not self._is_finishing:
                request = self._next_request()
                if request is None:
                    await self.wake.wait()
                    self.wake.clear()
                else:
                    await call.write(request)
        await half_close(call)

    def _reason_of_end(self, reader: asyncio.Task[TidelogError], writer: asyncio.Task[None]) -> TidelogError:
        """Return the reader's reason, or one that reports a defect in either task."""
        for task in (writer, reader):
            if task.done() and (defect := task.exception()) is not None:
                error = self._defect(f"a defect of the client: {defect!r}")
                error.__cause__ = defect
                return error
        return reader.result()
