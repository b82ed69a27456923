"""Forwards aiohttp's log to ours, summed up in a line a second: anyone can send what is malformed, or finds a defect.

A malformed request is a warning: it is not an error of this server.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError

from tidelog_server.runtime.metrics import Metrics

# Interval at which a log message that unauthenticated clients can cause is written, with the number of occurrences.
STRANGER_LOG_INTERVAL_S: Final = 1.0

_log = structlog.get_logger()
# Text of aiohttp's error for a connection that begins with the HTTP/2 preface.
_HTTP2_PREFACE: Final = "PRI/Upgrade"
_HTTP2: Final = "HTTP/2, which gRPC uses: connect gRPC clients to server.grpc_port"
_MAX_REASON: Final = 200


class _ToStructlog(logging.Handler):
    """Logging handler that forwards to structlog: of each kind of record a line a second, with their number."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics
        self._malformed = _Rated(lambda peer, reason, count: _log.warning(
            "http_request_malformed", peer=peer, reason=reason, count=count
        ))  # fmt: skip
        self._others = _Rated(lambda record, error, count: _log.log(
            record.levelno, "http_server", message=record.getMessage(), exc_info=error, count=count
        ))  # fmt: skip

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, (HttpProcessingError, web.RequestPayloadError)):
            self._others.note(record, error)
            return
        self._metrics.http_requests_malformed.inc()
        reason = _HTTP2 if _HTTP2_PREFACE in str(error) else (str(error).splitlines() or [""])[0][:_MAX_REASON]
        self._malformed.note(str(*(record.args or ())), reason)


class _Rated:
    """Logs the last of some events, at most once in STRANGER_LOG_INTERVAL_S, with their number."""

    def __init__(self, log: Callable[[Any, Any, int], None]) -> None:
        self._log = log
        self._unsaid = 0
        self._next_s = 0.0
        self._last: tuple[Any, Any] = (None, None)

    def note(self, *event: Any) -> None:
        self._unsaid += 1
        self._last = (event[0], event[1])
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next_s:
            self._say(loop)
        elif self._unsaid == 1:
            loop.call_at(self._next_s, self._say, loop)

    def _say(self, loop: asyncio.AbstractEventLoop) -> None:
        self._next_s = loop.time() + STRANGER_LOG_INTERVAL_S
        count, self._unsaid = self._unsaid, 0
        last, self._last = self._last, (None, None)
        self._log(*last, count)


def http_logger(metrics: Metrics) -> logging.Logger:
    """Return the logger for aiohttp's server."""
    logger = logging.Logger("tidelog.http")
    logger.addHandler(_ToStructlog(metrics))
    return logger
