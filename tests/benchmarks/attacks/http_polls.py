"""Callers of the HTTP port that ask for something cheap as fast as they are answered, on many connections."""

import asyncio
from typing import Final

from benchmarks.attacks.attack import Assault, Attack
from benchmarks.attacks.metrics_polls import poll

_POLLERS: Final = 32
_PATHS: Final = ("/livez", "/readyz", "/nothing")


async def run(assault: Assault) -> None:
    """Poll."""
    async with asyncio.TaskGroup() as pollers:
        for number in range(_POLLERS):
            pollers.create_task(poll(assault, _PATHS[number % len(_PATHS)]))
        assault.under_way()


ATTACK: Final = Attack(
    name="http-polls", what="polls /livez, /readyz and an unknown path from 32 connections", run=run, is_open=True
)
