"""Names of spans, metrics and attributes, after OpenTelemetry's conventions. Other modules do not depend on them.

Source: semantic conventions for messaging, which are still in development; only this module changes with them.
Attributes without a conventional name begin with ``tidelog.``.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple

from opentelemetry.trace import SpanKind
from opentelemetry.util.types import AttributeValue

from tidelog.transport.tracing import Operation

PROPERTY: Final = "traceparent"
"""Key of the message property that carries a trace context."""

OPERATION_DURATION: Final = "messaging.client.operation.duration"
SENT_MESSAGES: Final = "messaging.client.sent.messages"
CONSUMED_MESSAGES: Final = "messaging.client.consumed.messages"
PROCESS_DURATION: Final = "messaging.process.duration"
DURATION_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bounds that the conventions give for both durations."""
ERROR_TYPE: Final = "error.type"

_RECEIVING: Final = (Operation.SCAN, Operation.CONSUME)
MESSAGES: Final = "messaging.batch.message_count"
FIRST_TICK: Final = "tidelog.first_tick"
# Maximum names listed in a span: people read spans, and the first of a thousand vchannels suffice.
_MAX_NAMES: Final = 16


class Target(NamedTuple):
    """What an operation is on: vchannels, such as ``orders/0``, or channels; the address of the server; the group."""

    operation: Operation
    destinations: tuple[str, ...]
    endpoint: str
    group: str = ""


def span_kind(operation: Operation) -> SpanKind:
    """Return the kind of an operation's spans."""
    return SpanKind.CONSUMER if operation in _RECEIVING else SpanKind.PRODUCER


def span_name(target: Target) -> str:
    """Return the name of a span: the operation, followed by the channel if there is exactly one."""
    channels = _channels_of(target)
    return f"{target.operation.value} {channels.pop()}" if len(channels) == 1 else target.operation.value


def attributes(target: Target, messages: int = 0) -> dict[str, AttributeValue]:
    """Return a span's attributes."""
    found = dict(measured_by(target))
    if len(target.destinations) > 1:
        found["tidelog.vchannels"] = list(target.destinations[:_MAX_NAMES])
        found["tidelog.vchannel_count"] = len(target.destinations)
    if messages:
        found[MESSAGES] = messages
    return found


@lru_cache(maxsize=1_024)
def measured_by(target: Target, error_type: str = "") -> Mapping[str, AttributeValue]:
    """Return the attributes of a measurement: few enough that each set of values may be a series of its own."""
    found: dict[str, AttributeValue] = {
        "messaging.system": "tidelog",
        "messaging.operation.name": target.operation.value,
        "messaging.operation.type": _type_of(target.operation),
    }
    channels, destinations = _channels_of(target), target.destinations
    if len(channels) == 1:
        found["messaging.destination.name"] = channels.pop()
    if len(destinations) == 1 and "/" in destinations[0]:
        found["messaging.destination.partition.id"] = destinations[0].partition("/")[2]
    if target.group:
        found["messaging.consumer.group.name"] = target.group
    if error_type:
        found[ERROR_TYPE] = error_type
    return MappingProxyType({**found, **_server(target.endpoint)})


def _channels_of(target: Target) -> set[str]:
    return {name.partition("/")[0] for name in target.destinations}


def _type_of(operation: Operation) -> str:
    if operation is Operation.PROCESS:
        return "process"
    return "receive" if operation in _RECEIVING else "send"


def _server(endpoint: str) -> Mapping[str, AttributeValue]:
    """Return the address, and the port if ``endpoint`` has one: ``host:port``, or another gRPC target."""
    host, _, port = endpoint.rpartition(":")
    if host and port.isdecimal():
        return {"server.address": host.strip("[]"), "server.port": int(port)}
    return {"server.address": endpoint} if endpoint else {}
