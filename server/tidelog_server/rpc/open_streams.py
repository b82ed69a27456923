"""Limits of open streams: per caller and in total."""

from collections.abc import Iterator
from contextlib import contextmanager

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import Limits
from tidelog_server.rpc.context import Context, address_of
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.security.access import current_access

_RETRY_AFTER_MS = 1_000


def caller_of(context: Context) -> str:
    """Return the principal of the current call, or its address if authentication is off."""
    access = current_access()
    return address_of(context.peer()) if access is None else access.principal.name


class OpenStreams:
    """Counts open streams, and refuses those that exceed a limit."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self._limits = limits
        self._metrics = metrics
        self._of_caller: dict[str, int] = {}
        self._count = 0

    @contextmanager
    def one_more(self, caller: str) -> Iterator[None]:
        """Count a stream for the duration of the context.

        Raises:
            RateLimitRejectedError: The caller or the server has the maximum number of open streams.
        """
        limits, own = self._limits, self._of_caller.get(caller, 0)
        if own >= limits.max_open_streams_per_principal:
            raise self._too_many("of this caller", own, "max_open_streams_per_principal")
        if self._count >= limits.max_open_streams:
            raise self._too_many("on this server", self._count, "max_open_streams")
        self._of_caller[caller] = own + 1
        self._note(1)
        try:
            yield
        finally:
            self._note(-1)
            self._of_caller[caller] -= 1
            if not self._of_caller[caller]:
                del self._of_caller[caller]

    def _note(self, by: int) -> None:
        self._count += by
        self._metrics.open_streams.set(self._count)

    def _too_many(self, whose: str, count: int, limit: str) -> RateLimitRejectedError:
        self._metrics.throttled.labels("open_streams").inc()
        return RateLimitRejectedError(
            f"{count} streams {whose} are open, the maximum (limits.{limit}): close unused scans, or ask the operator "
            "to raise the limit",
            limit="open_streams", retry_after_ms=_RETRY_AFTER_MS,
        )  # fmt: skip
