"""Limits the checks of invalid signatures: a check costs the server more than the client. Pure: time is passed in."""

from math import ceil
from typing import Final

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.runtime.buckets import Bucket, Buckets

# Failed signature checks of tokens, about 0.2 ms each: burst and rate per connection, and the rate of all connections
# that exceed theirs.
BAD_SIGNATURES_PER_CONNECTION: Final = 3
BAD_SIGNATURES_PER_CONNECTION_PER_S: Final = 1 / 30
MAX_BAD_SIGNATURES_PER_S: Final = 100
MAX_REMEMBERED_CONNECTIONS: Final = 16_384


class SignatureBudget:
    """Bounds the time that is spent on invalid signatures.

    Each connection has its own budget. A connection that has used it up shares the budget of the node with all others
    that have. So a client with a valid token on its own connection is checked, whatever other clients send, even from
    the same address; and a flood costs at most the budgets of its connections plus that of the node.
    """

    def __init__(self, now_s: float) -> None:
        self._connections = Buckets(
            BAD_SIGNATURES_PER_CONNECTION_PER_S, BAD_SIGNATURES_PER_CONNECTION, MAX_REMEMBERED_CONNECTIONS
        )
        self._node = Bucket(MAX_BAD_SIGNATURES_PER_S, MAX_BAD_SIGNATURES_PER_S, now_s)

    def check(self, connection: str, now_s: float) -> None:
        """Raise RateLimitRejectedError if the budget of the connection and that of the node are used up."""
        wait_s = min(self._connections.wait_s(connection, now_s, 1), self._node.wait_s(now_s, 1))
        if wait_s > 0:
            raise RateLimitRejectedError(
                "too many signed tokens on this connection were invalid, so this one was not checked: stop the client "
                "that sends them, and retry after the delay",
                limit="bad_signatures", retry_after_ms=ceil(wait_s * 1_000),
            )  # fmt: skip

    def note_bad(self, connection: str, now_s: float) -> None:
        """Count an invalid signature."""
        own = self._connections.of(connection, now_s)
        (self._node if own.wait_s(now_s, 1) > 0 else own).take(1, now_s)
