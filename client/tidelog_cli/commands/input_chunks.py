"""Reads standard input or a file in chunks without blocking the event loop."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import Final

_CHUNK_BYTES: Final = 1 << 18
_QUEUED_CHUNKS: Final = 4


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield chunks of a file descriptor until end of file, as soon as they are available.

    Why a separate thread: a read from a terminal or pipe cannot be cancelled, and the loop's executor would wait
    for it at exit. Why ``os.read``: a daemon thread that dies inside a buffered reader crashes the process.

    Raises:
        OSError: Reading failed.
    """
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_QUEUED_CHUNKS)

    def pump() -> None:
        chunk: bytes | OSError = b"more"
        while isinstance(chunk, bytes) and chunk:
            room.acquire()
            try:
                chunk = os.read(descriptor, _CHUNK_BYTES)
            except OSError as error:
                chunk = error
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:
                return  # The loop is closed: the command has ended.

    threading.Thread(target=pump, name="input", daemon=True).start()
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise chunk
        room.release()
        yield chunk
