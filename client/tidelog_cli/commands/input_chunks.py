"""Reads standard input or a file without blocking the event loop: in chunks, or in frames of a journal."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar

from tidelog_cli.exit_codes import CommandError, ExitCode

_CHUNK_BYTES: Final = 1 << 18
_QUEUED_ITEMS: Final = 4
_Item = TypeVar("_Item", bound="bytes | list[bytes]")


def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """Yield chunks of a file descriptor until end of file, as soon as they are available.

    Why ``os.read``: a daemon thread that dies inside a buffered reader crashes the process.

    Raises:
        CommandError: Reading failed.
    """
    return read_items(lambda: os.read(descriptor, _CHUNK_BYTES))


async def read_items(next_item: Callable[[], _Item]) -> AsyncIterator[_Item]:
    """Yield what ``next_item``, which may block, returns, until it returns an empty item.

    Why a separate thread: a read from a terminal or pipe cannot be cancelled, and the loop's executor would wait
    for it at exit.

    Raises:
        CommandError: Reading failed: ``next_item`` raised OSError.
        Exception: Another one that ``next_item`` raised.
    """
    loop = asyncio.get_running_loop()
    items: asyncio.Queue[_Item | Exception] = asyncio.Queue()
    room = threading.Semaphore(_QUEUED_ITEMS)

    def pump() -> None:
        item: _Item | Exception | None = None
        while item is None or (item and not isinstance(item, Exception)):
            room.acquire()
            try:
                item = next_item()
            except Exception as error:  # noqa: BLE001 - raised to the reader
                item = error
            try:
                loop.call_soon_threadsafe(items.put_nowait, item)
            except RuntimeError:
                return  # The loop is closed: the command has ended.

    threading.Thread(target=pump, name="input", daemon=True).start()
    while item := await items.get():
        if isinstance(item, OSError):
            raise CommandError(f"cannot read the input: {item.strerror or item}", ExitCode.USAGE) from item
        if isinstance(item, Exception):
            raise item
        room.release()
        yield item
