"""OpenTelemetry spans of calls. Imported only if tracing is on, because its packages are optional."""

from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidelog_server.rpc.context import TRACE_KEYS, Context, Method, ended_with

_PROPAGATOR: Final = TraceContextTextMapPropagator()
# Time for an export and its retries; also the maximum delay of a shutdown if no receiver accepts the spans.
_EXPORT_WITHIN_S: Final = 3.0
# Streams whose batches have spans. AppendStream answers each message once, in order.
_BATCH_STREAMS: Final = ("AppendStream", "Scan")
# Maximum batch spans per stream: a stream may last for days, and people must be able to read its trace.
_MAX_BATCH_SPANS: Final = 1_000


class CallTracer:
    """Creates a span for each sampled call, and for each batch of a sampled stream."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("tidelog_server")

    def traced(self, service: str, name: str, call: Method) -> Method:
        """Return ``call`` wrapped in a span, whose parent is the span in the client's metadata, if any."""
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
                code = ended_with(error, context)
                raise
            finally:
                span.set_attribute("rpc.grpc.status_code", code.value[0])
                if code not in (grpc.StatusCode.OK, grpc.StatusCode.CANCELLED):
                    span.set_status(trace.Status(trace.StatusCode.ERROR, code.name))
                batches.end()
                span.end()

        return traced_call

    def close(self) -> None:
        """Send the remaining spans. Blocks up to the exporter's timeout, _EXPORT_WITHIN_S."""
        self._provider.shutdown()


class _BatchSpans:
    """Wraps the context of a sampled call to create spans for requests and responses.

    An append stream answers its messages in order, so the span of a batch, or of several that share a message, lasts
    from its arrival to its answer. A response without a request, such as a page of a scan, has a span for its write.
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
        """Yield the requests, and begin a span for each."""
        async for request in requests:
            if span := self._started("batch", len(request)):
                self._waiting.append(span)
            yield request

    async def write(self, response: bytes) -> None:
        """Write a response. It ends the span of its request, or has its own span."""
        span = self._waiting.popleft() if self._waiting else self._started("page", len(response))
        try:
            await self._context.write(response)
        finally:
            if span is not None:
                span.end()

    def end(self) -> None:
        """End the spans of unanswered requests."""
        while self._waiting:
            self._waiting.popleft().end()

    def _started(self, name: str, size_bytes: int) -> trace.Span | None:
        if self._left == 0:
            return None
        self._left -= 1
        return self._tracer.start_span(name, self._parent, attributes={"tidelog.bytes": size_bytes})


def open_tracing(endpoint: str, sample_ratio: float) -> CallTracer:
    """Return a tracer that sends spans to ``endpoint`` by OTLP over HTTP, on its own thread.

    Calls that the client samples are sampled, and a fraction ``sample_ratio`` of all others. If the receiver is down,
    spans are dropped and the exporter logs it; calls do not wait.
    """
    provider = TracerProvider(
        resource=Resource.create({"service.name": "tidelog"}),
        sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
        # The server flushes when it stops; an exit handler would flush again.
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_WITHIN_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return CallTracer(provider)


def _parent_of(context: Context) -> Any:
    """Return the context of the client's span in its metadata; an empty context if there is no span."""
    carrier = {key: str(value) for key, value in context.invocation_metadata() or () if key in TRACE_KEYS}
    return _PROPAGATOR.extract(carrier, trace.set_span_in_context(trace.INVALID_SPAN))
