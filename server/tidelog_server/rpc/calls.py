"""Registers methods and supervises calls: whatever a method raises becomes one status, with its detail.

Handlers are registered by hand rather than through the generated base classes, because the hot methods take and
return bytes: a batch is never parsed into a message. The table of methods comes from the service descriptor, so a
method without a handler fails at the start.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import grpc
import grpc.aio
import structlog
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from tidelog_server.core.errors import InnerError, MalformedRequestError, ShutdownError, TidelogServerError
from tidelog_server.rpc import status
from tidelog_server.runtime.metrics import Metrics

_log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]
Unary = Callable[[Any, Context], Awaitable[Message]]
ServerStream = Callable[[Any, Context], Awaitable[None]]
BidiStream = Callable[[AsyncIterator[bytes], Context], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Malformed:
    """Stands for a request that could not be parsed."""


_MALFORMED: Final = Malformed()


class CallSupervisor:
    """Wraps handlers so that errors become statuses and defects are logged, not told."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def handlers(self, service: ServiceDescriptor, methods: Mapping[str, Callable[..., Any]]) -> grpc.GenericRpcHandler:
        """Return the handlers of ``service``; ``methods`` has exactly one for each of its methods.

        A unary method takes (request, context) and returns the response. A server stream takes the same and writes
        bytes. A bidirectional stream takes an iterator of request bytes, and writes bytes.
        """
        assert set(methods) == set(service.methods_by_name)
        table = {name: self._handler(service.methods_by_name[name], method) for name, method in methods.items()}
        return grpc.method_handlers_generic_handler(service.full_name, table)

    def _handler(self, descriptor: MethodDescriptor, method: Callable[..., Any]) -> "grpc.RpcMethodHandler[Any, Any]":
        parse = _parser(descriptor)
        if descriptor.client_streaming:
            assert descriptor.server_streaming
            return grpc.stream_stream_rpc_method_handler(self._supervised(descriptor.name, method))
        if descriptor.server_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._supervised(descriptor.name, method), request_deserializer=parse
            )
        return grpc.unary_unary_rpc_method_handler(
            self._supervised(descriptor.name, method),
            request_deserializer=parse,
            response_serializer=lambda response: response.SerializeToString(),
        )

    def _supervised(self, name: str, method: Callable[..., Any]) -> Callable[[Any, Context], Awaitable[Any]]:
        async def call(request: Any, context: Context) -> Any:
            if request is _MALFORMED:
                return await self._abort(name, MalformedRequestError(name), context)
            try:
                return await method(request, context)
            except TidelogServerError as error:
                await self._abort(name, error, context)
            except grpc.aio.InternalError as error:
                # A write met a call that its client has ended; gRPC would have cancelled it a moment later.
                raise asyncio.CancelledError from error
            except BaseExceptionGroup as group:
                if _is_callers_end(group):
                    raise asyncio.CancelledError from group
                await self._abort(name, _error_of(name, group), context)
            except (asyncio.CancelledError, grpc.aio.AbortError):
                raise
            except Exception as error:  # noqa: BLE001 - a defect must not reach the caller as it is
                await self._abort(name, _defect(name, error), context)
            return None

        return call

    async def _abort(self, name: str, error: TidelogServerError, context: Context) -> None:
        self._metrics.rpc_errors.labels(name, status.reason_of(error)).inc()
        await context.abort(status.code_of(error), status.text_of(error), status.trailing_metadata_of(error))


def _parser(descriptor: MethodDescriptor) -> Callable[[bytes], Message | Malformed]:
    request_class = GetMessageClass(descriptor.input_type)

    def parse(encoded: bytes) -> Message | Malformed:
        try:
            return request_class.FromString(encoded)
        except DecodeError:
            # Why not raise: gRPC would answer UNKNOWN with the text of the exception.
            return _MALFORMED

    return parse


def _is_callers_end(group: BaseExceptionGroup[BaseException]) -> bool:
    """Tell whether the tasks of a call failed because its client has ended it, and for nothing else."""
    ended, _ = group.split(grpc.aio.InternalError)
    _, rest = group.split((grpc.aio.InternalError, asyncio.CancelledError))
    return ended is not None and rest is None


def _error_of(name: str, group: BaseExceptionGroup[BaseException]) -> TidelogServerError:
    """Return the one error to answer with when several tasks of a call failed."""
    domain, _ = group.split(TidelogServerError)
    if domain is not None:
        first: BaseException = domain
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        assert isinstance(first, TidelogServerError)
        return first
    cancelled, _ = group.split(asyncio.CancelledError)
    return ShutdownError() if cancelled is not None else _defect(name, group)


def _defect(name: str, error: BaseException) -> InnerError:
    _log.error("defect", method=name, exc_info=error)
    return InnerError()
