"""One result shared by many callers, computed at a bounded rate."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tidelog_server.runtime.buckets import Bucket
from tidelog_server.runtime.tasks import TaskOwner

Result = TypeVar("Result")


class SharedResult(Generic[Result]):
    """Computes one result for all waiting callers. The computation begins after their calls, so it is never stale.

    Callers that arrive during a computation, or before the rate allows the next one, share the next result.
    """

    def __init__(
        self,
        make: Callable[[], Awaitable[Result]],
        rate_per_s: float,
        burst: int,
        now_s: Callable[[], float],
        tasks: TaskOwner,
    ) -> None:
        """Compute nothing yet.

        Args:
            make: Computes a result.
            rate_per_s: Maximum computations per second.
            burst: Maximum computations in a burst.
            now_s: Returns the time in seconds.
            tasks: Owner of the tasks that run ``make``, which continues if the callers are cancelled.
        """
        self._make = make
        self._now_s = now_s
        self._tasks = tasks
        self._bucket = Bucket(rate_per_s, burst, now_s())
        self._next: asyncio.Future[Result] | None = None
        self._turn = asyncio.Lock()

    async def get(self) -> Result:
        """Return a result. Raises the exception of ``make``."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._tasks.start("shared_result", self._make_in_turn(self._next))
        # Shielded: other callers wait for the same result.
        return await asyncio.shield(self._next)

    async def _make_in_turn(self, result: "asyncio.Future[Result]") -> None:
        async with self._turn:
            if wait_s := self._bucket.wait_s(self._now_s(), 1):
                await asyncio.sleep(wait_s)
            self._bucket.take(1, self._now_s())
            # Callers from now on get the next result.
            self._next = None
            try:
                result.set_result(await self._make())
            except Exception as error:  # noqa: BLE001 - it is for the callers
                result.set_exception(error)
