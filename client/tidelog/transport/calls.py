"""The calls in progress of one client, and how a close ends them.

Closing a gRPC channel ends calls with CancelledError, which hides whether the caller or the close cancelled them, and
whether a request was sent. So a close ends calls here, before it closes the channel: reads at once, other calls when
its timeout expires. A call that the server can withdraw is withdrawn first, so that its own answer has its effect.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from tidelog.errors import AppendUnknownError, ClosedError, Effect, TidelogError

WITHDRAW_S: Final = 1.0
"""Maximum seconds that a close waits for the answers of the calls that it withdraws."""
# First and last pause between two withdrawals of one call.
_FIRST_PAUSE_S: Final = 0.005
_LAST_PAUSE_S: Final = 0.05

Withdraw = Callable[[], Awaitable[bool]]
"""Asks the server to answer a call that waits; returns False if the call is not sent, or the server does not answer."""


class Calls:
    """The calls in one event loop. Once ``drain`` has begun, only calls that a close waits for may begin."""

    def __init__(self) -> None:
        # Maps the scope that can end a call to whether a close waits for the call.
        self._under_way: dict[asyncio.Timeout, bool] = {}
        self._withdrawals: dict[asyncio.Timeout, Withdraw] = {}
        self._has_ended = asyncio.Event()
        self.is_closing = False
        self._is_over = False

    @property
    def is_idle(self) -> bool:
        """True if no call is in progress."""
        return not self._under_way

    @asynccontextmanager
    async def entered(self, *, holds_close: bool, withdraw: Withdraw | None = None) -> AsyncGenerator[None, None]:
        """Run a block that a close ends at once, or waits for if ``holds_close``.

        ``withdraw`` asks the server to answer the call of the block, for a close that has waited in vain.

        Raises:
            ClosedError: A close has begun, or has ended the block. A cancellation by the caller is passed on unchanged.
        """
        if self._is_over or (self.is_closing and not holds_close):
            raise closed_error()
        # Why a timeout without a deadline: unlike Task.cancel, it tells its own cancellation from a caller's.
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._under_way[scope] = holds_close
                if withdraw is not None:
                    self._withdrawals[scope] = withdraw
                yield
        except TimeoutError as error:
            if isinstance(error, TidelogError) or not scope.expired():
                raise
            raise closed_error() from None
        finally:
            self._under_way.pop(scope, None)
            self._withdrawals.pop(scope, None)
            self._has_ended.set()

    async def drain(self, timeout_s: float) -> None:
        """Reject and end calls that a close does not wait for; wait for the others, at most ``timeout_s`` seconds."""
        self.is_closing = True
        for scope, holds_close in self._under_way.items():
            if not holds_close:
                _end(scope)
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle()
        except TimeoutError:
            # ``end`` ends the remaining calls, each with an error that states its effect.
            return

    async def withdraw(self) -> None:
        """Reject new calls, withdraw calls that wait on the server, and await their answers, up to ``WITHDRAW_S`` s."""
        self.is_closing = self._is_over = True
        try:
            async with asyncio.timeout(WITHDRAW_S), asyncio.TaskGroup() as tasks:
                for scope, withdraw in list(self._withdrawals.items()):
                    tasks.create_task(self._withdraw(scope, withdraw))
        except TimeoutError:
            # ``end`` ends the remaining calls; whether the server accepted them is unknown.
            return

    async def _withdraw(self, scope: asyncio.Timeout, withdraw: Withdraw) -> None:
        """Withdraw a call until it has ended. Why repeatedly: a withdrawal may overtake the request on the server."""
        pause_s = _FIRST_PAUSE_S
        while scope in self._under_way:
            if not await withdraw():
                # At once: a call that is not sent yet must not be sent any more.
                if scope in self._under_way:
                    _end(scope)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)

    async def end(self) -> None:
        """Reject new calls, end those in progress, and wait until they have ended."""
        self.is_closing = self._is_over = True
        for scope in self._under_way:
            _end(scope)
        await self._idle()

    async def _idle(self) -> None:
        while self._under_way:
            self._has_ended.clear()
            await self._has_ended.wait()


class Progress:
    """Progress of a call, which determines its effect when a close ends it.

    Attributes:
        is_sent: True if a request was sent.
        is_unknown: True if an earlier attempt may have changed something.
        is_withdrawn: True if a close has withdrawn the call, so that it is not sent again.
    """

    __slots__ = ("is_sent", "is_unknown", "is_withdrawn")

    def __init__(self) -> None:
        self.is_sent = False
        self.is_unknown = False
        self.is_withdrawn = False

    def error_at_close(self, *, is_read: bool, is_append: bool) -> TidelogError:
        """Return the error of a call that a close ended."""
        if is_read or not (self.is_sent or self.is_unknown):
            return closed_error()
        if is_append:
            return AppendUnknownError(
                "the client was closed before the append was answered: its messages may or may not be in the log",
                effect="unknown",
            )
        return ClosedError(
            "the client was closed before the call was answered: it may have taken effect", effect="unknown"
        )


def closed_error(effect: Effect = "none") -> ClosedError:
    """Return the error of a call on a closed client."""
    return ClosedError("the client is closed: create a new one", effect=effect)


def _end(scope: asyncio.Timeout) -> None:
    if not scope.expired():
        scope.reschedule(0.0)
