"""The base of the client's calls of one service."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, TypeVar

import grpc.aio

from tidelog.errors import TidelogError, UnavailableError
from tidelog.transport.deadline import Deadline
from tidelog.transport.status import error_of_status
from tidelog.transport.transport import Connection, Transport, UnaryMethod

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class ServiceCalls(ABC):
    """Calls of one service, for ``AsyncClient``.

    Attributes:
        timeout_s: Timeout of a call in seconds, unless the call has one of its own.
    """

    timeout_s: float

    @abstractmethod
    def _transport(self) -> Transport:
        """Return the transport of this event loop."""

    @property
    def _services(self) -> Connection:
        """The stubs of the services. Raises ClosedError once the client is closed."""
        return self._transport().services

    async def _read(
        self, method: UnaryMethod[_Request, _Response], request: _Request, deadline: Deadline | None = None
    ) -> _Response:
        """Return the response to a request that only reads; ``deadline`` is that of a call with several requests."""
        timeout_s = self.timeout_s if deadline is None else deadline.left_s
        return await self._transport().call(method, request, timeout_s=timeout_s, is_read=True)

    async def _change(
        self,
        method: UnaryMethod[_Request, _Response],
        request: _Request,
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
        later_within_s: float | None = None,
        deadline: Deadline | None = None,
    ) -> AsyncGenerator[Any, None]:
        """Yield the answers of a call with many, on a connection with room for it.

        Args:
            method: Returns the method of the stub.
            request: Its request.
            is_read: Whether the call only reads.
            later_within_s: Maximum wait for each answer after the first one; None for any time. The first one is waited
                for with the timeout of calls, connecting included.
            deadline: That of a caller that makes several calls, for the first answer.

        Raises:
            UnavailableError: No answer arrived in time, or the connection was lost.
            TidelogError: The server ended the call.
        """
        transport, clock = self._transport(), asyncio.get_running_loop().time
        first_within_s = self.timeout_s if deadline is None else deadline.left_s
        answer_by_s: float | None = clock() + first_within_s
        await transport.ready(min(transport.connect_timeout_s, first_within_s))
        connection = transport.lease()
        call = method(connection)(request, metadata=transport.metadata())
        try:
            while (answer := await _next_answer(transport, call, answer_by_s)) is not grpc.aio.EOF:
                yield answer
                answer_by_s = None if later_within_s is None else clock() + later_within_s
        except grpc.aio.AioRpcError as error:
            raise error_of_status(error, is_read=is_read) from error
        finally:
            call.cancel()
            transport.release(connection)

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


async def _next_answer(transport: Transport, call: Any, by_s: float | None) -> Any:
    scope = asyncio.timeout_at(by_s)
    try:
        async with scope, transport.calls.entered(holds_close=False):
            return await call.read()
    except TimeoutError as error:
        if isinstance(error, TidelogError) or not scope.expired():
            raise
        raise UnavailableError(
            f"the server at {transport.endpoint} stopped answering: check it, or raise timeout_s", effect="unknown"
        ) from error
