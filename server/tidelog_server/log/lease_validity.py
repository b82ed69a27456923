"""Validity of a node's lease, measured by its own clock.

Source: leases as in Gray and Cheriton, "Leases: an efficient fault-tolerant mechanism for distributed file cache
consistency" (1989). The holder stops before the grantor's lease expires, so that no other node begins earlier.
"""

from typing import Final

from tidelog_server.core.errors import Effect
from tidelog_server.core.errors.cluster import OwnershipLostError
from tidelog_server.core.limits import LEASE_HELD_PART
from tidelog_server.runtime.clock import Clock

_NEVER: Final = float("-inf")


class LeaseValidity:
    """Lease validity. Checked for each append, so it is one comparison.

    Invariant: while it is held, the grantor's lease has not expired: the lease began no earlier than the request was
    sent, and a third of it is a margin for clocks with different speeds and for answers in flight.
    """

    __slots__ = ("_clock", "_held_until_s", "node_id", "term")

    def __init__(self, clock: Clock, node_id: str) -> None:
        self._clock = clock
        self._held_until_s = _NEVER
        self.node_id = node_id
        self.term = 0

    def begin(self, term: int, asked_s: float, ttl_s: float) -> None:
        """Record a new lease of ``ttl_s`` seconds, requested at ``asked_s``."""
        # INV-41. A lease that begins after another one was lost has a greater term.
        assert self.term < term
        assert 0 < ttl_s
        self.term = term
        self._held_until_s = asked_s + LEASE_HELD_PART * ttl_s

    def renewed(self, asked_s: float, ttl_s: float) -> None:
        """Record a renewal. An expired lease is not revived: another node may have been the owner meanwhile."""
        if self.is_held():
            self._held_until_s = max(self._held_until_s, asked_s + LEASE_HELD_PART * ttl_s)

    def end(self) -> None:
        """End it now."""
        self._held_until_s = _NEVER

    def is_held(self) -> bool:
        """Return whether the node may serve its channels now."""
        return self._clock.monotonic_s() < self._held_until_s

    def left_s(self) -> float:
        """Return the remaining seconds; 0 if it is not held."""
        return max(0.0, self._held_until_s - self._clock.monotonic_s())

    def check(self, effect: Effect = Effect.NONE) -> None:
        """Raise OwnershipLostError, with this effect, unless the lease is held."""
        if not self.is_held():
            raise OwnershipLostError(self.node_id, effect=effect)
