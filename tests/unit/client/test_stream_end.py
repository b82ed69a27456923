"""The status of a stream is the one that the server sent, whenever a write meets the end."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest

from tidelog.admin.blobs import putting
from tidelog.errors import UnavailableError
from tidelog.transport.status import error_of_status
from tidelog.transport.stream_end import StreamEnd

CALLS = 100
"""Without ``StreamEnd``, nine of ten such calls report an internal error, with grpcio 1.85."""


class Refusing(grpc.GenericRpcHandler):
    """Refuses each stream as soon as it is opened."""

    def service(self, _details: grpc.HandlerCallDetails) -> Any:
        async def refuse(_requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not you", (("why-bin", b"\x01"),))
            yield b""

        return grpc.stream_stream_rpc_method_handler(refuse)


@pytest.fixture
async def streams() -> AsyncIterator[Any]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([Refusing()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel.stream_stream("/refusing/Stream")
    await server.stop(None)


async def write_on(call: Any) -> None:
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while True:
            await call.write(b"x" * 1_000)


async def test_a_write_that_meets_the_end_does_not_hide_why_the_server_ended_the_stream(streams: Any) -> None:
    told: Counter[tuple[grpc.StatusCode, str | None]] = Counter()
    for _ in range(CALLS):
        call = streams()
        end = StreamEnd(call)
        writer = asyncio.create_task(write_on(call))
        with pytest.raises(grpc.aio.AioRpcError):
            await call.read()
        failure = await end.failure(call)
        assert ("why-bin", b"\x01") in tuple(failure.trailing_metadata())
        told[failure.code(), failure.details()] += 1
        await writer
    assert told == {(grpc.StatusCode.PERMISSION_DENIED, "not you"): CALLS}


async def test_the_end_of_a_call_that_only_waits_is_its_status(streams: Any) -> None:
    call = streams()
    end = StreamEnd(call)
    failure = await end.failure(call)
    assert (failure.code(), failure.details()) == (grpc.StatusCode.PERMISSION_DENIED, "not you")


async def test_a_write_that_fails_before_the_status_is_there_does_not_hide_it(streams: Any) -> None:
    call = streams()
    end = StreamEnd(call)
    # As a failing write does; the call itself is not over yet.
    call._cython_call.set_internal_error("a write failed")
    failure = await end.failure(call)
    assert (failure.code(), failure.details()) == (grpc.StatusCode.PERMISSION_DENIED, "not you")
    assert ("why-bin", b"\x01") in tuple(failure.trailing_metadata())


async def test_the_failure_of_a_write_is_the_reason_if_no_status_comes(
    streams: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.transport.stream_end.STATUS_WAIT_S", 0)
    call = streams()
    end = StreamEnd(call)
    call._cython_call.set_internal_error("a write failed")
    failure = await end.failure(call)
    assert (failure.code(), failure.details()) == (grpc.StatusCode.INTERNAL, "Internal error from Core")
    assert isinstance(error_of_status(failure, is_read=False), UnavailableError)


async def test_a_blob_that_the_server_refuses_while_it_is_written_is_refused(streams: Any) -> None:
    put = putting(SimpleNamespace(PutBlob=streams))
    told: Counter[tuple[grpc.StatusCode, str | None]] = Counter()
    for _ in range(CALLS):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await put([bytes(1_000)] * 100)
        told[refused.value.code(), refused.value.details()] += 1
    assert told == {(grpc.StatusCode.PERMISSION_DENIED, "not you"): CALLS}
