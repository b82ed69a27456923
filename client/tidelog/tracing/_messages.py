"""Contexts that travel in messages, where the user asks for it: a log keeps a message longer than any call lasts."""

from dataclasses import replace
from typing import Final

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidelog._batch import Batch
from tidelog._message import Message
from tidelog.tracing._conventions import PROPERTY

_PROPAGATOR: Final = TraceContextTextMapPropagator()
# A span of a batch of thousands of messages shall not be megabytes.
_MAX_LINKS: Final = 32


def inject(message: bytes | Message) -> Message:
    """Return the message with the present context in its property ``traceparent``; without a span, as it is.

    It makes the message about 70 bytes longer, for good.
    """
    full = message if isinstance(message, Message) else Message(message)
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    if PROPERTY not in carrier:
        return full
    return replace(full, properties={**full.properties, PROPERTY: carrier[PROPERTY]})


def links_of(batch: Batch) -> list[trace.Link]:
    """Return links to the spans that the batch's messages carry, each once and 32 at most, in the order of messages."""
    if not batch.columns.property_list_offsets:
        return []
    carried = dict.fromkeys(each[PROPERTY] for each in batch.properties if PROPERTY in each)
    contexts = (_context_of(traceparent) for traceparent in list(carried)[:_MAX_LINKS])
    return [trace.Link(context) for context in contexts if context.is_valid]


def _context_of(traceparent: str) -> trace.SpanContext:
    return trace.get_current_span(_PROPAGATOR.extract({PROPERTY: traceparent})).get_span_context()
