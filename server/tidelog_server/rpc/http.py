"""The HTTP port: ``/livez``, ``/readyz`` and ``/metrics``, for probes and Prometheus."""

from collections.abc import Callable
from typing import Final

from aiohttp import web

_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class HttpServer:
    """Serves probes and metrics.

    ``/livez`` says that the process runs, ``/readyz`` whether it takes work and, if not, why.
    """

    def __init__(self, why_not_ready: Callable[[], str | None], render_metrics: Callable[[], bytes]) -> None:
        self._why_not_ready = why_not_ready
        self._render_metrics = render_metrics
        application = web.Application()
        application.add_routes(
            [web.get("/livez", self._livez), web.get("/readyz", self._readyz), web.get("/metrics", self._metrics)]
        )
        self._runner = web.AppRunner(application, access_log=None)

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port. Raises OSError if the address is taken."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
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

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._render_metrics(), headers={"Content-Type": _METRICS_TYPE})
