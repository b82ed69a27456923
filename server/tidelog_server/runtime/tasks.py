"""Background tasks with an owner, to which their failures are reported."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class TaskOwner:
    """Owns background tasks; cancels and awaits them in ``close``.

    If a task fails, ``on_failure`` is called with its name and exception: no background task may fail unnoticed.
    """

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self._on_failure = on_failure
        # Set by ``close``: no task may be started after it.
        self.is_closed = False
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, name: str, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run ``coroutine`` until it ends or ``close`` is called."""
        task = asyncio.create_task(coroutine, name=name)  # noqa: TID251 - the one place that may
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def finish(self, coroutine: Coroutine[None, None, Result]) -> Result:
        """Run ``coroutine`` and return its result; it runs to its end even if the caller is cancelled.

        Its exception is raised to the caller, and discarded if the caller was cancelled.
        """
        task = asyncio.create_task(coroutine)  # noqa: TID251 - the one place that may
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel the running tasks and wait until they have ended."""
        self.is_closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (cause := task.exception()) is not None:
            self._on_failure(task.get_name(), cause)
