"""The calls in progress of one client, and how a close ends them.

Closing a gRPC channel ends calls with CancelledError, which hides whether the caller or the close cancelled them, and
whether a request was sent. So a close ends calls here, before it closes the channel: reads at once, other calls when
its timeout expires.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tidelog.errors import AppendUnknownError, ClosedError, Effect, TidelogError


class Calls:
    """The calls in one event loop. Once ``drain`` has begun, only calls that a close waits for may begin."""

    def __init__(self) -> None:
        # Maps the scope that can end a call to whether a close waits for the call.
        self._under_way: dict[asyncio.Timeout, bool] = {}
        self._has_ended = asyncio.Event()
        self.is_closing = False
        self._is_over = False

    @property
    def is_idle(self) -> bool:
        """True if no call is in progress."""
        return not self._under_way

    @asynccontextmanager
    async def entered(self, *, holds_close: bool) -> AsyncGenerator[None, None]:
        """Run a block that a close ends at once, or waits for if ``holds_close``.

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
                yield
        except TimeoutError as error:
            if isinstance(error, TidelogError) or not scope.expired():
                raise
            raise closed_error() from None
        finally:
            self._under_way.pop(scope, None)
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
    """

    __slots__ = ("is_sent", "is_unknown")

    def __init__(self) -> None:
        self.is_sent = False
        self.is_unknown = False

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
