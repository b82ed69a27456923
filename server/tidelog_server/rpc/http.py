"""The HTTP port: ``/livez``, ``/readyz`` and ``/metrics``, for probes and Prometheus."""

import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError

_log = structlog.get_logger()
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# What aiohttp says when a connection begins as HTTP/2 does.
_HTTP2_PREFACE: Final = "PRI/Upgrade"
_HTTP2: Final = "HTTP/2, which gRPC uses: its clients belong to the other port, server.grpc_port"
_MAX_REASON: Final = 200

# What a probe or a scrape that is under way gets when the server stops.
_END_WITHIN_S: Final = 0.5


class HttpServer:
    """Serves probes and metrics.

    ``/livez`` says that the process runs, ``/readyz`` whether it takes work and, if not, why.
    """

    def __init__(
        self,
        why_not_ready: Callable[[], str | None],
        render_metrics: Callable[[], Awaitable[bytes]],
        may_read_metrics: Callable[[web.Request], bool] = lambda _: True,
    ) -> None:
        self._why_not_ready = why_not_ready
        self._render_metrics = render_metrics
        self._may_read_metrics = may_read_metrics
        application = web.Application()
        application.add_routes(
            [web.get("/livez", self._livez), web.get("/readyz", self._readyz), web.get("/metrics", self._metrics)]
        )
        self._runner = web.AppRunner(application, access_log=None, logger=_logger(), shutdown_timeout=_END_WITHIN_S)

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen, over TLS if there is one, and return the port. Raises OSError if the address is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, ssl_context=tls).start()
        _, bound_port = self._runner.addresses[0][:2]
        return int(bound_port)

    async def stop(self) -> None:
        """Stop listening and end what runs."""
        await self._runner.cleanup()

    async def _livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reason = self._why_not_ready()
        return web.Response(text="ok\n") if reason is None else web.Response(status=503, text=f"not ready: {reason}\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        if not self._may_read_metrics(request):
            text = "metrics need a token with admin.read here: Authorization: Bearer TOKEN\n"
            return web.Response(status=401, text=text, headers={"WWW-Authenticate": "Bearer"})
        return web.Response(body=await self._render_metrics(), headers={"Content-Type": _METRICS_TYPE})


class _ToStructlog(logging.Handler):
    """Gives what aiohttp says to our log. Of a request that is malformed one line: it says nothing of this server."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            reason = _HTTP2 if _HTTP2_PREFACE in str(error) else (str(error).splitlines() or [""])[0][:_MAX_REASON]
            _log.warning("http_request_malformed", peer=str(*(record.args or ())), reason=reason)
        else:
            _log.log(record.levelno, "http_server", message=record.getMessage(), exc_info=error)


def _logger() -> logging.Logger:
    logger = logging.Logger("tidelog.http")
    logger.addHandler(_ToStructlog())
    return logger
