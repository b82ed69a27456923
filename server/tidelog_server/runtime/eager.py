"""Coroutines that run at once to their first wait, and are awaited later.

A task that is woken runs a turn of the event loop later. What can begin in a callback should not wait for that. (Python
3.12 knows this as ``asyncio.eager_task_factory``.)
"""

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class Eager(Generic[Result]):
    """A coroutine on its way. Await it once, from a task, or ``cancel`` it.

    What it raised by then is raised to who awaits it. To its first wait it runs outside any task, and with the context
    variables of the callback.
    """

    __slots__ = ("_coroutine", "_failure", "_is_done", "_result", "_wait")

    def __init__(self, coroutine: Coroutine[Any, Any, Result]) -> None:
        """Run ``coroutine`` to its first wait. Never raises."""
        self._coroutine = coroutine
        self._is_done = False
        self._failure: BaseException | None = None
        self._result: Result
        # What the coroutine waits for.
        self._wait: Any = None
        self._step(None)

    def cancel(self) -> None:
        """End it where it waits, because nobody will await it. What it raised before is dropped. Idempotent."""
        if self._is_done:
            return
        self._is_done, self._failure = True, asyncio.CancelledError()
        if isinstance(self._wait, asyncio.Future):
            # Or asyncio would complain of a failure that nobody looked at.
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
            # The traceback keeps this frame: without this, it and the failure would wait for the garbage collector.
            del self

    def _step(self, error: BaseException | None) -> None:
        try:
            self._wait = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
        except StopIteration as end:
            self._is_done, self._result = True, end.value
        except BaseException as failure:  # noqa: BLE001 - raised to whoever awaits
            # Without this frame, for the same reason.
            self._is_done, self._failure = True, failure.with_traceback(_below(failure))


def _below(failure: BaseException) -> Any:
    """Return the traceback of ``failure`` without its outermost frame."""
    return failure.__traceback__ and failure.__traceback__.tb_next
