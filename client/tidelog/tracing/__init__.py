"""OpenTelemetry traces and metrics of clients: ``pip install ".[otel]"`` in a clone, then ``tidelog.tracing.enable()``.

Until this module is imported and ``enable`` or ``enable_metrics`` is called, OpenTelemetry is not imported and costs
nothing. ``opentelemetry-instrument`` calls both. See docs/operate/tracing.md.
"""

from opentelemetry.metrics import MeterProvider, get_meter_provider
from opentelemetry.trace import NoOpTracer, TracerProvider, get_tracer_provider

from tidelog.tracing._hooks import OtelHooks
from tidelog.tracing._messages import inject, links_of
from tidelog.tracing._metrics import Messaging, observe
from tidelog.transport import tracing as _tracing

__all__ = ["disable", "enable", "enable_metrics", "inject", "links_of"]


def enable(tracer_provider: TracerProvider | None = None) -> None:
    """Create spans for all later operations of this process's clients.

    Args:
        tracer_provider: Provider of the tracer; None for the global provider of the process.
    """
    provider = tracer_provider or get_tracer_provider()
    _tracing.hooks = OtelHooks(provider.get_tracer("tidelog"), _messaging())


def enable_metrics(meter_provider: MeterProvider | None = None) -> None:
    """Measure all later operations of this process's clients, and export the figures of open objects.

    Call it once for a provider.

    Args:
        meter_provider: Provider of the meter; None for the global provider of the process.
    """
    meter = (meter_provider or get_meter_provider()).get_meter("tidelog")
    observe(meter)
    hooks = _tracing.hooks
    _tracing.hooks = OtelHooks(hooks.tracer if isinstance(hooks, OtelHooks) else NoOpTracer(), Messaging(meter))


def disable() -> None:
    """Stop creating spans and measuring operations. Spans in progress end normally."""
    _tracing.hooks = None


def _messaging() -> Messaging | None:
    hooks = _tracing.hooks
    return hooks.messaging if isinstance(hooks, OtelHooks) else None
