"""A TCP proxy that can stop passing anything on: to both ends it looks as if the other one had vanished."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self


class FaultProxy:
    """Passes connections on to ``target``, ``host:port``, from a free loopback port, while it is not cut.

    Attributes:
        endpoint: Where it listens.
    """

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._passes = asyncio.Event()
        self._passes.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.endpoint = ""

    def cut(self) -> None:
        """Pass nothing on any more: bytes are not lost, they wait, as those of a network that lost its way."""
        self._passes.clear()

    def heal(self) -> None:
        """Pass everything on again."""
        self._passes.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.endpoint = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: one that the server made would report its cancellation as an error.
        task = asyncio.create_task(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A target that is away, and connections that break, are what both ends shall see.
        with suppress(OSError):
            await self._passes.wait()
            target_reader, target_writer = await asyncio.open_connection(self._host, self._port)
            try:
                await asyncio.gather(self._pump(reader, target_writer), self._pump(target_reader, writer))
            finally:
                target_writer.close()
        writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._passes.wait()
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
