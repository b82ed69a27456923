"""Measures for how long the event loop was blocked."""

import asyncio
from typing import Final

from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.metrics import Metrics

_PERIOD_S: Final = 0.01


async def watch_event_loop(clock: Clock, metrics: Metrics) -> None:
    """Wake up every 10 ms for ever and record how much later than planned that was."""
    while True:
        planned_s = clock.monotonic_s() + _PERIOD_S
        await asyncio.sleep(_PERIOD_S)
        metrics.record_loop_lag(max(0.0, clock.monotonic_s() - planned_s))
