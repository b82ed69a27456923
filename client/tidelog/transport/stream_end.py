"""The status of a stream that ended while it was written to."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

import grpc.aio

from tidelog.transport.status import WRITE_FAILED

STATUS_WAIT_S: Final = 1.0
"""Maximum wait for the status of a call after a failed write: gRPC Core has it then, but may never report it."""

_POLL_S: Final = 0.005
_Result = TypeVar("_Result")


async def half_close(call: Any) -> None:
    """Signal the server that ``call`` has no more requests. If the call is over, its reader handles that.

    A half-close waits behind data that flow control holds back. If the connection breaks meanwhile, grpcio raises an
    internal error (``ExecuteBatchError``); only writes raise the status of the call.
    """
    with suppress(grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
        await call.done_writing()


class StreamEnd:
    """The status that the server, or gRPC Core, assigned to a call.

    When a write fails because the call is over, grpcio sets the status of the call to "Internal error from Core",
    instead of the one that the server sent or shortly before it (https://github.com/grpc/grpc/issues/36066). A refused
    stream would look like a broken one, and the client would retry. So this records the first status, which a callback
    of the call receives; if that is the status of a write, it waits for the next one.
    """

    def __init__(self, call: Any) -> None:
        """Watch ``call``, a newly opened stream of grpc.aio."""
        self._first: grpc.aio.AioRpcError | None = None
        call.add_done_callback(self._keep)

    async def failure(self, call: Any) -> grpc.aio.AioRpcError:
        """Return the status of ``call``, which has ended or is about to end; that of the write if there is no other."""
        last = await _status(call)
        status = self._first or last
        with suppress(TimeoutError):
            async with asyncio.timeout(STATUS_WAIT_S):
                while (status.code(), status.details()) == WRITE_FAILED:
                    # No callback or future of the call reports a second status.
                    await asyncio.sleep(_POLL_S)
                    status = await _status(call)
        return status

    def _keep(self, call: Any) -> None:
        if self._first is None:
            self._first = at_once(_status(call))


async def _status(call: Any) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        await call.code(), await call.initial_metadata(), await call.trailing_metadata(), await call.details()
    )


def look_at(future: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of a future that is done, if it has one: asyncio logs those that were never retrieved."""
    if not future.cancelled():
        future.exception()


def at_once(awaited: Coroutine[Any, Any, _Result]) -> _Result | None:
    """Return the result of a coroutine that completes without waiting; None if it would wait."""
    try:
        awaited.send(None)
    except StopIteration as end:
        result: _Result = end.value
        return result
    awaited.close()
    return None
