"""Forwards aiohttp's log to ours. Malformed requests, which anyone can send, are summed up in one line a second."""

import asyncio
import logging
from typing import Final

import structlog
from aiohttp.http import HttpProcessingError

from tidelog_server.core.limits import STRANGER_LOG_INTERVAL_S
from tidelog_server.runtime.metrics import Metrics

_log = structlog.get_logger()
# Text of aiohttp's error for a connection that begins with the HTTP/2 preface.
_HTTP2_PREFACE: Final = "PRI/Upgrade"
_HTTP2: Final = "HTTP/2, which gRPC uses: connect gRPC clients to server.grpc_port"
_MAX_REASON: Final = 200


class _ToStructlog(logging.Handler):
    """Logging handler that forwards to structlog."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__()
        self._metrics = metrics
        self._unsaid = 0
        self._next_s = 0.0
        self._last = ("", "")

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            _log.log(record.levelno, "http_server", message=record.getMessage(), exc_info=error)
            return
        self._metrics.http_requests_malformed.inc()
        self._unsaid += 1
        reason = _HTTP2 if _HTTP2_PREFACE in str(error) else (str(error).splitlines() or [""])[0][:_MAX_REASON]
        self._last = str(*(record.args or ())), reason
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next_s:
            self._say(loop)
        elif self._unsaid == 1:
            loop.call_at(self._next_s, self._say, loop)

    def _say(self, loop: asyncio.AbstractEventLoop) -> None:
        """Log one line for all malformed requests since the last line. A warning: it is not an error of this server."""
        self._next_s = loop.time() + STRANGER_LOG_INTERVAL_S
        count, self._unsaid = self._unsaid, 0
        peer, reason = self._last
        _log.warning("http_request_malformed", peer=peer, reason=reason, count=count)


def http_logger(metrics: Metrics) -> logging.Logger:
    """Return the logger for aiohttp's server."""
    logger = logging.Logger("tidelog.http")
    logger.addHandler(_ToStructlog(metrics))
    return logger
