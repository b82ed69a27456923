"""The HTTP port: ``/livez``, ``/readyz``, ``/healthz`` and ``/metrics``, and the API of mailboxes."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import structlog
from aiohttp import web

from tidelog_server.core.limits import MAX_HTTP_CONNECTIONS
from tidelog_server.rpc.health_checks import MAX_EXCLUDED, PING, answer
from tidelog_server.rpc.http_listener import HttpListener
from tidelog_server.rpc.http_log import http_logger
from tidelog_server.rpc.shared_result import SharedResult
from tidelog_server.rpc.web.access import is_own_host
from tidelog_server.runtime.buckets import Bucket
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.runtime.tasks import TaskOwner

# The rate exceeds what probes and scrapes need; a request with its connection takes about 0.3 ms of the event loop.
MAX_HTTP_REQUESTS_PER_S: Final = 100
# A client gets this time to read the answer to a request whose content is not read.
HTTP_LINGER_S: Final = 1.0
# Rate and burst of rendering metrics; callers that come in between share the next result.
METRICS_RENDERS_PER_S: Final = 1
METRICS_RENDERS_AT_ONCE: Final = 10

_log = structlog.get_logger()
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Time that a running probe or scrape has to finish when the server stops.
_END_WITHIN_S: Final = 0.5
_CONTINUE: Final = "100-continue"
_RETRY: Final = {"Retry-After": "1", "Connection": "close"}
_NOT_OWN_HOST: Final = (
    "authentication is off, so the host must be an address, a name without a dot, or a configured one\n"
)

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpServer:
    """Serves probes, metrics and the API.

    ``/livez`` and ``/healthz`` report that the process runs; ``/readyz`` whether it accepts appends and, if not, the
    reason; with ``verbose`` and ``exclude`` as Kubernetes' API server.
    The total rate of these requests is bounded, so that no number of callers can keep the event loop from appends and
    scans. Requests for the API are counted by what answers them, so that they do not keep probes from being answered.
    """

    def __init__(
        self,
        readiness: Callable[[], Mapping[str, str | None]],
        render_metrics: Callable[[], Awaitable[bytes]],
        metrics: Metrics,
        *,
        may_read_metrics: Callable[[web.Request], bool] = lambda _: True,
        api_prefixes: Sequence[str] = (),
        own_hosts: Collection[str] | None = None,
        on_failure: Callable[[str, BaseException], None],
    ) -> None:
        """Serve nothing yet.

        Args:
            readiness: Returns the checks of ``/readyz`` in order, by name: why each fails; None if it passes.
            render_metrics: Returns the metrics as text.
            metrics: Count connections and requests.
            may_read_metrics: Returns whether a request may read them.
            api_prefixes: Beginnings of the paths that ``serve_api`` answers, without a slash at the end.
            own_hosts: Names of hosts that requests may name, besides addresses and names without a dot; None for any.
            on_failure: See TaskOwner; a connection that fails only ends and is logged.
        """
        self._own_hosts = own_hosts
        self._readiness = readiness
        self._may_read_metrics = may_read_metrics
        self._metrics = metrics
        loop = asyncio.get_running_loop()
        self._now_s = loop.time
        # Not the tasks of the server, because probes are answered until its last step.
        self._tasks = TaskOwner(on_failure)
        self._connections = TaskOwner(
            lambda name, cause: _log.error("http_server", message=f"{name} failed", exc_info=cause)
        )
        self._rendered = SharedResult(
            render_metrics, METRICS_RENDERS_PER_S, METRICS_RENDERS_AT_ONCE, loop.time, self._tasks
        )
        # A connection has one request at a time, so the queue is at most the number of connections.
        self._requests = Bucket(MAX_HTTP_REQUESTS_PER_S, MAX_HTTP_CONNECTIONS, loop.time())
        self._strangers = Bucket(MAX_HTTP_REQUESTS_PER_S, MAX_HTTP_CONNECTIONS, loop.time())
        self._listener: HttpListener | None = None
        self._api: _Handler | None = None
        self._api_calls = 0
        application = web.Application(middlewares=[self._in_turn])
        application.add_routes(
            [
                web.get("/livez", self._livez),
                web.get("/healthz", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics_page),
            ]
        )
        for prefix in api_prefixes:
            application.router.add_route("*", prefix, self._api_call)
            application.router.add_route("*", prefix + "/{rest:.*}", self._api_call)
        # A call ends when its client disconnects: a fetch that waits must not lease a message for a caller that left.
        # Coded contents are refused, not decoded.
        self._runner = web.AppRunner(
            application, access_log=None, logger=http_logger(metrics), shutdown_timeout=_END_WITHIN_S,
            handler_cancellation=True, auto_decompress=False, lingering_time=HTTP_LINGER_S,
        )  # fmt: skip

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen, with TLS if ``tls`` is set, and return the port. Raises OSError if the address is in use."""
        await self._runner.setup()
        assert self._runner.server is not None
        make: Any = self._runner.server.request_factory
        self._runner.server.request_factory = partial(make, _cls=_Request)
        self._runner.server.request_handler = partial(_answered, self._runner.server.request_handler)
        self._listener = HttpListener(self._runner.server, self._metrics, self._tasks, self._connections)
        return self._listener.listen(host, port, tls)

    def serve_api(self, answer: _Handler) -> None:
        """Answer calls of the API from now on."""
        self._api = answer

    def renew(self, tls: ssl.SSLContext | None) -> None:
        """Use another TLS context for new connections; None changes nothing."""
        if tls is not None and self._listener is not None:
            self._listener.renew(tls)

    async def stop(self) -> None:
        """Stop listening, and end running requests."""
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()
        await self._connections.close()
        await self._tasks.close()

    @web.middleware
    async def _in_turn(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        assert self._listener is not None
        self._listener.note_request(request.protocol)
        is_api = request.match_info.handler == self._api_call
        if self._own_hosts is not None and not is_own_host(request, self._own_hosts):
            await self._turn(self._strangers if is_api else self._requests)
            return web.Response(status=403, text=_NOT_OWN_HOST)
        if not is_api:
            await self._turn(self._requests)
        return await handler(request)

    async def metrics_text(self) -> bytes:
        """Return the metrics, rendered at a bounded rate for all callers, also those by gRPC."""
        return await self._rendered.get()

    @contextmanager
    def held(self, request: web.Request) -> Iterator[None]:
        """Count a call of the API while it lasts, and exempt its connection from the bounds on connections."""
        assert self._listener is not None
        self._api_calls += 1
        try:
            with self._listener.held(request.protocol):
                yield
        finally:
            self._api_calls -= 1

    async def strangers_turn(self) -> None:
        """Wait for the turn of a request for the API whose caller is unknown: they have a rate together."""
        await self._turn(self._strangers)

    async def _turn(self, bucket: Bucket) -> None:
        now_s = self._now_s()
        wait_s = bucket.wait_s(now_s, 1)
        bucket.take(1, now_s)
        if wait_s:
            await asyncio.sleep(wait_s)

    async def _api_call(self, request: web.Request) -> web.StreamResponse:
        if self._api is None:
            return web.Response(status=503, text="the server is starting\n", headers=_RETRY)
        return await self._api(request)

    async def _livez(self, request: web.Request) -> web.Response:
        return _health(request, {PING: None})

    async def _readyz(self, request: web.Request) -> web.Response:
        return _health(request, {PING: None, **self._readiness()})

    async def _metrics_page(self, request: web.Request) -> web.Response:
        if not self._may_read_metrics(request):
            text = "metrics need a token with the grant admin.read: Authorization: Bearer TOKEN\n"
            return web.Response(status=401, text=text, headers={"WWW-Authenticate": "Bearer"})
        return web.Response(body=await self.metrics_text(), headers={"Content-Type": _METRICS_TYPE})


def _health(request: web.Request, checks: Mapping[str, str | None]) -> web.Response:
    query = request.query
    excluded = query.getall("exclude", [])
    if len(excluded) > MAX_EXCLUDED:
        return web.Response(
            status=400, text=f"the request excludes {len(excluded)} checks, at most {MAX_EXCLUDED} may be\n"
        )
    given = answer(request.path.strip("/"), checks, is_verbose="verbose" in query, excluded=excluded)
    return web.Response(status=200 if given.has_passed else 503, text=given.text)


async def _answered(
    handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], request: web.BaseRequest
) -> web.StreamResponse:
    """Return the answer of ``handle``, which fails for two kinds of requests that anyone can send."""
    if request.headers.get("Expect", _CONTINUE).lower() != _CONTINUE:
        return web.Response(status=417, text=f"the only value of Expect is {_CONTINUE}\n")
    try:
        return await handle(request)
    except ConnectionError as error:
        # The client has left before the server could ask it to continue.
        raise asyncio.CancelledError from error


class _Request(web.Request):
    """A request, also one that is malformed, whose answer has the headers of all answers."""

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        # The versions of what runs here help attackers only.
        response.headers.pop("Server", None)
        response.headers["X-Content-Type-Options"] = "nosniff"
        await super()._prepare_hook(response)
