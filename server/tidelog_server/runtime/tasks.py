"""Tasks that have an owner: what a background task raises reaches somebody."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class TaskOwner:
    """Owns background tasks; cancels and awaits them in ``close``.

    A task that fails calls ``on_failure`` with what it raised: a background task of the server must never end
    unnoticed.
    """

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self._on_failure = on_failure
        # From ``close`` on: nothing may be begun any more.
        self.is_closed = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, name: str, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run ``coroutine`` until it ends or ``close`` is called."""
        task = asyncio.create_task(coroutine, name=name)  # noqa: TID251 - the one place that may
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, coroutine: Coroutine[None, None, Result]) -> Result:
        """Run ``coroutine`` and return what it returns; it runs to its end even if the caller is cancelled.

        What it raises reaches the caller, and nobody once the caller was cancelled.
        """
        task = asyncio.create_task(coroutine)  # noqa: TID251 - the one place that may
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel what still runs and wait until it has ended."""
        self.is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (cause := task.exception()) is not None:
            self._on_failure(task.get_name(), cause)
