"""When the calls of a principal begin while other principals are active: in turns, with a bounded cost each. Pure.

A call that begins at any time makes a sync of its own and takes time of the event loop in the middle of the appends of
others. So a principal that makes many calls has its calls begin together, at the multiples of ``TURN_S``: they share a
write and a sync with each other, and the time between two turns belongs to others. A principal that is alone, or makes
few calls, does not wait. Requests inside streams take no turns.

Source: deficit round robin of fair queueing, with the turns at fixed times.
"""

from collections import OrderedDict
from dataclasses import dataclass
from math import exp, floor
from typing import Final

from tidelog_server.core.limits import MAX_REMEMBERED_CALLERS, MAX_TURN_WAIT_S, PRINCIPAL_ACTIVE_S

# A turn begins every TURN_S.
TURN_S: Final = 0.05
# Calls of a principal wait for turns while another principal was active and their own cost exceeds this.
UNPACED_COST_PER_S: Final = 50

_AT_ONCE: Final = 0.0


@dataclass(slots=True)
class _Caller:
    """What a principal does.

    Attributes:
        active_s: When it was last active.
        load: Cost of its calls; what is older than a second hardly counts any more.
        load_s: When ``load`` was computed.
        turn: The last turn in which calls of it begin.
        used: What is used of that turn; what exceeds one turn is taken from those that follow.
    """

    active_s: float
    load: float = 0.0
    load_s: float = 0.0
    turn: int = 0
    used: float = 0.0


class Turns:
    """The turns of all principals.

    Invariant: ``_callers`` is in the order of ``active_s``.
    Invariant: while ``wait_s`` gives turns to a principal, its calls that begin in ``n`` turns in a row cost at most
    ``n`` times what one turn allows, plus the cost of one call.
    """

    def __init__(self, cost_per_s: int) -> None:
        """``cost_per_s`` is what calls of one principal may cost while others are active; 0 for no bound."""
        self._cost_per_turn = cost_per_s * TURN_S
        self._callers: OrderedDict[str, _Caller] = OrderedDict()

    def charge(self, principal: str, cost: int, now_s: float) -> None:
        """Add to the cost of calls that have begun; later calls wait for it."""
        caller = self.note(principal, now_s)
        self._add_load(caller, cost, now_s)
        caller.used += cost

    def wait_s(self, principal: str, cost: int, now_s: float) -> float | None:
        """Return how long a call of this cost waits for its turn; None if that is too long and it is to be refused."""
        caller = self.note(principal, now_s)
        self._add_load(caller, cost, now_s)
        if not self._cost_per_turn or caller.load <= UNPACED_COST_PER_S or not self._is_shared(principal, now_s):
            return _AT_ONCE
        turn = max(caller.turn, floor(now_s / TURN_S) + 1)
        used = max(0.0, caller.used - (turn - caller.turn) * self._cost_per_turn)
        full_turns = floor(used / self._cost_per_turn)
        turn, used = turn + full_turns, used - full_turns * self._cost_per_turn
        wait_s = turn * TURN_S - now_s
        if wait_s > MAX_TURN_WAIT_S:
            return None
        caller.turn, caller.used = turn, used + cost
        return wait_s

    def _add_load(self, caller: _Caller, cost: int, now_s: float) -> None:
        caller.load = caller.load * exp(caller.load_s - now_s) + cost
        caller.load_s = now_s

    def note(self, principal: str, now_s: float) -> _Caller:
        """Note that a principal is active, and return its calls."""
        caller = self._callers.get(principal)
        if caller is None:
            if len(self._callers) >= MAX_REMEMBERED_CALLERS:
                self._callers.popitem(last=False)
            caller = self._callers[principal] = _Caller(now_s, load_s=now_s)
        else:
            caller.active_s = now_s
            self._callers.move_to_end(principal)
        return caller

    def _is_shared(self, principal: str, now_s: float) -> bool:
        """Return whether another principal was active a moment ago."""
        other = next((caller for name, caller in reversed(self._callers.items()) if name != principal), None)
        return other is not None and now_s - other.active_s < PRINCIPAL_ACTIVE_S
