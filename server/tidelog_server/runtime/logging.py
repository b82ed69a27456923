"""Structured logs on stderr: an event name, then keys; text on a terminal, JSON lines otherwise."""

import io
import logging
import os
import sys
from typing import Final, Literal, TextIO, cast

import structlog

# Without local variables: they contain client data.
_TRACEBACKS: Final = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)

Format = Literal["auto", "console", "json"]

# Many JSON parsers read numbers as floats, which are exact up to 2^53; ticks and ids are greater.
_WIDE: Final = ("tick", "watermark", "txn_id", "broadcast_id", "fencing_token")


class LogStream:
    """Writes lines to stderr, and drops those that cannot be written: a full disk must not stop what logs.

    Unbuffered, because a line that remains in a buffer would fail again when the process exits.

    Attributes:
        dropped: Lines dropped since the last one that was written.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._parts: list[str] = []

    def write(self, text: str) -> int:
        """Collect a part of a line."""
        self._parts.append(text)
        return len(text)

    def flush(self) -> None:
        """Write the line, or drop it."""
        line = "".join(self._parts)
        self._parts.clear()
        try:
            _write(sys.stderr, line)
        except OSError:
            self.dropped += 1
        else:
            self.dropped = 0

    def note_dropped(
        self, _logger: object, _method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        """Return the event with the number of lines that were dropped before it, if there are any."""
        if self.dropped:
            event["dropped_lines"] = self.dropped
        return event


def _write(stream: TextIO, line: str) -> None:
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:
        # A stream in memory.
        stream.write(line)
        return
    rest = memoryview(line.encode(stream.encoding, "backslashreplace"))
    while rest:
        rest = rest[os.write(descriptor, rest) :]


_STREAM: Final = LogStream()


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
            _STREAM.note_dropped,
            *(for_json if as_json else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _STREAM)),
        cache_logger_on_first_use=False,
    )
