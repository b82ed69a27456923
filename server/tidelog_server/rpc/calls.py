"""Registers methods and supervises calls: whatever a method raises becomes one status, with its detail.

Handlers are registered by hand rather than through the generated base classes, because the hot methods take and
return bytes: a batch is never parsed into a message. The table of methods comes from the service descriptor, so a
method without a handler fails at the start.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc
import grpc.aio
import structlog
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tidelog_server.core.errors import (
    Effect,
    InnerError,
    RateLimitRejectedError,
    ShutdownError,
    TidelogServerError,
)
from tidelog_server.core.errors.access import CredentialsExpiredError
from tidelog_server.core.limits import MAX_DENSE_REQUEST_BYTES, Limits
from tidelog_server.rpc import status
from tidelog_server.rpc.context import Context, Method, ended_with, shown_of
from tidelog_server.rpc.open_streams import OpenStreams, caller_of
from tidelog_server.rpc.requests import check_size, parsed_in_steps
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.grpc_labels import GRPC_CODES, grpc_type
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.security.access import Access
from tidelog_server.security.guard import Guard
from tidelog_server.security.permissions import ROWS, Row
from tidelog_server.security.quotas import PrincipalQuota

if TYPE_CHECKING:
    from tidelog_server.rpc.tracing import CallTracer

# Delay of a refusal that has a retry delay, so that a client that ignores it is slowed down.
REFUSAL_DELAY_S: Final = 0.05

_log = structlog.get_logger()
_WORDS: Final = re.compile("(?<!^)(?=[A-Z])")

Begin = Callable[[Any, "Access | None", Row], Awaitable[Message]]
"""Makes the request of a call whose caller is known; there is no access where everybody may do everything."""
_Request = TypeVar("_Request")


class OtherAnswerError(Exception):
    """A call that did not arrive by gRPC has another answer than a status. Raised by ``Begin``."""


def methods_of(service: ServiceDescriptor, parts: Iterable[object]) -> dict[str, Method]:
    """Return the handler of each method of a service, which has the method's name in snake case.

    Each is in exactly one of ``parts``.
    """
    methods: dict[str, Method] = {}
    for name in service.methods_by_name:
        attribute = _WORDS.sub("_", name).lower()
        found = [getattr(part, attribute) for part in parts if hasattr(part, attribute)]
        assert len(found) == 1, f"{service.name}.{name} has {len(found)} handlers"
        methods[name] = found[0]
    return methods


class CallSupervisor:
    """Wraps handlers so that errors become statuses and defects are logged, not told."""

    def __init__(
        self,
        metrics: Metrics,
        clock: Clock,
        limits: Limits,
        guard: Guard | None = None,
        tracer: "CallTracer | None" = None,
    ) -> None:
        """Supervise calls.

        Args:
            metrics: Count calls and errors.
            clock: Times them.
            limits: Bound the number of streams.
            guard: Lets calls in; None where everybody may do everything.
            tracer: Makes spans; None for none.
        """
        self._metrics = metrics
        self._clock = clock
        self._guard = guard
        # What a stop looks at: how many calls have begun; how many of those with one answer still wait for it, and when
        # the last one got it, by the event loop's clock.
        self.begun = 0
        self.unanswered = 0
        self.last_answered_s = float("-inf")
        self._tracer = tracer
        self._streams = OpenStreams(limits, metrics)

    def handlers(self, service: ServiceDescriptor, methods: Mapping[str, Callable[..., Any]]) -> grpc.GenericRpcHandler:
        """Return the handlers of ``service``, from what ``methods_of`` returned.

        A unary method takes (request, context) and returns the response, as a message or as bytes. A server stream
        takes the same and writes bytes. A bidirectional stream takes an iterator of request bytes, and writes bytes.
        """
        table = {name: self._handler(service.methods_by_name[name], method) for name, method in methods.items()}
        return grpc.method_handlers_generic_handler(service.full_name, table)

    def _handler(self, descriptor: MethodDescriptor, method: Callable[..., Any]) -> "grpc.RpcMethodHandler[Any, Any]":
        assert not descriptor.client_streaming or descriptor.server_streaming
        call = self._call(descriptor, method, None if descriptor.client_streaming else _parser(descriptor))
        if descriptor.client_streaming:
            return grpc.stream_stream_rpc_method_handler(call)
        if descriptor.server_streaming:
            return grpc.unary_stream_rpc_method_handler(call)
        return grpc.unary_unary_rpc_method_handler(call, response_serializer=_serialized)

    def local(self, descriptor: MethodDescriptor, method: Method, begin: Begin) -> Method:
        """Return what makes a call of ``method`` that did not arrive by gRPC, behind the same checks.

        ``begin`` makes the request of what is passed to the call, which has a length in bytes, after the caller is
        known. What aborts the context must not be a TidelogServerError.
        """
        assert not descriptor.client_streaming
        return self._call(descriptor, method, begin)

    def _call(self, descriptor: MethodDescriptor, method: Method, begin: Begin | None) -> Method:
        """Return a method with everything around it: metrics, the guard, limits and errors."""
        service, name, is_stream = descriptor.containing_service.full_name, descriptor.name, descriptor.server_streaming
        if is_stream:
            method = self._limited(method)
        supervised = self._supervised(name, self._guarded(f"{service}/{name}", method, begin))
        call = self._metered(descriptor, supervised)
        return call if self._tracer is None else self._tracer.traced(service, name, call)

    def external(self, name: str, handlers: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]") -> grpc.GenericRpcHandler:
        """Return the handlers of a service that others wrote, behind the same checks."""
        guarded = {method: self._external(f"{name}/{method}", handler) for method, handler in handlers.items()}
        return grpc.method_handlers_generic_handler(name, guarded)

    def _external(
        self, full_name: str, handler: "grpc.RpcMethodHandler[Any, Any]"
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        if self._guard is None or ROWS[full_name].is_public:
            return handler
        # Of those with credentials there is reflection only: a stream both ways.
        inner: Any = handler.stream_stream

        async def call(requests: Any, context: Context) -> None:
            async for response in inner(requests, context):
                await context.write(response)

        guarded = self._guarded(full_name, call, None, Message.ByteSize)
        return grpc.stream_stream_rpc_method_handler(
            self._supervised(full_name.rpartition("/")[2], guarded),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _guarded(
        self, full_name: str, method: Method, begin: Begin | None, size_of: Callable[[Any], int] = len
    ) -> Method:
        """Return what lets a call in, and only then begins its request, and makes it.

        ``size_of`` returns the size of a request of a stream.
        """
        guard, row = self._guard, ROWS[full_name]
        if guard is None or row.is_public:
            return method if begin is None else _begun(method, begin, row)

        async def call(request: Any, context: Context) -> Any:
            size_bytes = 0 if begin is None else len(request)
            access = guard.enter(full_name, shown_of(context), size_bytes)
            with guard.watched(access):
                try:
                    await access.quota.turn(row.cost, size_bytes)
                    if begin is None:
                        await guard.admit(access, row, None)
                        return await method(_charged(request, access.quota, size_of), context)
                    message = await begin(request, access, row)
                    await guard.admit(access, row, message)
                    return await method(message, context)
                except RateLimitRejectedError:
                    access.quota.note_refused()
                    raise
                except (asyncio.CancelledError, BaseExceptionGroup) as error:
                    # A group where tasks of the call met its end in ways of their own.
                    if not access.is_ended:
                        raise
                    raise _expired(row) from error

        return call

    def _supervised(self, name: str, method: Method) -> Method:
        async def call(request: Any, context: Context) -> Any:
            self.begun += 1
            try:
                return await method(request, context)
            except TidelogServerError as error:
                await self._abort(name, error, context)
            except OtherAnswerError:
                context.set_code(grpc.StatusCode.INVALID_ARGUMENT)
                raise
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

    def _limited(self, method: Method) -> Method:
        """Return what makes a stream, unless too many are open. Behind the guard: the caller is known there."""

        async def call(request: Any, context: Context) -> Any:
            with self._streams.one_more(caller_of(context)):
                return await method(request, context)

        return call

    def _metered(self, method: MethodDescriptor, call: Method) -> Method:
        """Return ``call`` with its metrics. Streams are not timed: their duration is the client's choice."""
        metrics, monotonic_s, is_stream = self._metrics, self._clock.monotonic_s, method.server_streaming
        kind = grpc_type(client_streaming=method.client_streaming, server_streaming=is_stream)
        labels = (kind, method.containing_service.full_name, method.name)
        open_calls = metrics.calls_open.labels(method.name)
        started = metrics.calls_started.labels(*labels)
        handled_ok = metrics.calls_handled.labels(*labels, GRPC_CODES["OK"])
        seconds = None if is_stream else metrics.call_seconds.labels(*labels)

        async def metered(request: Any, context: Context) -> Any:
            begin_s = monotonic_s()
            open_calls.inc()
            started.inc()
            self.unanswered += not is_stream
            try:
                response = await call(request, context)
            except BaseException as error:
                metrics.calls_handled.labels(*labels, GRPC_CODES[ended_with(error, context).name]).inc()
                raise
            else:
                handled_ok.inc()
                return response
            finally:
                open_calls.dec()
                if seconds is not None:
                    self.unanswered -= 1
                    self.last_answered_s = asyncio.get_running_loop().time()
                    seconds.observe(monotonic_s() - begin_s)

        return metered

    async def _abort(self, name: str, error: TidelogServerError, context: Context) -> None:
        self._metrics.rpc_errors.labels(name, status.reason_of(error)).inc()
        if isinstance(error, RateLimitRejectedError) and "retry_after_ms" in error.values:
            await asyncio.sleep(REFUSAL_DELAY_S)
        await context.abort(status.code_of(error), status.text_of(error), status.trailing_metadata_of(error))


