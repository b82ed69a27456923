"""A scan that runs by itself and hands what it reads to a handler."""

import asyncio
from types import TracebackType
from typing import Final, Self

from tidelog._errors import ClosedError
from tidelog._message_handler import HandlerCalls
from tidelog._positions import Positions, Start
from tidelog._scan import ScanCore, Signal
from tidelog._tick import Tick

# Why: an event loop keeps its tasks weakly, and nobody has to keep a scanner for it to go on.
_running: Final[set[asyncio.Task[None]]] = set()


class ScannerCore:
    """A scanner without its twins' ways to wait. Lives in its client's event loop.

    Attributes:
        done: Set once it has ended and the handler was closed.
        opened: Set once it has begun to read, or ended.
        error: Why it ended, None for a close and for its own end; does not change once ``done`` is set.
    """

    def __init__(
        self, scan: ScanCore, policy: Start | Positions, calls: HandlerCalls, *, done: Signal, opened: Signal
    ) -> None:
        self.done = done
        self.opened = opened
        self.error: Exception | None = None
        self._scan = scan
        self._policy = policy
        self._calls = calls
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        # Whether it waits for the server: only this is cut off by a close.
        self._is_waiting = False
        # How far it was before the batch that the handler has; None while the handler has none.
        self._before: Positions | None = None

    @property
    def position(self) -> Tick:
        """As ``AsyncWalScanner.position``."""
        return next(iter(self.positions.values()), Tick(0))

    @property
    def positions(self) -> Positions:
        """As ``AsyncWalScanner.positions``."""
        return self._scan.positions if self._before is None else self._before

    @property
    def resume_policy(self) -> Start | Positions:
        """As ``AsyncWalScanner.resume_policy``."""
        return self.positions or self._policy

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="tidelog-scanner")
        _running.add(self._task)
        self._task.add_done_callback(_running.discard)

    def stop(self) -> None:
        """End after the batch that the handler has, if it has one."""
        self._is_closing = True
        if self._is_waiting and self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Stop, and return once it has ended; at once if the handler itself asks."""
        self.stop()
        if self._task is not None and asyncio.current_task() is not self._task:
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        try:
            await self._deliver()
        except Exception as error:  # noqa: BLE001 - whoever looks at the scanner is told
            self.error = error
        except BaseException as end:
            if not (self._is_closing and isinstance(end, asyncio.CancelledError)):
                self.error = ClosedError(f"the task of the scanner was ended by {end!r}")
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
        """Wait for a batch; return False at the end of a bounded scan, and when it is to be closed."""
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
            except Exception as failure:  # noqa: BLE001 - whoever looks at the scanner is told
                if self.error is None:
                    self.error = failure
                else:
                    self.error.add_note(f"Closing the handler failed as well: {failure!r}")
            finally:
                self.opened.set()
                self.done.set()


class AsyncWalScanner:
    """A read that goes on by itself until its end, an error or ``close``. ``WalScanner`` is its synchronous twin.

    It ends with the client, and goes on without anybody who holds it. ``async with`` waits until it has begun to read,
    so that one that starts at ``latest`` misses nothing appended in the block, and closes it at the end of the block.

    Attributes:
        done: Set once it has ended, for whatever reason, and its handler was closed.
    """

    def __init__(self, core: ScannerCore, done: asyncio.Event, opened: asyncio.Event) -> None:
        self.done = done
        self._core = core
        self._opened = opened

    @property
    def error(self) -> Exception | None:
        """Why it ended: what the handler raised, or a TidelogError. None while it runs, at its own end, when closed."""
        return self._core.error

    @property
    def position(self) -> Tick:
        """Up to here everything is handled, and nothing behind; 0 for unknown.

        It does not count the batch that the handler has, nor one that it failed on.
        """
        return self._core.position

    @property
    def positions(self) -> Positions:
        """The same with the full name of the vchannel, as a scan takes it for its start; empty while it is unknown."""
        return self._core.positions

    @property
    def resume_policy(self) -> Start | Positions:
        """What ``deliver_policy`` another read continues with, behind the last batch that was handled.

        It has its value also after an error and a close. It is ``positions``, or the policy that this read was given
        while they are unknown: then nothing was handled.
        """
        return self._core.resume_policy

    async def close(self) -> None:
        """End it, and return once the handler has finished its batch and was closed. Closing twice is closing once.

        The handler itself may call it: then it returns at once, and this batch is the last one.
        """
        await self._core.close()

    async def __aenter__(self) -> Self:
        await self._opened.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
