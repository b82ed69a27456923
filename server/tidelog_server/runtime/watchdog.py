"""Measures how long the event loop is blocked."""

import asyncio
from typing import Final

from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.metrics import Metrics

_PERIOD_S: Final = 0.01


async def watch_event_loop(clock: Clock, metrics: Metrics) -> None:
    """Wake up every 10 ms and record the delay. Never returns."""
    while True:
        planned_s = clock.monotonic_s() + _PERIOD_S
        await asyncio.sleep(_PERIOD_S)
        metrics.record_loop_lag(max(0.0, clock.monotonic_s() - planned_s))