def _serialized(response: Message | bytes) -> bytes:
    return response if isinstance(response, bytes) else response.SerializeToString()


def _parser(descriptor: MethodDescriptor) -> Begin:
    # Why here and not as gRPC's deserializer: gRPC would answer UNKNOWN with the text of the exception.
    request_class, name = GetMessageClass(descriptor.input_type), descriptor.name

    async def parse(encoded: bytes, access: Access | None, row: Row) -> Message:
        if not row.large:
            check_size(encoded, row.max_request_bytes)
        elif len(encoded) > MAX_DENSE_REQUEST_BYTES and access is not None:
            access.require_somewhere(*row.large)
        return await parsed_in_steps(request_class, encoded, name)

    return parse


def _begun(method: Method, begin: Begin, row: Row) -> Method:
    async def call(request: Any, context: Context) -> Any:
        return await method(await begin(request, None, row), context)

    return call


async def _charged(
    requests: AsyncIterator[_Request], quota: PrincipalQuota, size_of: Callable[[_Request], int]
) -> AsyncIterator[_Request]:
    """Yield the requests of a stream, not faster than the quota of its principal allows."""
    async for request in requests:
        await quota.received(size_of(request))
        yield request


def _expired(row: Row) -> CredentialsExpiredError:
    """Return why a call was ended whose credentials ran out."""
    task = asyncio.current_task()
    assert task is not None
    # The cancellation was meant for the method, not for what follows.
    if task.cancelling():
        task.uncancel()
    error = CredentialsExpiredError()
    if row.is_read:
        error.effect = Effect.NONE
    return error


def _is_callers_end(group: BaseExceptionGroup[BaseException]) -> bool:
    """Return whether the tasks of a call failed because its client has ended it, and for nothing else."""
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
