"""One result for many callers, made at a bounded rate."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tidelog_server.runtime.buckets import Bucket
from tidelog_server.runtime.tasks import TaskOwner

Result = TypeVar("Result")


class SharedResult(Generic[Result]):
    """Makes a result for all that ask before it is begun. What a caller gets was begun after it asked, so is never old.

    Callers that ask while one is made, or too soon after the last ones, wait for the next one together.
    """

    def __init__(
        self,
        make: Callable[[], Awaitable[Result]],
        rate_per_s: float,
        burst: int,
        now_s: Callable[[], float],
        tasks: TaskOwner,
    ) -> None:
        """Make nothing yet.

        Args:
            make: Makes a result.
            rate_per_s: How often, at most.
            burst: How often at once, after a pause.
            now_s: Tells the time.
            tasks: Run ``make``, which continues when the callers are gone.
        """
        self._make = make
        self._now_s = now_s
        self._tasks = tasks
        self._bucket = Bucket(rate_per_s, burst, now_s())
        self._next: asyncio.Future[Result] | None = None
        self._turn = asyncio.Lock()

    async def get(self) -> Result:
        """Return a result. Raises what making it raised."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            self._tasks.start("shared_result", self._make_in_turn(self._next))
        # Shielded: the result is that of others too.
        return await asyncio.shield(self._next)

    async def _make_in_turn(self, result: "asyncio.Future[Result]") -> None:
        async with self._turn:
            if wait_s := self._bucket.wait_s(self._now_s(), 1):
                await asyncio.sleep(wait_s)
            self._bucket.take(1, self._now_s())
            # A caller from now on gets the one after this.
            self._next = None
            try:
                result.set_result(await self._make())
            except Exception as error:  # noqa: BLE001 - it is for the callers
                result.set_exception(error)
