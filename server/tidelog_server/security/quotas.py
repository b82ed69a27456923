"""Quotas of principals: calls are refused when one is spent, streams are slowed down."""

import asyncio
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import (
    CALL_COST_BYTES,
    MAX_REMEMBERED_CALLERS,
    MAX_TICKS_PER_REQUEST,
    MAX_TURN_WAIT_S,
    PRINCIPAL_ACTIVE_S,
)
from tidelog_server.runtime.buckets import Bucket, Buckets
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.security.turns import Turns

# A call that a limit refuses costs this in addition, because it costs the caller nothing.
REFUSAL_COST: Final = 10
# A request that is denied counts as this many in the quota of its principal, because it costs the caller nothing.
DENIAL_COST_REQUESTS: Final = 100

# The activity of a stream is noted at most this often.
_NOTE_INTERVAL_S: Final = PRINCIPAL_ACTIVE_S / 10
# A call rests for at most this time at once, so that it notices the end of its credentials in time.
_LONGEST_REST_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Quotas:
    """What one principal may use; 0 for no limit.

    Attributes:
        requests_per_s: Calls, and requests inside of streams.
        request_burst: Of these at once, after a pause.
        in_bytes_per_s, out_bytes_per_s: Bytes of requests, and of responses of streams.
        ticks_per_s: Ticks of AllocateTicks.
        shared_calls_per_s: Cost of calls while other principals are active.
    """

    requests_per_s: int = 0
    request_burst: int = 1
    in_bytes_per_s: int = 0
    out_bytes_per_s: int = 0
    ticks_per_s: int = 0
    shared_calls_per_s: int = 0


class QuotaTable:
    """What each principal has left. Lives on the event loop."""

    def __init__(self, quotas: Quotas, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._requests = _buckets(quotas.requests_per_s, quotas.request_burst)
        # A second's worth at once.
        self._in_bytes = _buckets(quotas.in_bytes_per_s, quotas.in_bytes_per_s)
        self._out_bytes = _buckets(quotas.out_bytes_per_s, quotas.out_bytes_per_s)
        self._ticks = _buckets(quotas.ticks_per_s, max(quotas.ticks_per_s, MAX_TICKS_PER_REQUEST))
        self._turns = Turns(quotas.shared_calls_per_s)

    def of(self, principal: str) -> "PrincipalQuota":
        """Return what a principal has left, for one of its calls."""
        now_s = self._clock.monotonic_s()
        left = (
            None if buckets is None else buckets.of(principal, now_s)
            for buckets in (self._requests, self._in_bytes, self._out_bytes, self._ticks)
        )
        return PrincipalQuota(principal, self._clock, self._metrics, Left(*left), self._turns)


class Left(NamedTuple):
    """The buckets of a principal; None where there is no limit."""

    requests: Bucket | None
    in_bytes: Bucket | None
    out_bytes: Bucket | None
    ticks: Bucket | None


class PrincipalQuota:
    """What a principal has left, shared by all of its calls."""

    __slots__ = ("_clock", "_left", "_metrics", "_noted_s", "_principal", "_turns")

    def __init__(self, principal: str, clock: Clock, metrics: Metrics, left: Left, turns: Turns) -> None:
        self._principal = principal
        self._turns = turns
        self._noted_s = float("-inf")
        self._clock = clock
        self._metrics = metrics
        self._left = left

    def charge_call(self, size_bytes: int) -> None:
        """Count a call and the bytes of its request. Raises RateLimitRejectedError if a quota is spent."""
        self._charge("requests", self._left.requests, 1, wanted=1)
        if size_bytes:
            self._charge("in_bytes", self._left.in_bytes, size_bytes)

    async def turn(self, cost: int, size_bytes: int) -> None:
        """Wait until a call may begin: at once, unless other principals are active and this one makes many calls.

        Args:
            cost: Cost of the method.
            size_bytes: Size of the request. What waits is bounded, because large requests cost more.

        Raises:
            RateLimitRejectedError: Too many calls wait before it.
        """
        wait_s = self._turns.wait_s(self._principal, cost + size_bytes // CALL_COST_BYTES, self._clock.monotonic_s())
        if wait_s is None:
            self._metrics.throttled.labels("shared_calls").inc()
            raise RateLimitRejectedError(
                f"calls of these credentials already wait {MAX_TURN_WAIT_S:g} s, because other principals are active: "
                "retry later, use a stream (AppendStream, JoinGroup), or have quota.shared_calls_per_s raised",
                limit="shared_calls", retry_after_ms=ceil(MAX_TURN_WAIT_S * 1_000),
            )  # fmt: skip
        if wait_s:
            self._metrics.throttled.labels("turns").inc()
            await asyncio.sleep(wait_s)

    def note_denied(self) -> None:
        """Count a request that was forbidden as several: what comes next is slowed down or refused."""
        if self._left.requests is not None:
            self._left.requests.take(DENIAL_COST_REQUESTS - 1, self._clock.monotonic_s())

    def note_refused(self) -> None:
        """Charge for a call that a limit refused."""
        self.charge_cost(REFUSAL_COST)

    def charge_cost(self, cost: int) -> None:
        """Charge for work that a call has done beyond the cost of its method; later calls wait for it."""
        self._turns.charge(self._principal, cost, self._clock.monotonic_s())

    def charge_ticks(self, count: int) -> None:
        """Count ticks that are handed out. Raises RateLimitRejectedError if the quota is spent."""
        self._charge("ticks", self._left.ticks, count, wanted=count)

    async def received(self, size_bytes: int, requests: int = 1) -> None:
        """Count requests of a stream, and rest while a quota is overdrawn: HTTP/2 holds the client back."""
        now_s = self._clock.monotonic_s()
        if now_s - self._noted_s > _NOTE_INTERVAL_S:
            self._noted_s = now_s
            self._turns.note(self._principal, now_s)
        await self._rest("requests", self._left.requests, requests)
        await self._rest("in_bytes", self._left.in_bytes, size_bytes)

    async def sent(self, size_bytes: int) -> None:
        """Count bytes of a response of a stream, and rest while the quota is overdrawn."""
        await self._rest("out_bytes", self._left.out_bytes, size_bytes)

    def _charge(self, limit: str, bucket: Bucket | None, amount: int, *, wanted: float = 0) -> None:
        if bucket is None:
            return
        now_s = self._clock.monotonic_s()
        if (wait_s := bucket.wait_s(now_s, wanted)) > 0:
            self._metrics.throttled.labels(limit).inc()
            raise RateLimitRejectedError(
                f"the quota of these credentials is spent ({limit}): wait, or have it raised ([quota])",
                limit=limit, retry_after_ms=ceil(wait_s * 1_000),
            )  # fmt: skip
        bucket.take(amount, now_s)

    async def _rest(self, limit: str, bucket: Bucket | None, amount: int) -> None:
        if bucket is None:
            return
        bucket.take(amount, self._clock.monotonic_s())
        if bucket.wait_s(self._clock.monotonic_s()) > 0:
            self._metrics.throttled.labels(limit).inc()
        while (wait_s := bucket.wait_s(self._clock.monotonic_s())) > 0:  # noqa: ASYNC110 - only time fills a bucket
            await asyncio.sleep(min(wait_s, _LONGEST_REST_S))


def _buckets(rate_per_s: int, burst: int) -> Buckets | None:
    return Buckets(rate_per_s, burst, MAX_REMEMBERED_CALLERS) if rate_per_s else None
