"""Structured logs on stderr: an event name, then keys; text on a terminal, JSON lines otherwise."""

import logging
import sys
from collections.abc import Callable
from typing import Final, Literal, TextIO, cast

import structlog

from tidelog_cli.output.queued_lines import QueuedLines

# Without local variables: they contain client data.
_TRACEBACKS: Final = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)

Format = Literal["auto", "console", "json"]

# Many JSON parsers read numbers as floats, which are exact up to 2^53; ticks and ids are greater.
_WIDE: Final = ("tick", "watermark", "txn_id", "broadcast_id", "fencing_token")


class LogStream:
    """The file that loggers write to: it queues whole lines for stderr, so that no logger waits for its reader."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.lines = QueuedLines(_tell_dropped)

    def write(self, text: str) -> int:
        """Collect a part of a line."""
        self._parts.append(text)
        return len(text)

    def flush(self) -> None:
        """Queue the line, or drop it."""
        line = "".join(self._parts)
        self._parts.clear()
        self.lines.write(sys.stderr, line)


def _tell_dropped(lines: int) -> None:
    _log.error("log_lines_dropped", dropped_lines=lines)


class _LibraryLogs(logging.Handler):
    """Forwards what libraries log, such as asyncio and gRPC, whose own lines would be written on the event loop."""

    def emit(self, record: logging.LogRecord) -> None:
        _log.log(record.levelno, "library", logger=record.name, message=record.getMessage(), exc_info=record.exc_info)


_log = structlog.get_logger()
_STREAM: Final = LogStream()

flush_log: Final = _STREAM.lines.flush
"""Waits until all lines are written, at most for a number of seconds; returns whether they are."""


def forward_library_logs() -> None:
    """Log the warnings of libraries as lines of this log. Only for a process that is the server's own."""
    logging.getLogger().addHandler(_LibraryLogs())


def write_line(line: str) -> None:
    """Queue a line that is not of the log, behind those that are."""
    _STREAM.lines.write(sys.stderr, line + "\n")


def count_dropped(on_dropped: Callable[[], None]) -> None:
    """Call ``on_dropped`` for each line of the process that is dropped from now on, on any thread."""
    _STREAM.lines.on_dropped = on_dropped


def wide_as_text(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Return the event with ticks, ids of transactions and broadcasts, and fencing tokens as strings."""
    for name, value in event.items():
        if name.endswith(_WIDE) and isinstance(value, int):
            event[name] = int.__repr__(value)
    return event


def configure_logging(level: str, log_format: Format) -> None:
    """Set up logging for the process. Call before the first log message, and again to change the settings."""
    as_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    for_json: list[structlog.typing.Processor] = [wide_as_text, _TRACEBACKS]
    # Both renderers escape, so an event is one line even if a client's name contains a line break.
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
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _STREAM)),
        cache_logger_on_first_use=False,
    )
