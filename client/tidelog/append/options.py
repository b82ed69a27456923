"""Options of an append."""

from typing import TypedDict

from tidelog.types import Durability


class AppendConditions(TypedDict, total=False):
    """Conditions of an append. See ``AsyncClient.append``; in a transaction they are compared at the commit.

    Attributes:
        barrier_tick: Tick that all ticks of the append must exceed.
        expected_last_tick: Tick that the last message ever appended to the vchannel must have; 0: no message.
        fencing_token: Token that the vchannel must have, 1 to 2^64 - 1.
    """

    barrier_tick: int | None
    expected_last_tick: int | None
    fencing_token: int | None


class AppendOptions(AppendConditions, total=False):
    """Options of an append, its conditions included. See ``AsyncClient.append``.

    Attributes:
        durability: When the server acknowledges the append; default None, the server's default.
        timeout_s: Timeout in seconds; default None, the client's.
    """

    durability: Durability | None
    timeout_s: float | None
