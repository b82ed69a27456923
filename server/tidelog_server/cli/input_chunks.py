"""Standard input or a file, piece by piece, without ever blocking the event loop."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from typing import Final

_CHUNK_BYTES: Final = 1 << 18
_QUEUED_CHUNKS: Final = 4


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield what can be read from a file descriptor until its end, as soon as it is there.

    Why a thread of its own: a read from a terminal or pipe cannot be cancelled, and the loop's executor would wait
    for it at exit. Why ``os.read``: a daemon thread that dies inside a buffered reader brings the process down.

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
                return  # The loop is gone, and with it whoever wanted the input.

    threading.Thread(target=pump, name="input", daemon=True).start()
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise chunk
        room.release()
        yield chunk
