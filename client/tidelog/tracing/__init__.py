"""OpenTelemetry traces and metrics of clients: ``pip install ".[otel]"`` in a clone, then ``tidelog.tracing.enable()``.

Until this module is imported and ``enable`` is called, OpenTelemetry is not imported and tracing costs nothing. See
docs/operate/tracing.md.
"""

from opentelemetry.metrics import MeterProvider, get_meter_provider
from opentelemetry.trace import TracerProvider, get_tracer_provider

from tidelog.tracing._hooks import OtelHooks
from tidelog.tracing._messages import inject, links_of
from tidelog.tracing._metrics import observe
from tidelog.transport import tracing as _tracing

__all__ = ["disable", "enable", "enable_metrics", "inject", "links_of"]


def enable(tracer_provider: TracerProvider | None = None) -> None:
    """Create spans for all later operations of this process's clients.

    Args:
        tracer_provider: Provider of the tracer; None for the global provider of the process.
    """
    provider = tracer_provider or get_tracer_provider()
    _tracing.hooks = OtelHooks(provider.get_tracer("tidelog"))


def enable_metrics(meter_provider: MeterProvider | None = None) -> None:
    """Export the figures of this process's clients. Call it once for a provider.

    Args:
        meter_provider: Provider of the meter; None for the global provider of the process.
    """
    observe((meter_provider or get_meter_provider()).get_meter("tidelog"))


def disable() -> None:
    """Stop creating spans. Spans in progress end normally."""
    _tracing.hooks = None
