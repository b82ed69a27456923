"""The event loop of the synchronous clients: one per process, on its own thread, started on first use.

An idle loop is stopped before a fork, because gRPC does not survive a fork (see ``tidelog.transport.fork``). The next
call starts a new one, in the parent and in the child. Calls that other threads make during a fork begin after it.
"""

import asyncio
import inspect
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any, Final, Generic, Protocol, TypeVar
from weakref import WeakSet

from tidelog.transport import fork as _fork  # noqa: F401 - imported for its effect

_Result = TypeVar("_Result")
# Maximum wait of a fork for connections to close. After that the child cannot use gRPC, and gets ForkError.
_PAUSE_S: Final = 5.0


class _End:
    """The end of an asynchronous iterator."""


_END: Final = _End()


class _BlockingCall(Generic[_Result]):
    """Work of the loop that a thread waits for.

    Why not ``asyncio.run_coroutine_threadsafe``: its future takes one more turn of the loop to pass a result on, and a
    condition to wait for it: together 25 of 80 µs.
    """

    __slots__ = ("_error", "_has_ended", "_is_cancelled", "_is_running", "_loop", "_result", "_task", "_work")

    def __init__(self, work: Coroutine[Any, Any, _Result], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._is_cancelled = False
        self._result: _Result
        self._error: BaseException | None = None
        self._has_ended = False
        # Held until the work has ended.
        self._is_running = threading.Lock()
        self._is_running.acquire()

    def begin(self) -> None:
        """Start the work, unless it was cancelled before. On the loop."""
        if not self._is_cancelled:
            self._task = self._loop.create_task(self._run())

    def result(self, timeout_s: float | None) -> _Result:
        """Wait for the end of the work; return its result, or raise its error. On the thread that waits.

        Raises:
            TimeoutError: The work did not end within ``timeout_s`` seconds; it continues.
        """
        if not self._is_running.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s)):
            raise TimeoutError
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            # The traceback references this frame: this breaks the cycle, which only the garbage collector would free.
            del error

    def cancel(self) -> None:
        """Cancel the work unless it has ended. On the thread that waits."""
        if not self._has_ended:
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()
        if inspect.getcoroutinestate(self._work) == inspect.CORO_CREATED:
            # There is no task, or it ends before it awaits the work.
            self._work.close()

    async def _run(self) -> None:
        try:
            self._result = await self._work
        except asyncio.CancelledError:
            # In the thread that waits, no task is cancelled.
            self._error = CancelledError()
        except BaseException as error:  # noqa: BLE001 - raised by ``result``
            self._error = error
        finally:
            self._has_ended = True
            self._is_running.release()


class Pausable(Protocol):
    """A client that uses the loop, and can release it until its next call."""

    async def pause(self) -> bool:
        """Close connections until they are needed again; return whether they are closed."""
        ...


