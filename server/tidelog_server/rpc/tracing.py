"""Spans of calls, for OpenTelemetry. Imported only where tracing is on, so that nobody else needs its packages."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidelog_server.rpc.call_metrics import code_of

Context = grpc.aio.ServicerContext[Any, Any]
Call = Callable[[Any, Context], Awaitable[Any]]

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_CARRIED: Final = ("traceparent", "tracestate")
# For one try and its repetitions; as long may the end of the server wait for spans that nobody takes.
_EXPORT_WITHIN_S: Final = 3.0
# Streams whose batches have spans. AppendStream answers each request once, in order.
_BATCH_STREAMS: Final = ("AppendStream", "Scan")
# Spans of the batches of one stream: a stream may last for days, and a trace is read by people.
_MAX_BATCH_SPANS: Final = 1_000


class CallTracer:
    """Makes a span of each call that is sampled, and of each batch of a stream that is."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("tidelog_server")

    def traced(self, service: str, name: str, call: Call) -> Call:
        """Return ``call`` within a span, which belongs to the one that the client's metadata name, if any."""
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
        span_name = f"{service}/{name}"

        async def traced_call(request: Any, context: Context) -> Any:
            span = self._tracer.start_span(
                span_name, _parent_of(context), kind=trace.SpanKind.SERVER, attributes=attributes
            )
            if not span.is_recording():
                return await call(request, context)
            batches = _BatchSpans(self._tracer, trace.set_span_in_context(span), context)
            code = grpc.StatusCode.OK
            try:
                if name not in _BATCH_STREAMS:
                    return await call(request, context)
                requests = batches.arriving(request) if hasattr(request, "__aiter__") else request
                return await call(requests, batches)  # type: ignore[arg-type]  # it stands for the context
            except BaseException as error:
                code = code_of(error, context)
                raise
            finally:
                span.set_attribute("rpc.grpc.status_code", code.value[0])
                if code not in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED):
                    span.set_status(trace.Status(trace.StatusCode.ERROR, code.name))
                batches.end()
                span.end()

        return traced_call

    def close(self) -> None:
        """Send what is not sent yet. Blocks, for as long as the exporter's own time."""
        self._provider.shutdown()


class _BatchSpans:
    """Stands for the context of a call that is sampled: what arrives and is written gets spans.

    An append stream answers its requests in order, so a batch's span lasts from its arrival to its answer; what is
    written without a request, as a scan's pages are, has one for the write.
    """

    def __init__(self, tracer: trace.Tracer, parent: Any, context: Context) -> None:
        self._tracer = tracer
        self._parent = parent
        self._context = context
        self._left = _MAX_BATCH_SPANS
        self._waiting: deque[trace.Span] = deque()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def arriving(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the requests; each begins a span."""
        async for request in requests:
            if span := self._started("batch", len(request)):
                self._waiting.append(span)
            yield request

    async def write(self, response: bytes) -> None:
        """Write a response; it ends the span of its request, or has one of its own."""
        span = self._waiting.popleft() if self._waiting else self._started("page", len(response))
        try:
            await self._context.write(response)
        finally:
            if span is not None:
                span.end()

    def end(self) -> None:
        """End what was not answered."""
        while self._waiting:
            self._waiting.popleft().end()

    def _started(self, name: str, size_bytes: int) -> trace.Span | None:
        if self._left == 0:
            return None
        self._left -= 1
        return self._tracer.start_span(name, self._parent, attributes={"tidelog.bytes": size_bytes})


def open_tracing(endpoint: str, sample_ratio: float) -> CallTracer:
    """Return a tracer whose spans go to ``endpoint``, by OTLP over HTTP, from a thread of its own.

    What a client has decided to sample is sampled; of other calls ``sample_ratio``. If the receiver is away, spans
    are dropped and the exporter says so in the log; calls do not wait.
    """
    provider = TracerProvider(
        resource=Resource.create({"service.name": "tidelog"}),
        sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
        # The server flushes when it stops; an exit handler would do it again.
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_WITHIN_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return CallTracer(provider)


def _parent_of(context: Context) -> Any:
    """Return what the client's metadata say of its span; where they say nothing, an empty context."""
    carrier = {key: str(value) for key, value in context.invocation_metadata() or () if key in _CARRIED}
    return _PROPAGATOR.extract(carrier, trace.set_span_in_context(trace.INVALID_SPAN))
