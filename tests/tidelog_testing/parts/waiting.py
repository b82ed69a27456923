"""Waiting for a state that must come, and of which no event tells."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

_T = TypeVar("_T")


async def eventually(
    look: Callable[[], Awaitable[_T]], holds: Callable[[_T], bool] = bool, within_s: float = 60.0
) -> _T:
    """Return what ``look`` finds once something holds of it; by default, once it is true."""
    deadline_s = asyncio.get_running_loop().time() + within_s
    while not holds(found := await look()):
        assert asyncio.get_running_loop().time() < deadline_s, found
        await asyncio.sleep(0.01)
    return found


async def until(holds: Callable[[], bool], within_s: float = 60.0) -> None:
    """Wait until a condition holds. Raises TimeoutError."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.01)
