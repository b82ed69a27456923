"""A two-way stream writes what there is, ends with the reader's reason or a defect, and leaves no call behind.

Method: a server of grpc.aio that returns each request and records that its call is over.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from tidelog.errors import ServerError, TidelogError, UnavailableError
from tidelog.transport.stream_end import StreamEnd
from tidelog.transport.two_way import TwoWayStream


class Echo(grpc.GenericRpcHandler):
    """Answers each request with itself; ``ended`` is set when a call is over."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    def service(self, _details: grpc.HandlerCallDetails) -> Any:
        async def echo(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
            try:
                async for request in requests:
                    yield request
            finally:
                self.ended.set()

        return grpc.stream_stream_rpc_method_handler(echo)


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[Echo, Callable[[], Any]]]:
    echo = Echo()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([echo])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield echo, channel.stream_stream("/echo/Stream")
    await server.stop(None)


class Talk:
    """Requests to write, and the answers."""

    def __init__(self, *requests: bytes, stops_after: int = 0, reads_badly: bool = False) -> None:
        self.requests = deque(requests)
        self.answers: list[bytes] = []
        self.has_all = asyncio.Event()
        self._expected = len(requests)
        self._stops_after = stops_after
        self._reads_badly = reads_badly
        no_transport: Any = None
        self.stream = TwoWayStream(no_transport, "talk", self.next_request, self.read, defect_error)

    def next_request(self) -> bytes | None:
        if self._stops_after and len(self.answers) >= self._stops_after:
            raise ZeroDivisionError
        return self.requests.popleft() if self.requests else None

    async def read(self, call: Any, _end: StreamEnd) -> TidelogError:
        while (answer := await call.read()) is not grpc.aio.EOF:
            if self._reads_badly:
                raise KeyError(answer)
            self.answers.append(answer)
            if len(self.answers) == self._expected:
                self.has_all.set()
            self.stream.wake.set()
        return UnavailableError("the server ended the stream")


def defect_error(text: str) -> TidelogError:
    return ServerError(text, effect="unknown")


async def test_requests_are_written_as_they_come_until_the_caller_hangs_up() -> None:
    async with asyncio.timeout(60), echoing() as (echo, open_call):
        talk = Talk(b"1", b"2", b"3")
        later = talk.requests.pop()
        serving = asyncio.create_task(talk.stream.serve(open_call()))
        while len(talk.answers) < 2:
            await asyncio.sleep(0)
        talk.requests.append(later)
        talk.stream.wake.set()
        await talk.has_all.wait()

        await talk.stream.hang_up()

        assert isinstance(await serving, UnavailableError)
        assert talk.answers == [b"1", b"2", b"3"]
        await echo.ended.wait()
        # The call is over: there is nothing to hang up.
        await talk.stream.hang_up()


@pytest.mark.parametrize(
    ("options", "cause"), [({"reads_badly": True}, KeyError), ({"stops_after": 1}, ZeroDivisionError)]
)
async def test_a_defect_of_either_task_ends_the_call_and_is_named(options: Any, cause: type[Exception]) -> None:
    async with asyncio.timeout(60), echoing() as (echo, open_call):
        talk = Talk(b"1", **options)
        error = await talk.stream.serve(open_call())
        assert isinstance(error, ServerError)
        assert isinstance(error.__cause__, cause)
        assert (error.effect, cause.__name__ in str(error)) == ("unknown", True)
        await echo.ended.wait()


async def test_a_cancelled_stream_leaves_no_call_behind() -> None:
    async with asyncio.timeout(60), echoing() as (echo, open_call):
        talk = Talk(b"1")
        serving = asyncio.create_task(talk.stream.serve(open_call()))
        await talk.has_all.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        await echo.ended.wait()


async def test_a_finished_stream_writes_nothing_more_and_reads_what_is_answered() -> None:
    async with asyncio.timeout(60), echoing() as (echo, open_call):
        talk = Talk(b"1", b"2")
        serving = asyncio.create_task(talk.stream.serve(open_call()))
        await talk.has_all.wait()

        talk.stream.finish()
        talk.requests.append(b"3")

        assert isinstance(await serving, UnavailableError)
        assert (talk.answers, list(talk.requests)) == ([b"1", b"2"], [b"3"])
        await echo.ended.wait()
        # The next call writes it.
        talk.has_all.clear()
        serving = asyncio.create_task(talk.stream.serve(open_call()))
        while len(talk.answers) < 3:
            await asyncio.sleep(0)
        await talk.stream.hang_up()
        await serving
