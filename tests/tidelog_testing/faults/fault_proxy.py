"""A TCP proxy that delays bytes, or stops forwarding them: to both ends the other one then appears to have vanished."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from tidelog_testing.faults.cut_proxy import end_connections


class FaultProxy:
    """Forwards connections from a free loopback port to ``target``, ``host:port``, unless it is cut.

    Attributes:
        endpoint: Its own endpoint.
        answered_bytes: Number of bytes forwarded from the target.
    """

    def __init__(self, target: str, *, delay_s: float = 0.0) -> None:
        """Forward bytes with a delay of ``delay_s``, in both directions, at full bandwidth."""
        self._delay_s = delay_s
        self.answered_bytes = 0
        self._answered = asyncio.Condition()
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._passes = asyncio.Event()
        self._passes.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._opened: list[asyncio.StreamWriter] = []
        self.endpoint = ""

    def cut(self) -> None:
        """Stop forwarding: bytes are not lost, they wait, as in a network that lost its route."""
        self._passes.clear()

    def heal(self) -> None:
        """Forward everything again."""
        self._passes.set()

    def break_connections(self) -> None:
        """End every connection, and lose what is in flight; new connections are forwarded."""
        for task in self._tasks:
            task.cancel()

    async def wait_answered(self, count: int) -> None:
        """Return once ``count`` bytes of the target have been forwarded."""
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
        await end_connections(self._opened)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._opened.append(writer)
        # Our own task: asyncio reports the cancellation of a task that its server created as an error.
        task = asyncio.create_task(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Both ends must notice a missing target and broken connections.
        try:
            with suppress(OSError):
                await self._passes.wait()
                target_reader, target_writer = await asyncio.open_connection(self._host, self._port)
                self._opened.append(target_writer)
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
        """Forward until the end; the windows of both ends bound what is in flight meanwhile."""
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
