"""The synchronous WAL accessor and its scanner, whose handler runs on its own thread."""

import asyncio
import inspect
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Self, Unpack

from tidelog._closing import Closing
from tidelog.read.positions import EARLIEST, Positions, Start
from tidelog.sync.generated.client_calls import ClientCalls
from tidelog.sync.generated.wal import WalBase
from tidelog.transport.background import background, called
from tidelog.wal.accessor import AsyncWal
from tidelog.wal.deliver_filters import ReadOptions
from tidelog.wal.message_handler import Handler, HandlerCalls, handler_functions
from tidelog.wal.scanner import ScannerCore, ScannerProgress
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


class WalScanner(ScannerProgress, Closing):
    """A background read, which runs until its end, an error or ``close``. See ``AsyncWalScanner``.

    Attributes:
        done: Event that is set once the read has ended, for any reason, and its handler is closed.
    """

    def __init__(
        self, core: ScannerCore, thread: HandlerThread, done: threading.Event, opened: threading.Event
    ) -> None:
        super().__init__(core)
        self.done = done
        self._thread = thread
        self._opened = opened
        self._pid = os.getpid()

    def close(self) -> None:
        """End the read, and wait until the handler is closed. See ``AsyncWalScanner.close``."""
        if self._pid != os.getpid():
            # A fork copies neither the task nor the thread: in the child there is nothing to end or wait for.
            return
        background.close(called(self._core.stop) if self._thread.is_here else self._core.close())

    def __enter__(self) -> Self:
        self._opened.wait()
        return self


class Wal(WalBase):
    """The log of a client. See ``AsyncWal``. Thread-safe."""

    def __init__(self, client: ClientCalls, wal: AsyncWal) -> None:
        super().__init__(client)
        self._wal = wal

    def read(
        self,
        vchannel: str,
        *,
        message_handler: Handler,
        deliver_policy: Start | Positions = EARLIEST,
        **options: Unpack[ReadOptions],
    ) -> WalScanner:
        """Read in the background, and pass each batch to ``message_handler``; returns at once. See ``AsyncWal.read``.

        The handler runs on its own thread: it may block, and may use the client.
        """
        done, opened = threading.Event(), threading.Event()
        thread = HandlerThread(message_handler)
        try:
            core = self._wal.scanner_core(vchannel, thread.calls, deliver_policy, done, opened, **options)
            background.run(called(core.start))
        except BaseException:
            thread.end()
            raise
        return WalScanner(core, thread, done, opened)
