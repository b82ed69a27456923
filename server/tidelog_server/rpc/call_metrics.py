"""Metrics of calls, by method. Updated per call, never per message of a stream."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio

from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.metrics import Metrics

Context = grpc.aio.ServicerContext[Any, Any]
Call = Callable[[Any, Context], Awaitable[Any]]

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class CallMeter:
    """Wraps handlers to count calls by status code, and to time unary calls."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock

    def metered(self, name: str, call: Call, *, is_stream: bool) -> Call:
        """Return ``call``, counted under ``name``. Streams are not timed: their duration is the client's choice."""
        metrics, monotonic_s = self._metrics, self._clock.monotonic_s
        open_calls = metrics.calls_open.labels(name)
        handled_ok = metrics.calls_handled.labels(name, grpc.StatusCode.OK.name)
        seconds = None if is_stream else metrics.call_seconds.labels(name)

        async def metered_call(request: Any, context: Context) -> Any:
            begin_s = monotonic_s()
            open_calls.inc()
            try:
                response = await call(request, context)
            except BaseException as error:
                metrics.calls_handled.labels(name, code_of(error, context).name).inc()
                raise
            else:
                handled_ok.inc()
                return response
            finally:
                open_calls.dec()
                if seconds is not None:
                    seconds.observe(monotonic_s() - begin_s)

        return metered_call


def code_of(error: BaseException, context: Context) -> grpc.StatusCode:
    """Return the status code of a call that raised ``error``."""
    if isinstance(error, asyncio.CancelledError):
        return grpc.StatusCode.CANCELLED
    code: Any = context.code()
    known = code if isinstance(code, grpc.StatusCode) else _CODES.get(code)
    return known or grpc.StatusCode.UNKNOWN
