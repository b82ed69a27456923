"""OpenTelemetry spans for operations of the client."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidelog.tracing import _conventions
from tidelog.tracing._messages import links_of
from tidelog.transport.tracing import Metadata, Operation
from tidelog.wire.batch import Batch

_PROPAGATOR = TraceContextTextMapPropagator()


class OtelSpan:
    """See ``tidelog.transport.tracing.Span``."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span
        self._messages = 0

    @property
    def metadata(self) -> Metadata:
        """See Span."""
        return _metadata_of(trace.set_span_in_context(self._span))

    def note(self, *, messages: int = 0, first_tick: int | None = None) -> None:
        """See Span."""
        if messages:
            self._messages += messages
            self._span.set_attribute(_conventions.MESSAGES, self._messages)
        if first_tick is not None:
            self._span.set_attribute(_conventions.FIRST_TICK, first_tick)

    def end(self, error: BaseException | None = None) -> None:
        """See Span."""
        if error is not None:
            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
        self._span.end()


class OtelHooks:
    """See ``tidelog.transport.tracing.Hooks``."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def within(
        self, operation: Operation, destinations: Sequence[str], *, messages: int = 0, group: str = ""
    ) -> Iterator[OtelSpan]:
        """See Hooks."""
        span = self._start(operation, destinations, messages=messages, group=group)
        handle = OtelSpan(span)
        with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
            try:
                yield handle
            except BaseException as error:
                handle.end(error)
                raise
        handle.end()

    def begin(self, operation: Operation, destinations: Sequence[str]) -> OtelSpan:
        """See Hooks."""
        return OtelSpan(self._start(operation, destinations))

    def consumed(self, batch: Batch, group: str) -> None:
        """See Hooks. Why links and not a parent: a batch has messages of many traces, and is consumed independently."""
        span = self._start(Operation.CONSUME, [batch.vchannel], messages=len(batch), group=group, links=links_of(batch))
        span.set_attribute(_conventions.FIRST_TICK, batch.ticks[0])
        span.end()

    def metadata(self) -> Metadata:
        """See Hooks."""
        return _metadata_of(otel_context.get_current())

    def _start(
        self,
        operation: Operation,
        destinations: Sequence[str],
        *,
        messages: int = 0,
        group: str = "",
        links: Sequence[trace.Link] = (),
    ) -> trace.Span:
        return self._tracer.start_span(
            _conventions.span_name(operation, destinations),
            kind=_conventions.span_kind(operation),
            attributes=_conventions.attributes(operation, destinations, messages=messages, group=group),
            links=links,
        )


def _metadata_of(context: otel_context.Context) -> Metadata:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context)
    return tuple(carrier.items())
