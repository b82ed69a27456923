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

# Programs that read JSON lines keep numbers as floats, which are exact up to 2^53; ticks and ids are greater.
_WIDE: Final = ("tick", "watermark", "txn_id", "broadcast_id", "fencing_token")


def wide_as_text(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Return the event with its ticks, ids of transactions and broadcasts, and fencing tokens as texts."""
    for name, value in event.items():
        if name.endswith(_WIDE) and isinstance(value, int):
            event[name] = int.__repr__(value)
    return event


def configure_logging(level: str, log_format: Format) -> None:
    """Set up logging for the process. Called once, before anything logs."""
    as_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    for_json: list[structlog.typing.Processor] = [wide_as_text, _TRACEBACKS]
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
            *(for_json if as_json else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
