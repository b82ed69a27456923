"""Options of an append."""

from typing import TypedDict

from tidelog.types import Durability
from tidelog.wire.durations import Duration
from tidelog.wire.partitioning import Partitioner


class AppendConditions(TypedDict, total=False):
    """Conditions of an append, and where it goes. See ``AsyncClient.append``; a commit compares the conditions.

    Attributes:
        barrier_tick: Tick that all ticks of the append must exceed.
        expected_last_tick: Tick that the last message ever appended to the vchannel must have; 0: no message.
        fencing_token: Token that the vchannel must have, 1 to 2^64 - 1.
        partitioner: How the vchannel of a key is chosen, for a channel; default None, ``crc32c``.
    """

    barrier_tick: int | None
    expected_last_tick: int | None
    fencing_token: int | None
    partitioner: Partitioner | None


class AppendOptions(AppendConditions, total=False):
    """Options of an append, its conditions included. See ``AsyncClient.append``.

    Attributes:
        durability: When the server acknowledges the append; default None, the server's default.
        timeout_s: Timeout in seconds; default None, the client's.
    """

    durability: Durability | None
    timeout_s: Duration | None
