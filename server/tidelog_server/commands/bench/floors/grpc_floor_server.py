"""A gRPC server that only copies bytes, a process with the arguments ``<folder> [--tuned]``.

One of its methods also writes the bytes to a file in the folder. Prints its port on one line and serves until the end
of its standard input, so that it never outlives its parent.
"""

import asyncio
import os
import queue
import struct
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Final

import grpc

from tidelog_server.commands.bench.floors.grpc_floor import TUNED, run

_PREALLOCATED_BYTES: Final = 16 << 20
SERVICE: Final = "tidelog.bench.Floor"
STREAM_REQUEST: Final = struct.Struct(">II")
OPTIONS: Final = (("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20))


async def echo(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
    """Send every message back."""
    async for request in requests:
        yield request


class SyncedEcho:
    """Writes every message to a file, syncs it on a thread, and sends it back: the minimum work of a durable log.

    Why a thread: a sync on the event loop would block all other work for the duration of the sync.
    """

    def __init__(self, folder: Path) -> None:
        self._file = TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed by ``close``
        # As in the probe that measures syncs.
        os.posix_fallocate(self._file.fileno(), 0, _PREALLOCATED_BYTES)
        self._queue: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def __call__(self, requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        """Send every message back once it is on disk."""
        async for request in requests:
            synced: asyncio.Future[None] = self._loop.create_future()
            self._queue.put((request, synced))
            await synced
            yield request

    def close(self) -> None:
        """End the thread and remove the file."""
        self._queue.put(None)
        self._thread.join()
        self._file.close()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            message, synced = item
            try:
                self._file.write(message)
                os.fdatasync(self._file.fileno())
            except OSError as error:
                self._loop.call_soon_threadsafe(synced.set_exception, error)
            else:
                self._loop.call_soon_threadsafe(synced.set_result, None)


async def stream(request: bytes, _context: Any) -> AsyncIterator[bytes]:
    """Send messages of equal size; the request holds (count, bytes per message)."""
    count, size_bytes = STREAM_REQUEST.unpack(request)
    message = bytes(size_bytes)
    for _ in range(count):
        yield message


async def _main(folder: Path) -> None:
    server = grpc.aio.server(options=OPTIONS)
    synced_echo = SyncedEcho(folder)
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Echo": grpc.stream_stream_rpc_method_handler(echo),
        "SyncedEcho": grpc.stream_stream_rpc_method_handler(synced_echo.__call__),
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)
    synced_echo.close()


if __name__ == "__main__":
    run(_main(Path(sys.argv[1])), is_tuned=TUNED in sys.argv)
