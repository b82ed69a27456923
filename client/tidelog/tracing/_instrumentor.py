"""What ``opentelemetry-instrument`` switches on; it finds it through the entry point ``opentelemetry_instrumentor``."""

from typing import Any

from tidelog.tracing import disable, enable, enable_metrics


class Instrumentor:
    """Traces and measures all clients of the process.

    Without the base class of opentelemetry-instrumentation, so that the client need not install it.
    """

    def instrument(self, **options: Any) -> None:
        """Enable traces and metrics.

        Args:
            options: ``tracer_provider`` and ``meter_provider``, by default those that the process has set; others,
                which are for all instrumentors, have no meaning here.
        """
        enable(options.get("tracer_provider"))
        enable_metrics(options.get("meter_provider"))

    def uninstrument(self, **_options: Any) -> None:
        """Disable them."""
        disable()
