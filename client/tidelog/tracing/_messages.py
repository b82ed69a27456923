"""Trace contexts in messages, on request: a message stays in the log longer than any call lasts."""

from dataclasses import replace
from typing import Final

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidelog.message import Message
from tidelog.tracing._conventions import PROPERTY
from tidelog.wire.batch import Batch

_PROPAGATOR: Final = TraceContextTextMapPropagator()
# Maximum links per span: the span of a batch of thousands of messages must not have megabytes.
_MAX_LINKS: Final = 32


def inject(message: bytes | Message) -> Message:
    """Return the message with the current trace context in its property ``traceparent``.

    The property adds about 70 bytes to the stored message. Without a current span, no property is added.
    """
    full = message if isinstance(message, Message) else Message(message)
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    if PROPERTY not in carrier:
        return full
    return replace(full, properties={**full.properties, PROPERTY: carrier[PROPERTY]})


def links_of(batch: Batch) -> list[trace.Link]:
    """Return links to the spans in the messages of ``batch``, without duplicates, at most 32, in message order."""
    if not batch.columns.property_list_offsets:
        return []
    carried = dict.fromkeys(each[PROPERTY] for each in batch.properties if PROPERTY in each)
    contexts = (_context_of(traceparent) for traceparent in list(carried)[:_MAX_LINKS])
    return [trace.Link(context) for context in contexts if context.is_valid]


def _context_of(traceparent: str) -> trace.SpanContext:
    return trace.get_current_span(_PROPAGATOR.extract({PROPERTY: traceparent})).get_span_context()
