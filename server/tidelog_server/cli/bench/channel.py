"""A channel for one benchmark."""

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidelog import AsyncClient

_numbers = itertools.count()


@asynccontextmanager
async def bench_vchannels(client: AsyncClient, vchannels: int, *, is_kept: bool = False) -> AsyncIterator[list[str]]:
    """Yield the names of the vchannels of a new channel, which is removed at the end unless it shall be kept."""
    name = f"bench-{os.getpid()}-{next(_numbers)}"
    await client.create_channels([name], vchannels=vchannels)
    try:
        yield [f"{name}/{index}" for index in range(vchannels)]
    finally:
        if not is_kept:
            await client.destroy_channels([name])
