"""Background tasks with an owner, which notices the death of each."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

Result = TypeVar("Result")
_Arguments = ParamSpec("_Arguments")


class TaskFailedError(Exception):
    """A background task has died: it failed, was cancelled, or returned although it must not."""

    def __init__(self, name: str, cause: str) -> None:
        super().__init__(f"the background task '{name}' failed: {cause}")


class TaskOwner:
    """Owns background tasks; cancels and awaits them in ``close``.

    No background task may die unnoticed: ``on_failure`` is called with the name and the cause of each that raises, that
    is cancelled before ``close``, or that was started by ``keep`` and returns.
    """

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self._on_failure = on_failure
        # Set by ``close``: no task may be started after it.
        self.is_closed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        # Those of ``keep``.
        self._endless: set[asyncio.Task[Any]] = set()

    def start(self, name: str, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run ``coroutine`` until it ends or ``close`` is called."""
        task = asyncio.create_task(coroutine, name=name)  # noqa: TID251 - the one place that may
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def keep(self, name: str, coroutine: Coroutine[None, None, None]) -> None:
        """Run ``coroutine``, which never returns, until ``close`` is called."""
        self._endless.add(self.start(name, coroutine))

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
        if task.cancelled():
            # For example because a future that it awaited was cancelled.
            cause: BaseException | None = None if self.is_closed else RuntimeError("it was cancelled")
        else:
            cause = task.exception() or (RuntimeError("it returned") if task in self._endless else None)
        self._endless.discard(task)
        if cause is not None:
            self._on_failure(task.get_name(), cause)


class _Owning(Protocol):
    """An object with the owner of its tasks."""

    _tasks: TaskOwner


_Self = TypeVar("_Self", bound=_Owning)


def to_its_end(
    method: Callable[Concatenate[_Self, _Arguments], Coroutine[None, None, Result]],
) -> Callable[Concatenate[_Self, _Arguments], Coroutine[Any, Any, Result]]:
    """Return a method that runs to its end even if the caller is cancelled: see ``TaskOwner.finish``."""

    @wraps(method)
    async def finish(self: _Self, /, *arguments: _Arguments.args, **named: _Arguments.kwargs) -> Result:
        return await self._tasks.finish(method(self, *arguments, **named))

    return finish


async def run_unless(stopped: "asyncio.Future[Exception]", coroutine: Coroutine[None, None, None]) -> None:
    """Run ``coroutine``; if ``stopped`` has a result before it ends, cancel it and raise that result."""
    task = asyncio.create_task(coroutine)  # noqa: TID251 - the one place that may
    try:
        await asyncio.wait((task, stopped), return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            raise stopped.result()
        task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class GuardingTasks(TaskOwner):
    """Background tasks beside a coroutine, which the first failure of one ends."""

    def __init__(self, on_failure: Callable[[str, BaseException], None] = lambda _, __: None) -> None:
        """Own no task yet; ``on_failure`` is called with the first failure only."""
        super().__init__(self.fail)
        self._on_first = on_failure
        self._failed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()

    def fail(self, name: str, cause: BaseException) -> None:
        """Note the failure of ``name``, which may be something else than a task."""
        if not self._failed.done():
            self._on_first(name, cause)
            self._failed.set_result(cause if isinstance(cause, Exception) else RuntimeError(f"{name}: {cause!r}"))

    async def run(self, coroutine: Coroutine[None, None, Result]) -> Result:
        """Run ``coroutine`` and return its result; cancel it and raise what failed before, if something did."""
        results: list[Result] = []

        async def running() -> None:
            results.append(await coroutine)

        await run_unless(self._failed, running())
        return results[0]
