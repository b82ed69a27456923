"""Bounds of calls by HTTP, shared fairly by principals (D-102, D-164). Lives on the event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from typing import Final

from aiohttp import web

from tidelog_server.core.callers import Tenant, tenant_of
from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_server.core.limits import MAX_API_CALLS, Limits
from tidelog_server.core.usage import Usage
from tidelog_server.security.access import current_access, current_tenant

# Of the MAX_API_CALLS at a time, at most MAX_API_WAITS may be fetches that wait for a message. A call begins with valid
# credentials. Without authentication it begins once its content has arrived, but MAX_ARRIVING_PER_ADDRESS of an address
# begin before that. At most MAX_API_READS contents above API_SMALL_BYTES arrive at a time. Principals share the three
# (D-102); callers without credentials share the last by address.
MAX_API_WAITS: Final = 96
MAX_API_READS: Final = 16
MAX_ARRIVING_PER_ADDRESS: Final = 8

Hold = Callable[[web.Request], AbstractContextManager[None]]
"""Exempts the connection of a request from the bounds on connections while it lasts."""

_RETRY_AFTER_MS: Final = 1_000


class Visit:
    """What one request uses until it is answered.

    Attributes:
        held: Releases it.
        is_begun: True once a call of the request has begun: its caller is known.
    """

    def __init__(self) -> None:
        self.held = ExitStack()
        self.is_begun = False


_VISIT: Final = web.RequestKey("tidelog-visit", Visit)


@contextmanager
def visited(request: web.Request) -> Iterator[Visit]:
    """Have a request release what it uses at the end."""
    visit = request[_VISIT] = Visit()
    with visit.held:
        yield visit


class ApiBounds:
    """Calls by HTTP, those that wait for messages, and contents that arrive; by principal, or by address without one.

    Attributes:
        calls: Calls, by the tenant of the caller.
        waits: Fetches that wait for messages, likewise.
    """

    def __init__(self, hold: Hold, limits: Callable[[], Limits]) -> None:
        """``hold`` is applied to each call."""
        self._hold = hold
        self._limits = limits
        self.calls = Usage()
        self.waits = Usage()
        self._arriving = Usage()
        self._reads = Usage()
        self._freed = asyncio.Event()

    def begin(self, request: web.Request) -> None:
        """Count the call of a request, once, and hold its connection, until it is answered.

        Raises:
            RateLimitRejectedError: There are too many calls.
        """
        visit = request[_VISIT]
        if visit.is_begun:
            return
        self._count(visit, self.calls, MAX_API_CALLS, "calls by HTTP", "api_calls")
        visit.held.enter_context(self._hold(request))
        visit.is_begun = True

    @contextmanager
    def arriving(self, request: web.Request) -> Iterator[None]:
        """Begin the call of a caller without credentials before its content arrives, unless its address has too many.

        The others begin when their content has arrived: until then their connections may be replaced by new ones.
        Raises RateLimitRejectedError.
        """
        tenant = _reader_of(request)
        is_counted = self._arriving.total < MAX_API_CALLS // 2 and self._arriving.of(tenant) < MAX_ARRIVING_PER_ADDRESS
        if not is_counted:
            yield
            return
        self.begin(request)
        self._arriving.add(tenant, 1)
        try:
            yield
        finally:
            self._arriving.add(tenant, -1)

    def wait(self, request: web.Request) -> None:
        """Count a fetch that waits until its request is answered. Raises RateLimitRejectedError."""
        self._count(request[_VISIT], self.waits, MAX_API_WAITS, "fetches by HTTP that wait for messages", "api_waits")

    @asynccontextmanager
    async def reading(self, request: web.Request) -> AsyncIterator[None]:
        """Wait for a turn to read a content that is not small."""
        tenant = _reader_of(request)
        while self._reads.total >= MAX_API_READS or not self._reads.fits_share(
            tenant, 1, MAX_API_READS, self._percent()
        ):
            self._freed.clear()
            await self._freed.wait()
        self._reads.add(tenant, 1)
        try:
            yield
        finally:
            self._reads.add(tenant, -1)
            self._freed.set()

    def _count(self, visit: Visit, usage: Usage, maximum: int, unit: str, limit: str) -> None:
        tenant = current_tenant()
        if usage.total >= maximum:
            raise RateLimitRejectedError(
                f"{maximum} {unit} are in progress, which is the maximum: retry, or use gRPC",
                limit=limit, retry_after_ms=_RETRY_AFTER_MS,
            )  # fmt: skip
        usage.check_share(tenant, 1, maximum, self._percent(), unit)
        usage.add(tenant, 1)
        visit.held.callback(usage.add, tenant, -1)

    def _percent(self) -> int:
        return self._limits().max_principal_percent


def _reader_of(request: web.Request) -> Tenant:
    """Return the tenant of the caller; without authentication, of its address."""
    return current_tenant() if current_access() is not None else tenant_of(f"address {request.remote}")
