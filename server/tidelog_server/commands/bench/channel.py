"""A temporary channel for a benchmark."""

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidelog import AsyncClient

_numbers = itertools.count()


@asynccontextmanager
async def bench_vchannels(client: AsyncClient, vchannels: int, *, is_kept: bool = False) -> AsyncIterator[list[str]]:
    """Yield the vchannel names of a new channel, which is destroyed at the end unless ``is_kept``."""
    name = f"bench-{os.getpid()}-{next(_numbers)}"
    await client.create_channels([name], vchannels=vchannels)
    try:
        yield [f"{name}/{index}" for index in range(vchannels)]
    finally:
        if not is_kept:
            await client.destroy_channels([name])
