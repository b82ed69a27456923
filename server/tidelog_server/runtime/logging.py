"""Structured logs: event name first, then keys; text on a terminal, JSON lines elsewhere, always on stderr."""

import logging
import sys
from typing import Final, Literal

import structlog

# Without local variables: they hold what clients wrote.
_TRACEBACKS: Final = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)

Format = Literal["auto", "console", "json"]


def configure_logging(level: str, log_format: Format) -> None:
    """Set up logging for the process. Called once, before anything logs."""
    as_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    # A renderer that escapes: one event is one line, whatever a client put into a name.
    renderer = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            *([_TRACEBACKS] if as_json else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
