"""The synchronous twin of the scanner, whose handler runs on its own thread."""

import asyncio
import inspect
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Self

from tidelog.read.positions import Positions, Start
from tidelog.tick import Tick
from tidelog.transport.background import background
from tidelog.wal.message_handler import Handler, HandlerCalls, handler_functions
from tidelog.wal.scanner import ScannerCore
from tidelog.wire.batch import Batch


class HandlerThread:
    """Calls a handler on a separate thread, so that the handler may block and may use the client.

    The thread ends once the handler is closed. It is a daemon thread: a running handler does not keep the process
    alive.
    """

    def __init__(self, handler: Handler) -> None:
        """Start the thread. Raises TypeError if ``handler`` is invalid."""
        self._handle, self._close = handler_functions(handler)
        self._work: SimpleQueue[tuple[Future[None], Callable[[], object]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="tidelog-scanner", daemon=True)
        self._thread.start()

    @property
    def is_here(self) -> bool:
        """True if the caller runs on the handler's thread."""
        return threading.current_thread() is self._thread

    @property
    def calls(self) -> HandlerCalls:
        """Coroutine functions that run the handler on the thread."""
        return HandlerCalls(self._handle_there, self._close_there)

    def end(self) -> None:
        """End the thread after the work that is queued."""
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
            raise TypeError("the handler is a coroutine function: pass a plain function, or use AsyncClient.wal()")
    except Exception as error:  # noqa: BLE001 - it becomes the scanner's `error`
        future.set_exception(error)
    except BaseException as end:  # noqa: BLE001 - it ends the scanner, and must not end the event loop of all clients
        failure = RuntimeError(f"the handler raised {end!r}")
        failure.__cause__ = end
        future.set_exception(failure)
    else:
        future.set_result(None)


class WalScanner:
    """A background read, which runs until its end, an error or ``close``. See ``AsyncWalScanner``.

    Attributes:
        done: Event that is set once the read has ended, for any reason, and its handler is closed.
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
        """Error that ended the read. See ``AsyncWalScanner.error``."""
        return self._core.error

    @property
    def position(self) -> Tick:
        """Tick up to which all messages are handled. See ``AsyncWalScanner.position``."""
        return self._core.position

    @property
    def positions(self) -> Positions:
        """The position by full name of the vchannel. See ``AsyncWalScanner.positions``."""
        return self._core.positions

    @property
    def resume_policy(self) -> Start | Positions:
        """Deliver policy with which another read resumes. See ``AsyncWalScanner.resume_policy``."""
        return self._core.resume_policy

    def close(self) -> None:
        """End the read, and wait until the handler is closed. See ``AsyncWalScanner.close``."""
        if self._pid != os.getpid():
            # A fork copies neither the task nor the thread: in the child there is nothing to end or wait for.
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
    """Start the scanner on the event loop that runs this coroutine."""
    core.start()


async def _stopped(core: ScannerCore) -> None:
    core.stop()
