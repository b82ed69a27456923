"""The end of a two-way stream during a shutdown.

A client of gRPC that writes to a closed stream loses the answers that it has not read yet, so the outcome of its
requests is unknown. That is why a stream remains open until its client has stopped writing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

REST_S: Final = 1.0
"""Time without a request after which a stream is closed. A client on a busy machine may be that slow."""
DRAIN_S: Final = 2.0
"""Time after which a stream is closed although its client continues to write."""


async def drain(
    changed: asyncio.Event, is_read_to_end: Callable[[], bool], write_answers: Callable[[], Awaitable[None]]
) -> None:
    """Answer further requests, which the node refuses, until the client has closed its side or has stopped writing.

    Args:
        changed: Set when there are answers to write, or the client has closed its side.
        is_read_to_end: Whether the client has closed its side.
        write_answers: Writes the answers that are ready.
    """
    loop = asyncio.get_running_loop()
    end_s = loop.time() + DRAIN_S
    while not is_read_to_end() and loop.time() < end_s:
        changed.clear()
        await write_answers()
        try:
            async with asyncio.timeout(REST_S):
                await changed.wait()
        except TimeoutError:
            break
    await write_answers()
