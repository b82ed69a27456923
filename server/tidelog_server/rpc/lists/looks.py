"""What a call looks at of the things that tenants can grow: counted, in turns, and charged to its caller."""

from typing import Final

from tidelog_server.core.limits import LIST_STEP_LOOKS
from tidelog_server.log.node import LogNode
from tidelog_server.log.scan.follow_turns import FollowTurns
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.open_streams import caller_of
from tidelog_server.security.access import current_access

# Looks of a list or watch that cost 1.
LOOKS_PER_COST: Final = 512


class Looks:
    """The looks of one call.

    Invariant: between two turns a call takes at most LIST_STEP_LOOKS and those of one ``take``.

    Attributes:
        count: Number of looks so far.
    """

    __slots__ = ("_caller", "_in_step", "_turns", "_uncharged", "count")

    def __init__(self, turns: FollowTurns, caller: str) -> None:
        self._turns = turns
        self._caller = caller
        self._in_step = 0
        self._uncharged = 0
        self.count = 0

    @classmethod
    def of(cls, node: LogNode, context: Context) -> "Looks":
        """Return the looks of a call, which takes turns with the scans of ``node`` that follow."""
        return cls(node.read_budget.turns, caller_of(context))

    async def take(self, count: int = 1) -> None:
        """Count looks that were taken, and wait for a turn once they are a step."""
        self.count += count
        self._in_step += count
        if self._in_step >= LIST_STEP_LOOKS:
            await self.turn()

    async def turn(self) -> None:
        """Charge for the looks since the last turn, and wait for the next one."""
        cost, self._uncharged = divmod(self._uncharged + self._in_step, LOOKS_PER_COST)
        self._in_step = 0
        if cost and (access := current_access()) is not None:
            access.quota.charge_cost(cost)
        await self._turns.next(self._caller, is_call=True)
