"""Traces of what a client does, with OpenTelemetry: ``pip install "tidelog[otel]"``, then ``tidelog.tracing.enable()``.

Until ``enable`` is called nothing of OpenTelemetry is imported, and nothing is spent on traces. See deploy/TRACING.md.
"""

from opentelemetry.trace import TracerProvider, get_tracer_provider

from tidelog import _tracing
from tidelog.tracing._hooks import OtelHooks
from tidelog.tracing._messages import inject, links_of

__all__ = ["disable", "enable", "inject", "links_of"]


def enable(tracer_provider: TracerProvider | None = None) -> None:
    """Make spans for everything that clients of this process do from now on.

    Args:
        tracer_provider: Where they go; None for the one of the process.
    """
    provider = tracer_provider or get_tracer_provider()
    _tracing.hooks = OtelHooks(provider.get_tracer("tidelog"))


def disable() -> None:
    """Make no more spans; those that are under way end as they would have."""
    _tracing.hooks = None
