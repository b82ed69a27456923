"""The base of the client's calls of one service."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final, TypeVar

import grpc.aio

from tidelog.errors import UnavailableError
from tidelog.transport.deadline import Deadline
from tidelog.transport.patience_scope import answer_by
from tidelog.transport.status import error_of_status
from tidelog.transport.transport import Connection, Transport, UnaryMethod

_Response = TypeVar("_Response")

_HEARTBEATS: Final = 6
"""Heartbeats of a watch in ``Retry.give_up_s``, at the intervals that servers accept."""
_HEARTBEAT_INTERVAL_MS: Final = (100, 10_000)


class ServiceCalls:
    """Calls of one service, such as ``AsyncClient.journals``, or for ``AsyncClient`` itself.

    Attributes:
        timeout_s: Timeout of a call in seconds, unless the call has one of its own.
    """

    def __init__(self, transport: Callable[[], Transport], timeout_s: float) -> None:
        """Create the calls; does no I/O. ``transport`` returns the client's transport in this event loop."""
        self._transport = transport
        self.timeout_s = timeout_s

    @property
    def _services(self) -> Connection:
        """The stubs of the services. Raises ClosedError once the client is closed."""
        return self._transport().services

    async def _read(self, method: UnaryMethod[_Response], request: Any, deadline: Deadline | None = None) -> _Response:
        """Return the response to a request that only reads; ``deadline`` is that of a call with several requests."""
        timeout_s = self.timeout_s if deadline is None else deadline.left_s
        return await self._transport().call(method, request, timeout_s=timeout_s, is_read=True)

    async def _change(
        self,
        method: UnaryMethod[_Response],
        request: Any,
        *,
        is_idempotent: bool = False,
        deadline: Deadline | None = None,
    ) -> _Response:
        """Return the response to a request that changes something; ``deadline`` as in ``_read``."""
        timeout_s = self.timeout_s if deadline is None else deadline.left_s
        return await self._transport().call(
            method, request, timeout_s=timeout_s, is_read=False, is_idempotent=is_idempotent
        )

    async def _answers(
        self,
        method: Callable[[Connection], Any],
        request: Any,
        *,
        is_read: bool,
        later_within_s: Callable[[Any], float | None] | None = None,
        deadline: Deadline | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Yield the answers of a call with many, on a connection with room for it.

        Args:
            method: Returns the method of the stub.
            request: Its request.
            is_read: Whether the call only reads.
            later_within_s: Returns the maximum wait for the answer after the given one, in seconds; None for any time.
                The first one is waited for with the timeout of calls, connecting included.
            deadline: That of a caller that makes several calls, for the first answer.

        Raises:
            UnavailableError: No answer arrived in time, or the connection was lost.
            TidelogError: The server ended the call.
        """
        transport, clock = self._transport(), asyncio.get_running_loop().time
        first_within_s = self.timeout_s if deadline is None else deadline.left_s
        answer_by_s: float | None = clock() + first_within_s
        await transport.ready(min(transport.connect_timeout_s, first_within_s))
        with transport.leased() as connection:
            call = method(connection)(request, metadata=transport.metadata())
            try:
                while (answer := await _next_answer(transport, call, answer_by_s, is_read=is_read)) is not grpc.aio.EOF:
                    yield answer
                    within_s = None if later_within_s is None else later_within_s(answer)
                    answer_by_s = None if within_s is None else clock() + within_s
            except grpc.aio.AioRpcError as error:
                raise error_of_status(error, is_read=is_read) from error
            finally:
                call.cancel()

    def _watched(self, method: Callable[[Connection], Any], request: Any) -> AsyncGenerator[Any, None]:
        """Yield the answers of a watch, heartbeats included, as ``_answers``.

        A server that sends heartbeats states their interval. Its silence ends the watch after ``Retry.give_up_s``, and
        an interval; that of an earlier server does not.
        """
        give_up_s = self._transport().retry.give_up_s
        low_ms, high_ms = _HEARTBEAT_INTERVAL_MS
        request.heartbeat_interval_ms = round(min(max(give_up_s * 1_000 / _HEARTBEATS, low_ms), high_ms))

        def later_within_s(answer: Any) -> float | None:
            interval_s: float = answer.heartbeat_interval_ms / 1_000
            return give_up_s + interval_s if interval_s else None

        return self._answers(method, request, is_read=True, later_within_s=later_within_s)

    async def _pages(
        self, method: Callable[[Connection], Any], request: Any, deadline: Deadline | None = None
    ) -> AsyncIterator[Any]:
        """Yield the responses to a request whose result comes in pages; None: each page has the timeout of a call."""
        while True:
            answer = await self._read(method(self._services), request, deadline)
            yield answer
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token


async def _next_answer(transport: Transport, call: Any, by_s: float | None, *, is_read: bool) -> Any:
    if by_s is None:
        async with transport.calls.entered(holds_close=False):
            return await call.read()

    def silence() -> UnavailableError:
        return UnavailableError(
            f"the server at {transport.endpoint} stopped answering: check it, or raise timeout_s or Retry.give_up_s",
            effect="none" if is_read else "unknown",
        )

    async with answer_by(by_s, silence), transport.calls.entered(holds_close=False):
        return await call.read()
