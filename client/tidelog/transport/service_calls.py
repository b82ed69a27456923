"""The base of the client's calls of one service."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

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

    async def _read(self, method: UnaryMethod[_Request, _Response], request: _Request) -> _Response:
        """Return the response to a request that only reads."""
        return await self._transport().call(method, request, timeout_s=self.timeout_s, is_read=True)

    async def _change(
        self, method: UnaryMethod[_Request, _Response], request: _Request, *, is_idempotent: bool = False
    ) -> _Response:
        """Return the response to a request that changes something."""
        return await self._transport().call(
            method, request, timeout_s=self.timeout_s, is_read=False, is_idempotent=is_idempotent
        )

    async def _pages(self, method: Callable[[Connection], Any], request: Any) -> AsyncIterator[Any]:
        """Yield the responses to a request whose result comes in pages."""
        while True:
            answer = await self._read(method(self._services), request)
            yield answer
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token
