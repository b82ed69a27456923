"""What is asked of an append beside its messages."""

from typing import NamedTuple

from tidelog_server.core.producers import ProducerSequence
from tidelog_server.core.ticks import NO_TICK
from tidelog_server.log.conditions import UNCONDITIONAL, Conditions


class AppendOptions(NamedTuple):
    """Options of one append.

    Attributes:
        needs_sync: Whether the acknowledgement waits for a sync.
        barrier_tick: Every tick must be greater; NO_TICK for none.
        conditions: What must hold of the vchannel.
        producer: Who appends, and which of his batches it is; None if nobody says so.
    """

    needs_sync: bool = True
    barrier_tick: int = NO_TICK
    conditions: Conditions = UNCONDITIONAL
    producer: ProducerSequence | None = None
