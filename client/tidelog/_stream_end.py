"""Why a stream that is written to has ended."""

from collections.abc import Coroutine
from typing import Any

import grpc.aio


class StreamEnd:
    """The status with which a call ended, as it came first.

    When a write fails because the call is over, grpcio puts "Internal error from Core" in the place of the status that
    the server sent (https://github.com/grpc/grpc/issues/36066): a refused stream would look like a broken one, and be
    tried again. A call's callbacks run as soon as the server's status is there, before that, so one of them keeps it.
    """

    def __init__(self, call: Any) -> None:
        """Watch ``call``, a stream of grpc.aio that was just begun."""
        self._first: grpc.aio.AioRpcError | None = None
        call.add_done_callback(self._keep)

    async def failure(self, call: Any) -> grpc.aio.AioRpcError:
        """Return the status of ``call``, which has ended or is about to."""
        last = await _status(call)
        return self._first or last

    def _keep(self, call: Any) -> None:
        if self._first is None:
            self._first = _at_once(_status(call))


async def _status(call: Any) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        await call.code(), await call.initial_metadata(), await call.trailing_metadata(), await call.details()
    )


def _at_once(awaited: Coroutine[Any, Any, grpc.aio.AioRpcError]) -> grpc.aio.AioRpcError | None:
    """Return what a coroutine returns that has nothing to wait for; None if it has, which is to be asked again."""
    try:
        awaited.send(None)
    except StopIteration as end:
        status: grpc.aio.AioRpcError = end.value
        return status
    awaited.close()
    return None
