"""What a reader of ``read`` gives: a function for each batch, or an object that also wants to know of the end."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from tidelog._batch import Batch


class MessageHandler(Protocol):
    """Takes what a scanner reads.

    If it has a method ``close`` without parameters, that is called once, after the last batch, whatever the end was.
    Both may be coroutine functions, but not for the synchronous client.
    """

    def handle(self, batch: Batch, /) -> object:
        """Take ``batch``. It is handled when this returns; an exception ends the scanner."""
        ...


Handler = MessageHandler | Callable[[Batch], object]
"""A MessageHandler, or a function of one batch."""


@dataclass(frozen=True, slots=True)
class HandlerCalls:
    """How a scanner calls a handler."""

    handle: Callable[[Batch], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


def handler_functions(handler: Handler) -> tuple[Callable[[Batch], object], Callable[[], object]]:
    """Return what is called for each batch, and at the end.

    Raises:
        TypeError: ``handler`` is no handler.
    """
    handle = getattr(handler, "handle", None)
    if callable(handle):
        close = getattr(handler, "close", None)
        return handle, close if callable(close) else _nothing
    if not callable(handler):
        raise TypeError(
            f"a message handler is a function of one batch or has a method handle(batch), not {type(handler).__name__}"
        )
    return handler, _nothing


def calls_here(handler: Handler) -> HandlerCalls:
    """Return calls on the running event loop, which wait for coroutines. Raises TypeError: no handler."""
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