class Background:
    """An event loop on a daemon thread, and the clients that use it."""

    def __init__(self) -> None:
        # Guards the loop: no work is given to a loop that has stopped. A fork holds it from its begin to its end.
        # Why not a plain lock: a signal handler or a finalizer of the forking thread may use the loop.
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._unusable: list[asyncio.AbstractEventLoop | None] = []
        self._clients: WeakSet[Pausable] = WeakSet()
        self._in_progress: set[Future[Any] | asyncio.Task[None] | _BlockingCall[Any]] = set()
        # Ordering: after `fork` is imported, whose function then runs after all clients have paused.
        os.register_at_fork(
            before=self.begin_fork,
            after_in_parent=lambda: self._lock.release(),  # noqa: PLW0108 - ``forget`` replaces the lock
            after_in_child=self.forget,
        )

    def add(self, client: "Pausable") -> None:
        """Pause ``client`` around forks."""
        with self._lock:
            self._clients.add(client)

    def run(self, work: Coroutine[Any, Any, _Result], timeout_s: float | None = None) -> _Result:
        """Run ``work`` on the loop and return its result. Ctrl-C and the timeout end the wait and cancel the work.

        Raises:
            TimeoutError: ``work`` did not finish within ``timeout_s`` seconds.
        """
        call: _BlockingCall[_Result] | None = None
        try:
            with self._lock:
                loop = self.loop()
                call = _BlockingCall(work, loop)
                self._in_progress.add(call)
                loop.call_soon_threadsafe(call.begin)
            return call.result(timeout_s)
        except BaseException:
            if call is None:
                work.close()
            else:
                # On the loop, which may have started the work.
                call.cancel()
            raise
        finally:
            if call is not None:
                self._in_progress.discard(call)

    def iterate(self, items: AsyncIterator[_Result]) -> Iterator[_Result]:
        """Yield items of an asynchronous iterator, each fetched on the loop when it is asked for."""

        async def following() -> "_Result | _End":
            return await anext(items, _END)

        while not isinstance(item := self.run(following()), _End):
            yield item

    def start(self, work: Coroutine[Any, Any, _Result]) -> "Future[_Result]":
        """Start ``work`` on the loop."""
        try:
            with self._lock:
                future = asyncio.run_coroutine_threadsafe(work, self.loop())
                self._in_progress.add(future)
        except BaseException:
            work.close()
            raise
        future.add_done_callback(self._in_progress.discard)
        return future

    def close(self, closing: Coroutine[Any, Any, None]) -> None:
        """Run ``closing``, which ends an object of the caller. On the loop's own thread, begin it, and do not wait.

        Why not ``run``: an object that nothing references any more, such as a generator in a ``with`` block, is closed
        on the thread that frees it. A failure that no caller waits for goes to the loop's exception handler.
        """
        loop = self._own_loop()
        if loop is None:
            self.run(closing)
            return
        ending = loop.create_task(closing, name="tidelog-close")
        self._in_progress.add(ending)
        ending.add_done_callback(self._in_progress.discard)

    def call_soon(self, call: Callable[[], object]) -> None:
        """Run ``call`` on the loop soon; from any thread, the loop's own included."""
        loop = self._own_loop()
        if loop is not None:
            loop.call_soon(call)
            return
        with self._lock:
            self.loop().call_soon_threadsafe(call)

    def _own_loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the loop if the caller is on its thread."""
        return self._loop if threading.current_thread() is self._thread else None

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; start it if necessary."""
        with self._lock:
            if self._loop is None:
                started: Future[asyncio.AbstractEventLoop] = Future()
                self._thread = threading.Thread(target=_run, args=(started,), name="tidelog", daemon=True)
                self._thread.start()
                self._loop = started.result()
            assert self._own_loop() is None, "a blocking call on the client's own event loop"
            return self._loop

    @property
    def is_busy(self) -> bool:
        """Whether work is in progress on the loop."""
        return bool(self._in_progress)

    def begin_fork(self) -> None:
        """Stop the loop, unless a client is in use, and let no other thread use it until the fork has ended."""
        # Released in the parent; the child has another one.
        self._lock.acquire()
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or threading.current_thread() is thread or self._in_progress:
            return
        give_up_s = time.monotonic() + _PAUSE_S
        try:
            is_paused = asyncio.run_coroutine_threadsafe(self._pause_clients(), loop).result(_PAUSE_S)
        except TimeoutError:
            return
        if is_paused:
            self._loop = self._thread = None
            loop.call_soon_threadsafe(loop.stop)
            # Why a timeout: a callback on the loop may need a lock whose owner waits for the end of the fork.
            thread.join(max(0.0, give_up_s - time.monotonic()))

    def forget(self) -> None:
        """Discard the parent's loop and thread, which a fork does not copy; for the child."""
        self._lock = threading.RLock()
        # Why kept: a gRPC object that was in use at the fork can crash the child even when it is freed.
        self._unusable.append(self._loop)
        self._loop = self._thread = None
        self._in_progress = set()

    async def _pause_clients(self) -> bool:
        paused = [await client.pause() for client in list(self._clients)]
        return all(paused)


async def called(call: Callable[[], None]) -> None:
    """Make a call that needs a running event loop."""
    call()


def _run(started: "Future[asyncio.AbstractEventLoop]") -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.call_soon(started.set_result, loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


background: Final = Background()
