"""The calls of one client that are under way, and how its close ends them.

The close of a gRPC channel ends calls with CancelledError, which hides whether the caller or the close cancelled them,
and whether a request was sent. So a close ends calls here, before it closes the channel: those that only read at once,
the others when its time is over.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tidelog._errors import AppendUnknownError, ClosedError, TidelogError


class Calls:
    """Calls in one event loop. Once ``drain`` has begun, only calls that hold up a close may begin."""

    def __init__(self) -> None:
        # Whether a close waits for it, by the scope that can end it.
        self._under_way: dict[asyncio.Timeout, bool] = {}
        self._has_ended = asyncio.Event()
        self.is_closing = False
        self._is_over = False

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return not self._under_way

    @asynccontextmanager
    async def entered(self, *, holds_close: bool) -> AsyncGenerator[None, None]:
        """Let a close end what runs in the block, or wait for it.

        Raises:
            ClosedError: The close has begun, or has ended the block. A cancellation of the caller stays one.
        """
        if self._is_over or (self.is_closing and not holds_close):
            raise closed_error()
        # Why a timeout without an end: unlike Task.cancel it keeps its own cancellation apart from that of a caller.
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
        """Refuse and end calls that do not hold up a close; wait for the others, ``timeout_s`` at most."""
        self.is_closing = True
        for scope, holds_close in self._under_way.items():
            if not holds_close:
                _end(scope)
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle()
        except TimeoutError:
            # What is left is ended by ``end``, and each call learns its effect.
            return

    async def end(self) -> None:
        """Refuse every call, end those under way, and return when they have ended."""
        self.is_closing = self._is_over = True
        for scope in self._under_way:
            _end(scope)
        await self._idle()

    async def _idle(self) -> None:
        while self._under_way:
            self._has_ended.clear()
            await self._has_ended.wait()


class Progress:
    """How far a call got, from which a close tells its effect.

    Attributes:
        is_sent: Whether a request is on its way.
        is_unknown: Whether an earlier attempt may have changed something.
    """

    __slots__ = ("is_sent", "is_unknown")

    def __init__(self) -> None:
        self.is_sent = False
        self.is_unknown = False

    def error_at_close(self, *, is_read: bool, is_append: bool) -> TidelogError:
        """Return what a call that a close ended raises."""
        if is_read or not (self.is_sent or self.is_unknown):
            return closed_error()
        if is_append:
            return AppendUnknownError(
                "the client was closed before the append was answered: its messages may or may not be in the log",
                effect="unknown",
            )
        return ClosedError(
            "the client was closed before the call was answered: it may have been made", effect="unknown"
        )


def closed_error() -> ClosedError:
    """Return why a call of a closed client is not made."""
    return ClosedError("the client is closed: make a new one")


def _end(scope: asyncio.Timeout) -> None:
    if not scope.expired():
        scope.reschedule(0.0)
