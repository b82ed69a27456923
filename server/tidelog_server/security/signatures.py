"""How many signatures are checked in vain: checking one costs more than asking for it. Pure: time is given."""

from math import ceil

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import (
    BAD_SIGNATURES_PER_CONNECTION,
    BAD_SIGNATURES_PER_CONNECTION_PER_S,
    MAX_BAD_SIGNATURES_PER_S,
    MAX_REMEMBERED_CONNECTIONS,
)
from tidelog_server.runtime.buckets import Bucket, Buckets


class SignatureBudget:
    """Bounds the time that is spent on signatures that turn out to be bad.

    Each connection has some of its own. Past these it shares what the node spends on all such connections. So a client
    with a good token is looked at on a connection of its own, whatever others send, also from the same address; and a
    flood costs at most what its connections cost anyway, and the share of the node.
    """

    def __init__(self, now_s: float) -> None:
        self._connections = Buckets(
            BAD_SIGNATURES_PER_CONNECTION_PER_S, BAD_SIGNATURES_PER_CONNECTION, MAX_REMEMBERED_CONNECTIONS
        )
        self._node = Bucket(MAX_BAD_SIGNATURES_PER_S, MAX_BAD_SIGNATURES_PER_S, now_s)

    def check(self, connection: str, now_s: float) -> None:
        """Raise RateLimitRejectedError if no signature may be checked now for a connection."""
        wait_s = min(self._connections.wait_s(connection, now_s, 1), self._node.wait_s(now_s, 1))
        if wait_s > 0:
            raise RateLimitRejectedError(
                "too many signed tokens on this connection were not valid, so this one was not looked at: wait, and "
                "stop the client that sends them",
                limit="bad_signatures", retry_after_ms=ceil(wait_s * 1_000),
            )  # fmt: skip

    def note_bad(self, connection: str, now_s: float) -> None:
        """Count a signature that was checked in vain."""
        own = self._connections.of(connection, now_s)
        (self._node if own.wait_s(now_s, 1) > 0 else own).take(1, now_s)
