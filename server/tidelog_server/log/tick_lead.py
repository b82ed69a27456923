"""Limits how far ahead of the wall clock callers may put the oracle by allocating ticks.

A tick contains the time, and an allocation of a million ticks moves the oracle by 4 ms. Messages of all channels get
ticks after the last allocated one, so without a limit one caller could set the time of the log for all.
"""

from typing import Final

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.ticks import Tick, physical_ms
from tidelog_server.log.oracle import Oracle
from tidelog_server.runtime.clock import Clock

# Maximum lead over the wall clock that AllocateTicks may cause. Requests for at most MAX_TICKS_WHILE_AHEAD ticks are
# always answered, because 5,000 of them per second move the oracle by 20 ms.
MAX_TICK_LEAD_MS: Final = 5_000
MAX_TICKS_WHILE_AHEAD: Final = 1_024


async def allocate_for_caller(oracle: Oracle, clock: Clock, count: int) -> Tick:
    """Return the first of ``count`` consecutive ticks, for a caller that requests only ticks.

    Up to MAX_TICKS_WHILE_AHEAD ticks are always allocated: they move the oracle by less than 4 us, and the oracle may
    be far ahead because the wall clock was set back. Cancelling has no effect.

    Raises:
        RateLimitRejectedError: The last tick would be more than MAX_TICK_LEAD_MS ahead. Nothing happened.
    """
    while True:
        # Ordering: checked in the same step as the allocation, so that concurrent callers cannot exceed it together.
        _check_lead(oracle, clock, count)
        if (first := oracle.try_allocate(count)) is not None:
            return first
        await oracle.prepare(count)


def _check_lead(oracle: Oracle, clock: Clock, count: int) -> None:
    lead_ms = physical_ms(oracle.last + count) - clock.wall_ms()
    if count > MAX_TICKS_WHILE_AHEAD and lead_ms > MAX_TICK_LEAD_MS:
        raise RateLimitRejectedError(
            f"{count} ticks would put the clock of the log {lead_ms} ms ahead, at most {MAX_TICK_LEAD_MS} ms are "
            f"allowed: wait, or request at most {MAX_TICKS_WHILE_AHEAD} ticks at once",
            limit="tick_lead", lead_ms=lead_ms, retry_after_ms=lead_ms - MAX_TICK_LEAD_MS,
        )  # fmt: skip
