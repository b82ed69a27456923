"""Options of an append."""

from typing import NamedTuple

from tidelog_server.core.producers import ProducerSequence
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.log.conditions import UNCONDITIONAL, Conditions


class AppendOptions(NamedTuple):
    """Options of one append.

    Attributes:
        needs_sync: True if the acknowledgement waits for a sync.
        barrier_tick: Exclusive lower bound of every tick; NO_TICK if not set.
        conditions: Conditions that the vchannel must meet.
        producer: Producer and sequence of the batch; None if no producer is named.
    """

    needs_sync: bool = True
    barrier_tick: int = NO_TICK
    conditions: Conditions = UNCONDITIONAL
    producer: ProducerSequence | None = None
