"""Coroutines that run immediately until their first wait, and are awaited later.

A task starts one turn of the event loop later, which delays work that could begin in a callback. (Python 3.12 has
``asyncio.eager_task_factory`` for this.)
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Eager(Generic[Result]):
    """A started coroutine. Await it once, from a task, or ``cancel`` it.

    An exception raised before that is raised by the await. Until its first wait the coroutine runs in the step of
    its caller, with the context variables of that, and in no task of its own.
    """

    __slots__ = ("_coroutine", "_failure", "_is_done", "_result", "_wait")

    def __init__(self, coroutine: Coroutine[Any, Any, Result]) -> None:
        """Run ``coroutine`` until its first wait. Never raises."""
        self._coroutine = coroutine
        self._is_done = False
        self._failure: BaseException | None = None
        self._result: Result
        # The awaitable that the coroutine waits for.
        self._wait: Any = None
        self._step(None)

    def cancel(self) -> None:
        """Close the coroutine where it waits. An exception that it raised before is discarded. Idempotent."""
        if self._is_done:
            return
        self._is_done, self._failure = True, asyncio.CancelledError()
        if isinstance(self._wait, asyncio.Future):
            # Otherwise asyncio would warn that the future's exception was never retrieved.
            self._wait.cancel()
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Result]:
        while not self._is_done:
            try:
                yield self._wait
            except BaseException as error:  # noqa: BLE001 - belongs to the coroutine, a cancellation included
                self._step(error)
            else:
                self._step(None)
        if self._failure is None:
            return self._result
        try:
            raise self._failure
        finally:
            # The traceback references this frame: this breaks the cycle, which only the garbage collector would free.
            del self

    def _step(self, error: BaseException | None) -> None:
        try:
            self._wait = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
        except StopIteration as end:
            self._is_done, self._result = True, end.value
        except BaseException as failure:  # noqa: BLE001 - raised by __await__
            # Drop this frame, to avoid the same cycle.
            self._is_done, self._failure = True, failure.with_traceback(_below(failure))


def _below(failure: BaseException) -> Any:
    """Return the traceback of ``failure`` without its outermost frame."""
    return failure.__traceback__ and failure.__traceback__.tb_next
