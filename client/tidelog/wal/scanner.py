"""A scan that runs in the background and passes batches to a handler."""

import asyncio
from types import TracebackType
from typing import Final, Self

from tidelog.errors import ClosedError
from tidelog.read.positions import Positions, Start
from tidelog.read.scanned import Scanned, Signal
from tidelog.tick import Tick
from tidelog.wal.message_handler import HandlerCalls

# Why: an event loop has only weak references to its tasks, and a scanner must run even if nothing references it.
_running: Final[set[asyncio.Task[None]]] = set()


class ScannerCore:
    """The common part of the synchronous and asynchronous scanner. Lives in its client's event loop.

    Attributes:
        done: Set once the scanner has ended and the handler was closed.
        opened: Set once the scanner has begun to read, or ended.
        policy: Where it started.
        error: The error that ended it; None after a close or a normal end. Final once ``done`` is set.
    """

    def __init__(
        self, scan: Scanned, policy: Start | Positions, calls: HandlerCalls, *, done: Signal, opened: Signal
    ) -> None:
        self.done = done
        self.opened = opened
        self.error: Exception | None = None
        self._scan = scan
        self.policy = policy
        self._calls = calls
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        # Whether it waits for the server; a close interrupts only this.
        self._is_waiting = False
        # The positions before the batch that is being handled; None while no batch is.
        self._before: Positions | None = None

    @property
    def positions(self) -> Positions:
        """As ``AsyncWalScanner.positions``."""
        return self._scan.positions if self._before is None else self._before

    def start(self) -> None:
        """Start the scanner on the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="tidelog-scanner")
        _running.add(self._task)
        self._task.add_done_callback(_running.discard)

    def stop(self) -> None:
        """Stop after the batch that is being handled, if there is one."""
        self._is_closing = True
        if self._is_waiting and self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Stop, and return once the scanner has ended; return at once if called by the handler."""
        self.stop()
        if self._task is not None and asyncio.current_task() is not self._task:
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        try:
            await self._deliver()
        except Exception as error:  # noqa: BLE001 - the scanner's ``error`` reports it
            self.error = error
        except BaseException as end:
            if not (self._is_closing and isinstance(end, asyncio.CancelledError)):
                self.error = ClosedError(f"{end!r} ended the scanner's task")
                self.error.__cause__ = end
                raise
        finally:
            await self._end()

    async def _deliver(self) -> None:
        if self._is_closing:
            return
        self._is_waiting = True
        await self._scan.enter()
        self._is_waiting = False
        self.opened.set()
        while await self._has_batch():
            self._before = self._scan.positions
            await self._calls.handle(self._scan.take())
            self._before = None

    async def _has_batch(self) -> bool:
        """Wait for a batch; return False at the end of a bounded scan, and when the scanner is closing."""
        if self._is_closing:
            return False
        if self._scan.has_batch:
            return True
        self._is_waiting = True
        has_batch = await self._scan.fetch()
        self._is_waiting = False
        return has_batch

    async def _end(self) -> None:
        self._is_waiting = False
        try:
            await self._scan.aclose()
        finally:
            try:
                await self._calls.close()
            except Exception as failure:  # noqa: BLE001 - the scanner's ``error`` reports it
                if self.error is None:
                    self.error = failure
                else:
                    self.error.add_note(f"closing the handler also failed: {failure!r}")
            finally:
                self.opened.set()
                self.done.set()


class ScannerProgress:
    """The state of a read, as the synchronous and the asynchronous scanner report it."""

    def __init__(self, core: ScannerCore) -> None:
        self._core = core

    @property
    def error(self) -> Exception | None:
        """The error that ended it, from the handler or a TidelogError; None while it runs and after a normal end."""
        return self._core.error

    @property
    def position(self) -> Tick:
        """The tick up to which everything was handled, and nothing after it; 0 if unknown.

        A batch that is being handled, or whose handler raised, does not count as handled.
        """
        return next(iter(self.positions.values()), Tick(0))

    @property
    def positions(self) -> Positions:
        """``position`` by the full name of the vchannel, to pass as the start of a scan; empty while it is unknown."""
        return self._core.positions

    @property
    def resume_policy(self) -> Start | Positions:
        """The ``deliver_policy`` with which another read resumes after the last handled batch.

        It is valid after an error and a close too. It is ``positions`` or, while they are unknown and nothing was
        handled, the policy of this read.
        """
        return self.positions or self._core.policy


class AsyncWalScanner(ScannerProgress):
    """A background read that runs until its end, an error or ``close``. ``WalScanner`` is its synchronous twin.

    It ends when the client is closed, and runs even if nothing references it. ``async with`` waits until it has begun
    to read, so that one that starts at ``latest`` misses nothing appended in the block, and closes it after the block.

    Attributes:
        done: Set once the scanner has ended, for any reason, and its handler was closed.
    """

    def __init__(self, core: ScannerCore, done: asyncio.Event, opened: asyncio.Event) -> None:
        super().__init__(core)
        self.done = done
        self._opened = opened

    async def close(self) -> None:
        """Stop the scanner; return once the handler has finished its batch and was closed. Idempotent.

        If the handler itself calls this, it returns at once, and the current batch is the last one.
        """
        await self._core.close()

    async def __aenter__(self) -> Self:
        await self._opened.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
