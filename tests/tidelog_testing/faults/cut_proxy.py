"""A client behind a proxy that closes every connection on request, like a failing network."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

from tidelog import AsyncClient
from tidelog.testing import start_server


class Proxy:
    """Forwards connections to a server until they are cut."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.rpartition(":")
        # All of them, to wait for their ends: the event loop must not end before a connection is closed.
        self._opened: list[asyncio.StreamWriter] = []
        self._handlers: set[asyncio.Task[None]] = set()
        self.refuses = False
        self.passes = asyncio.Event()
        self.passes.set()
        self.answers_pass = asyncio.Event()
        self.answers_pass.set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        self._opened.append(writer)
        if self.refuses:
            writer.transport.abort()
            return
        upstream_reader, upstream_writer = await asyncio.open_connection(self._host, int(self._port))
        self._opened.append(upstream_writer)
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(
                self._pump(reader, upstream_writer, self.passes),
                self._pump(upstream_reader, writer, self.passes, self.answers_pass),
            )
        writer.close()
        upstream_writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *gates: asyncio.Event) -> None:
        while data := await reader.read(1 << 16):
            for gate in gates:
                await gate.wait()
            writer.write(data)
            await writer.drain()
        writer.close()

    def cut(self) -> None:
        """Close every connection immediately."""
        for writer in self._opened:
            writer.transport.abort()
        self.passes.set()
        self.answers_pass.set()

    async def aclose(self) -> None:
        self.cut()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        await end_connections(self._opened)


async def end_connections(writers: Iterable[asyncio.StreamWriter]) -> None:
    """Abort connections, and wait until their sockets are closed."""
    for writer in writers:
        writer.transport.abort()
    await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


@asynccontextmanager
async def proxied_server() -> AsyncIterator[tuple[str, Proxy, AsyncClient]]:
    """Yield the endpoint of a proxy, the proxy, and a client with a direct connection to the server behind it."""
    running = await asyncio.to_thread(start_server)
    proxy = Proxy(running.endpoint)
    listener = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    try:
        async with AsyncClient(running.endpoint) as direct:
            yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}", proxy, direct
    finally:
        listener.close()
        await proxy.aclose()
        await asyncio.to_thread(running.stop)


@asynccontextmanager
async def cut_off_client() -> AsyncIterator[tuple[AsyncClient, Proxy, AsyncClient]]:
    """Yield a client behind a proxy, the proxy, and a client with a direct connection to the same server."""
    async with proxied_server() as (endpoint, proxy, direct), AsyncClient(endpoint) as client:
        await direct.create_channel("orders", vchannels=2)
        yield client, proxy, direct
