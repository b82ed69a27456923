"""A TCP proxy that passes bytes on late, or not at all: then to both ends it looks as if the other one had vanished."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self


class FaultProxy:
    """Passes connections on to ``target``, ``host:port``, from a free loopback port, while it is not cut.

    Attributes:
        endpoint: Where it listens.
        answered_bytes: How many bytes of the target's it has passed on.
    """

    def __init__(self, target: str, *, delay_s: float = 0.0) -> None:
        """Pass bytes on ``delay_s`` later, in both directions, and as many meanwhile as come."""
        self._delay_s = delay_s
        self.answered_bytes = 0
        self._answered = asyncio.Condition()
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

    def break_connections(self) -> None:
        """End every connection, and lose what is on its way; new ones are passed on."""
        for task in self._tasks:
            task.cancel()

    async def wait_answered(self, count: int) -> None:
        """Return once ``count`` bytes of the target's were passed on."""
        async with self._answered:
            await self._answered.wait_for(lambda: self.answered_bytes >= count)

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
        try:
            with suppress(OSError):
                await self._passes.wait()
                target_reader, target_writer = await asyncio.open_connection(self._host, self._port)
                try:
                    await asyncio.gather(
                        self._pump(reader, target_writer), self._pump(target_reader, writer, self._count_answered)
                    )
                finally:
                    target_writer.close()
        finally:
            writer.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        passed_on: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        """Pass on until the end; what is on its way meanwhile is bounded by what the two ends allow each other."""
        loop = asyncio.get_running_loop()
        on_its_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            data = b"."
            while data:
                due, data = await on_its_way.get()
                await asyncio.sleep(due - loop.time())
                await self._passes.wait()
                writer.write(data)
                await writer.drain()
                if passed_on is not None:
                    await passed_on(len(data))

        delivery = asyncio.create_task(deliver())
        try:
            data = b"."
            while data and not delivery.done():
                data = await reader.read(1 << 16)
                on_its_way.put_nowait((loop.time() + self._delay_s, data))
            await delivery
        finally:
            delivery.cancel()
            writer.close()

    async def _count_answered(self, count: int) -> None:
        async with self._answered:
            self.answered_bytes += count
            self._answered.notify_all()
