"""The synchronous twin of the scanner: its handler runs on a thread of its own."""

import asyncio
import inspect
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from tidelog._background import background
from tidelog._batch import Batch
from tidelog._message_handler import Handler, HandlerCalls, handler_functions
from tidelog._positions import Positions, Start
from tidelog._tick import Tick
from tidelog._wal_scanner import ScannerCore


class HandlerThread:
    """Calls a handler on a thread of its own, so that it may block, and may use the client.

    The thread ends when the handler was closed. It does not keep the process alive, however long the handler takes.
    """

    def __init__(self, handler: Handler) -> None:
        """Start the thread. Raises TypeError: ``handler`` is none."""
        self._handle, self._close = handler_functions(handler)
        self._work: SimpleQueue[tuple[Future[None], Callable[[], object]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="tidelog-scanner", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """Whether the caller is the handler."""
        return threading.current_thread() is self._thread

    @property
    def calls(self) -> HandlerCalls:
        """Calls on the thread, for an event loop."""
        return HandlerCalls(self._handle_there, self._close_there)

    def end(self) -> None:
        """Let the thread end after what it does."""
        self._work.put(None)

    async def _handle_there(self, batch: Batch) -> None:
        await self._call(lambda: self._handle(batch))

    async def _close_there(self) -> None:
        try:
            await self._call(self._close)
        finally:
            self.end()

    async def _call(self, function: Callable[[], object]) -> None:
        future: Future[None] = Future()
        self._work.put((future, function))
        await asyncio.wrap_future(future)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            future, function = work
            if future.set_running_or_notify_cancel():
                _settle(future, function)


def _settle(future: Future[None], function: Callable[[], object]) -> None:
    try:
        outcome = function()
        if inspect.iscoroutine(outcome):
            outcome.close()
            raise TypeError("the handler is a coroutine function: give it to AsyncClient.wal(), or a plain function")
    except Exception as error:  # noqa: BLE001 - whoever looks at the scanner is told
        future.set_exception(error)
    except BaseException as end:  # noqa: BLE001 - it ends the scanner, and must not end the event loop of all clients
        failure = RuntimeError(f"the handler was ended by {end!r}")
        failure.__cause__ = end
        future.set_exception(failure)
    else:
        future.set_result(None)


class WalScanner:
    """A read that goes on by itself until its end, an error or ``close``. See ``AsyncWalScanner``.

    Attributes:
        done: Set once it has ended, for whatever reason, and its handler was closed.
    """

    def __init__(
        self, core: ScannerCore, thread: HandlerThread, done: threading.Event, opened: threading.Event
    ) -> None:
        self.done = done
        self._core = core
        self._thread = thread
        self._opened = opened
        self._pid = os.getpid()

    @property
    def error(self) -> Exception | None:
        """Why it ended. See ``AsyncWalScanner.error``."""
        return self._core.error

    @property
    def position(self) -> Tick:
        """Up to here everything is handled. See ``AsyncWalScanner.position``."""
        return self._core.position

    @property
    def positions(self) -> Positions:
        """The same with the full name of the vchannel. See ``AsyncWalScanner.positions``."""
        return self._core.positions

    @property
    def resume_policy(self) -> Start | Positions:
        """What another read continues with. See ``AsyncWalScanner.resume_policy``."""
        return self._core.resume_policy

    def close(self) -> None:
        """End it, and return once the handler was closed. See ``AsyncWalScanner.close``."""
        if self._pid != os.getpid():
            # A fork copies neither the task nor the thread: here there is nothing to end, nor to wait for.
            return
        background.run(_stopped(self._core) if self._thread.is_here else self._core.close())

    def __enter__(self) -> Self:
        self._opened.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def start(core: ScannerCore) -> None:
    """Begin, on the event loop that runs this."""
    core.start()


async def _stopped(core: ScannerCore) -> None:
    core.stop()
