"""Why a stream that is written to has ended."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

import grpc.aio

STATUS_WAIT_S: Final = 1.0
"""How long the status of a call is waited for once a write has failed: Core knows it then, and may never tell."""

_POLL_S: Final = 0.005
_OF_WRITE: Final = (grpc.StatusCode.INTERNAL, "Internal error from Core")


async def half_close(call: Any) -> None:
    """Tell the server that nothing more is written on ``call``; a call that is over is left to its reader.

    A half-close waits behind what flow control holds back. If the connection breaks meanwhile, grpcio raises an error
    of its internals (``ExecuteBatchError``) instead of the status of the call, which it does only for writes.
    """
    with suppress(grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
        await call.done_writing()


class StreamEnd:
    """The status that the server, or Core, gave a call.

    When a write fails because the call is over, grpcio gives the call a status of its own, "Internal error from Core":
    in the place of the one that the server sent, or shortly before that (https://github.com/grpc/grpc/issues/36066). A
    refused stream would look like a broken one, and be tried again. So the first status is kept, which a call's
    callbacks are told as soon as it is there; and if that is of a write, the next one is waited for.
    """

    def __init__(self, call: Any) -> None:
        """Watch ``call``, a stream of grpc.aio that was just begun."""
        self._first: grpc.aio.AioRpcError | None = None
        call.add_done_callback(self._keep)

    async def failure(self, call: Any) -> grpc.aio.AioRpcError:
        """Return the status of ``call``, which has ended or is about to; that of the write if there is no other."""
        last = await _status(call)
        status = self._first or last
        with suppress(TimeoutError):
            async with asyncio.timeout(STATUS_WAIT_S):
                while _is_of_write(status):
                    # No callback and no future of the call tells of a second status.
                    await asyncio.sleep(_POLL_S)
                    status = await _status(call)
        return status

    def _keep(self, call: Any) -> None:
        if self._first is None:
            self._first = _at_once(_status(call))


def _is_of_write(status: grpc.aio.AioRpcError) -> bool:
    return (status.code(), status.details()) == _OF_WRITE


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
