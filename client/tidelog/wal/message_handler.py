"""Message handlers of ``read``: a function called for each batch, or an object that is also notified of the end."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from tidelog.wire.batch import Batch


class MessageHandler(Protocol):
    """Processes the batches that a scanner reads.

    An optional method ``close`` without parameters is called once, after the last batch, however the scanner ended.
    Both may be coroutine functions, except with the synchronous client.
    """

    def handle(self, batch: Batch, /) -> object:
        """Process ``batch``, which counts as handled when this returns. An exception ends the scanner."""
        ...


Handler = MessageHandler | Callable[[Batch], object]
"""A MessageHandler, or a function of one batch."""


@dataclass(frozen=True, slots=True)
class HandlerCalls:
    """How a scanner calls a handler."""

    handle: Callable[[Batch], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


def handler_functions(handler: Handler) -> tuple[Callable[[Batch], object], Callable[[], object]]:
    """Return the functions to call for each batch, and at the end.

    Raises:
        TypeError: ``handler`` is not callable and has no method ``handle``.
    """
    handle = getattr(handler, "handle", None)
    if callable(handle):
        close = getattr(handler, "close", None)
        return handle, close if callable(close) else _nothing
    if not callable(handler):
        raise TypeError(
            f"expected a message handler, a function of one batch or an object with handle(batch), got "
            f"{type(handler).__name__}"
        )
    return handler, _nothing


def calls_here(handler: Handler) -> HandlerCalls:
    """Return calls on the running event loop, which await coroutines. Raises TypeError as ``handler_functions``."""
    handle, close = handler_functions(handler)

    async def handle_here(batch: Batch) -> None:
        await _outcome(handle(batch))

    async def close_here() -> None:
        await _outcome(close())

    return HandlerCalls(handle_here, close_here)


async def _outcome(outcome: object) -> None:
    if inspect.isawaitable(outcome):
        await outcome


def _nothing() -> None:
    pass
