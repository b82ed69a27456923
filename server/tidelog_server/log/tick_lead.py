"""Ticks that a caller asks for may put the oracle ahead of the wall clock, but not far.

A tick carries the time, and one allocation of a million ticks moves the oracle by 4 ms. Messages of all channels get
ticks behind the last one that was handed out, so without a limit one caller decides what time it is for all.
"""

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import MAX_TICK_LEAD_MS, MAX_TICKS_WHILE_AHEAD
from tidelog_server.core.ticks import Tick, physical_ms
from tidelog_server.log.oracle import Oracle
from tidelog_server.runtime.clock import Clock


async def allocate_for_caller(oracle: Oracle, clock: Clock, count: int) -> Tick:
    """Return the first of ``count`` consecutive ticks, for a caller that asks for nothing else.

    Up to MAX_TICKS_WHILE_AHEAD ticks are handed out in any case: they move the oracle by less than 4 us, and the oracle
    may be far ahead because the wall clock was set back. Cancelling leaves nothing behind.

    Raises:
        RateLimitRejectedError: The last of them would be more than MAX_TICK_LEAD_MS ahead. Nothing happened.
    """
    while True:
        # Ordering: checked in the step that takes the ticks, so that callers at the same time do not add up.
        _check_lead(oracle, clock, count)
        if (first := oracle.try_allocate(count)) is not None:
            return first
        await oracle.prepare(count)


def _check_lead(oracle: Oracle, clock: Clock, count: int) -> None:
    lead_ms = physical_ms(oracle.last + count) - clock.wall_ms()
    if count > MAX_TICKS_WHILE_AHEAD and lead_ms > MAX_TICK_LEAD_MS:
        raise RateLimitRejectedError(
            f"{count} ticks would put the clock of the log {lead_ms} ms ahead, at most {MAX_TICK_LEAD_MS} ms are "
            f"allowed: wait, or ask for at most {MAX_TICKS_WHILE_AHEAD} ticks at once",
            limit="tick_lead", lead_ms=lead_ms, retry_after_ms=lead_ms - MAX_TICK_LEAD_MS,
        )  # fmt: skip
