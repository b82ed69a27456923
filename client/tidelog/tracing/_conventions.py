"""Names of spans and attributes, after OpenTelemetry's conventions. Other modules do not depend on the conventions.

Source: semantic conventions for messaging, which are still in development; only this module changes with them.
Attributes without a conventional name begin with ``tidelog.``.
"""

from collections.abc import Sequence
from typing import Final

from opentelemetry.trace import SpanKind
from opentelemetry.util.types import AttributeValue

from tidelog.transport.tracing import Operation

PROPERTY: Final = "traceparent"
"""Key of the message property that carries a trace context."""

_RECEIVING: Final = (Operation.SCAN, Operation.CONSUME)
MESSAGES: Final = "messaging.batch.message_count"
FIRST_TICK: Final = "tidelog.first_tick"
# Maximum names listed in a span: people read spans, and the first of a thousand vchannels suffice.
_MAX_NAMES: Final = 16


def span_kind(operation: Operation) -> SpanKind:
    """Return the kind of an operation's spans."""
    return SpanKind.CONSUMER if operation in _RECEIVING else SpanKind.PRODUCER


def span_name(operation: Operation, destinations: Sequence[str]) -> str:
    """Return the name of a span: the operation, followed by the channel if there is exactly one."""
    channels = {name.partition("/")[0] for name in destinations}
    return f"{operation.value} {channels.pop()}" if len(channels) == 1 else operation.value


def attributes(
    operation: Operation, destinations: Sequence[str], *, messages: int = 0, group: str = ""
) -> dict[str, AttributeValue]:
    """Return a span's attributes for an operation on ``destinations``: vchannels, such as ``orders/0``, or channels."""
    found: dict[str, AttributeValue] = {
        "messaging.system": "tidelog",
        "messaging.operation.name": operation.value,
        "messaging.operation.type": "receive" if operation in _RECEIVING else "send",
    }
    if len(destinations) == 1:
        channel, _, index = destinations[0].partition("/")
        found["messaging.destination.name"] = channel
        if index:
            found["messaging.destination.partition.id"] = index
    elif destinations:
        found["tidelog.vchannels"] = list(destinations[:_MAX_NAMES])
        found["tidelog.vchannel_count"] = len(destinations)
    if messages:
        found[MESSAGES] = messages
    if group:
        found["messaging.consumer.group.name"] = group
    return found
