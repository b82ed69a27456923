"""A server that stops answering its clients, in one of four ways, after it has served them."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from tidelog_testing.servers.processes import ServerProcess

Way = Literal["stopped", "stuck", "silent", "slow"]
WAYS: Final[tuple[Way, ...]] = ("stopped", "stuck", "silent", "slow")
"""Stopped by SIGSTOP; alive, with an event loop that is blocked; accepting connections, without a byte in answer; and
delivering every byte late."""
_LATE_S: Final = 0.4
_STUCK: Final = (
    "-c",
    "import signal, sys, time\n"
    "signal.signal(signal.SIGUSR1, lambda *_: time.sleep(600))\n"
    "from tidelog_cli import main\n"
    "main(['serve', *sys.argv[1:]])",
)


class Relay:
    """Forwards connections to a server, on a thread of its own, until it turns silent or slow.

    Attributes:
        endpoint: ``host:port`` for clients.
        way: What it does with the bytes.
    """

    def __init__(self, target: str) -> None:
        self.way: Way | None = None
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        starting = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._server = starting.result(30)
        self.endpoint = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Stop forwarding."""

        async def end() -> None:
            self._server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream, downstream = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(self._forward(reader, downstream), self._forward(upstream, writer))
        except (OSError, asyncio.CancelledError):
            # Either end was closed, or the relay. Streams of asyncio log a handler that is cancelled.
            return
        finally:
            writer.close()
            downstream.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 16):
            if self.way == "slow":
                await asyncio.sleep(_LATE_S)
            if self.way != "silent":
                writer.write(chunk)
                await writer.drain()
        if self.way != "silent":
            writer.close()


class BrokenServer:
    """A server behind a relay.

    Attributes:
        endpoint: Where clients reach it.
    """

    def __init__(self, process: ServerProcess, relay: Relay) -> None:
        self._process = process
        self._relay = relay
        self.endpoint = relay.endpoint

    def break_off(self, way: Way) -> None:
        """Stop answering."""
        match way:
            case "stopped":
                os.kill(self._process.pid, signal.SIGSTOP)
            case "stuck":
                os.kill(self._process.pid, signal.SIGUSR1)
            case _:
                self._relay.way = way

    def mend(self) -> None:
        """Answer at once again, after ``stopped`` or ``slow``."""
        self._relay.way = None
        os.kill(self._process.pid, signal.SIGCONT)


@contextmanager
def breakable_server(folder: Path) -> Iterator[BrokenServer]:
    """Start a server that ``break_off`` breaks."""
    with ServerProcess(folder, program=_STUCK) as process:
        relay = Relay(process.grpc)
        try:
            yield BrokenServer(process, relay)
        finally:
            relay.close()
