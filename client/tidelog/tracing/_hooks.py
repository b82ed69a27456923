"""OpenTelemetry spans and measurements for operations of the client."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidelog.tracing import _conventions
from tidelog.tracing._conventions import Target
from tidelog.tracing._messages import links_of
from tidelog.tracing._metrics import Messaging
from tidelog.transport.tracing import Metadata, Operation
from tidelog.wire.batch import Batch

_PROPAGATOR = TraceContextTextMapPropagator()
_NOTHING: Final = nullcontext()


class OtelSpan:
    """See ``tidelog.transport.tracing.Span``; ``span`` is that of OpenTelemetry."""

    def __init__(self, span: trace.Span, on_messages: Callable[[int], None] | None = None) -> None:
        self.span = span
        self._messages = 0
        self._on_messages = on_messages

    @property
    def metadata(self) -> Metadata:
        """See Span."""
        return _metadata_of(trace.set_span_in_context(self.span))

    def note(self, *, messages: int = 0, first_tick: int | None = None) -> None:
        """See Span."""
        if messages:
            self._messages += messages
            self.span.set_attribute(_conventions.MESSAGES, self._messages)
            if self._on_messages is not None:
                self._on_messages(messages)
        if first_tick is not None:
            self.span.set_attribute(_conventions.FIRST_TICK, first_tick)

    def end(self, error: BaseException | None = None) -> None:
        """See Span."""
        if error is not None:
            self.span.set_attribute(_conventions.ERROR_TYPE, type(error).__name__)
            self.span.set_status(trace.Status(trace.StatusCode.ERROR, str(error)))
        self.span.end()


class OtelHooks:
    """See ``tidelog.transport.tracing.Hooks``.

    Attributes:
        tracer: Creates the spans; one that does nothing if traces are not wanted.
        messaging: Metrics; None if they are not wanted.
    """

    def __init__(self, tracer: trace.Tracer, messaging: Messaging | None = None) -> None:
        self.tracer = tracer
        self.messaging = messaging

    @contextmanager
    def within(
        self, operation: Operation, destinations: Sequence[str], endpoint: str, *, messages: int = 0
    ) -> Iterator[OtelSpan]:
        """See Hooks."""
        target = Target(operation, tuple(destinations), endpoint)
        handle = OtelSpan(self._start(target, messages))
        begin_s = time.perf_counter()
        failure: BaseException | None = None
        try:
            with self._current(handle.span):
                yield handle
        except BaseException as error:
            failure = error
            raise
        finally:
            handle.end(failure)
            if self.messaging is not None:
                self.messaging.sent(target, time.perf_counter() - begin_s, messages, failure)

    def begin(self, operation: Operation, destinations: Sequence[str], endpoint: str, *, group: str = "") -> OtelSpan:
        """See Hooks."""
        target = Target(operation, tuple(destinations), endpoint, group)
        on_messages = None if self.messaging is None or group else partial(self.messaging.consumed, target)
        return OtelSpan(self._start(target), on_messages)

    def sends(self, vchannel: str, endpoint: str) -> Callable[[int, BaseException | None], None] | None:
        """See Hooks."""
        if self.messaging is None:
            return None
        target = Target(Operation.APPEND, (vchannel,), endpoint)
        return partial(_answered, self.messaging, target, time.perf_counter())

    def consumed(self, batch: Batch, group: str, endpoint: str) -> None:
        """See Hooks. Why links and not a parent: a batch has messages of many traces, and is consumed independently."""
        target = Target(Operation.CONSUME, (batch.vchannel,), endpoint, group)
        if self.messaging is not None:
            self.messaging.consumed(target, len(batch))
        span = self._start(target, len(batch), batch)
        span.set_attribute(_conventions.FIRST_TICK, batch.ticks[0])
        span.end()

    def processed(
        self, vchannels: Sequence[str], group: str, endpoint: str, duration_s: float, error: BaseException | None
    ) -> None:
        """See Hooks."""
        if self.messaging is not None:
            target = Target(Operation.PROCESS, tuple(sorted(set(vchannels))), endpoint, group)
            self.messaging.processed(target, duration_s, error)

    def metadata(self) -> Metadata:
        """See Hooks."""
        return _metadata_of(otel_context.get_current())

    def _current(self, span: trace.Span) -> AbstractContextManager[object]:
        """Return a context manager in whose block ``span`` is the current one, if it is one."""
        if isinstance(self.tracer, trace.NoOpTracer):
            return _NOTHING
        return trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False)

    def _start(self, target: Target, messages: int = 0, batch: Batch | None = None) -> trace.Span:
        if isinstance(self.tracer, trace.NoOpTracer):
            # It has the current trace context, for the server, and records nothing.
            return self.tracer.start_span(target.operation.value)
        return self.tracer.start_span(
            _conventions.span_name(target),
            kind=_conventions.span_kind(target.operation),
            attributes=_conventions.attributes(target, messages),
            links=[] if batch is None else links_of(batch),
        )


def _answered(messaging: Messaging, target: Target, begin_s: float, messages: int, error: BaseException | None) -> None:
    messaging.sent(target, time.perf_counter() - begin_s, messages, error)


def _metadata_of(context: otel_context.Context) -> Metadata:
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier, context)
    return tuple(carrier.items())
