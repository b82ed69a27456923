"""A pipeline writes what its queue has, opens a stream again after each end, and leaves no call behind.

Method: a server of grpc.aio that returns each request and counts the calls that are over.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import grpc
import grpc.aio
import pytest

from tidelog import Retry
from tidelog.errors import ClosedError, ServerError, TidelogError, UnavailableError
from tidelog.transport.pipeline import After, Pipeline, Queue
from tidelog.transport.transport import Transport


class Echo(grpc.GenericRpcHandler):
    """Answers each request with itself.

    Attributes:
        received: The requests of each stream; one that has ended has None at its end.
    """

    def __init__(self) -> None:
        self.received: list[list[bytes | None]] = []

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        async def echo(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
            received: list[bytes | None] = []
            self.received.append(received)
            try:
                async for request in requests:
                    received.append(request)
                    yield request
            finally:
                received.append(None)

        async def nothing(_request: bytes, _context: Any) -> bytes:
            return b""

        if details.method == "/echo/Stream":
            return grpc.stream_stream_rpc_method_handler(echo)
        # What a pipeline calls before it writes after a break.
        return grpc.unary_unary_rpc_method_handler(nothing)


class Words(Queue):
    """Words to write, and the answers; ``afters`` tells what follows an answer."""

    def __init__(self, *words: bytes) -> None:
        self.waiting = deque(words)
        self.in_flight: list[bytes] = []
        self.answers: list[bytes] = []
        self.afters: dict[bytes, After] = {}
        self.defects: dict[bytes, Exception] = {}
        self.reasons: list[TidelogError] = []
        self.resumptions = 0
        self.why_closed = ""

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.in_flight

    @property
    def has_waiting(self) -> bool:
        return bool(self.waiting)

    def next_request(self) -> bytes | None:
        if not self.waiting:
            return None
        word = self.waiting.popleft()
        if word.startswith(b"bad"):
            raise ZeroDivisionError
        self.in_flight.append(word)
        return word

    def idle_request(self) -> bytes:
        self.in_flight.append(b"idle")
        return b"idle"

    def answered(self, response: bytes) -> After:
        if response.startswith(b"unread"):
            raise KeyError(response)
        self.in_flight.remove(response)
        self.answers.append(response)
        return self.afters.get(response, After.CONTINUE)

    def may_pass(self, error: TidelogError, *, can_renew_token: bool) -> bool:
        return isinstance(error, UnavailableError) or can_renew_token

    def unreachable(self, error: TidelogError, *, may_pass: bool) -> None:
        raise AssertionError((error, may_pass))

    def interrupted(self, reason: TidelogError, _max_request_bytes: float = inf) -> None:
        self.reasons.append(reason)
        self.in_flight.clear()

    def refused(self, _error: TidelogError) -> None:
        self.waiting.clear()

    def resume(self) -> None:
        self.resumptions += 1

    def expire(self, _now_s: float) -> float:
        return inf

    def closed(self, why: str) -> None:
        self.why_closed = why


class Noting(Transport):
    """A transport that keeps the terms whose processes stop."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint, client_id="", connect_timeout_s=10.0, retry=Retry(base_s=0.01, give_up_s=10.0))
        self.stopped: list[int] = []

    def note_stop(self, term: int) -> None:
        self.stopped.append(term)


@asynccontextmanager
async def talking(words: Words) -> AsyncIterator[tuple[Echo, Pipeline]]:
    echo = Echo()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers([echo])
    endpoint = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    transport = Noting(endpoint)
    async with asyncio.timeout(60):
        yield echo, Pipeline(transport, "talk", words, transport.services.channel.stream_stream("/echo/Stream"))
        await transport.aclose()
        await server.stop(None)


async def answered(words: Words, count: int) -> None:
    while len(words.answers) < count:
        await asyncio.sleep(0.001)


async def test_requests_are_written_as_they_come_until_the_close() -> None:
    words = Words(b"1", b"2")
    async with talking(words) as (echo, pipeline):
        pipeline.send_soon()
        await answered(words, 2)
        pipeline.send_soon()
        words.waiting.append(b"3")

        await pipeline.aclose(10.0)

        assert words.answers == [b"1", b"2", b"3"]
        assert echo.received == [[b"1", b"2", b"3", None]]
        assert words.why_closed == "the client was closed"


async def test_a_close_begins_no_call() -> None:
    words = Words()
    async with talking(words) as (echo, pipeline):
        await pipeline.aclose(10.0)
        assert echo.received == []


@pytest.mark.parametrize(("word", "cause"), [(b"unread", KeyError), (b"bad", ZeroDivisionError)])
async def test_a_defect_of_the_queue_ends_the_call_and_is_named(word: bytes, cause: type[Exception]) -> None:
    words = Words(b"1", word)
    async with talking(words) as (echo, pipeline):
        pipeline.send_soon()
        while not words.reasons:
            await asyncio.sleep(0.001)
        [error] = words.reasons
        assert isinstance(error, ServerError)
        assert isinstance(error.__cause__, cause)
        assert (error.effect, cause.__name__ in str(error)) == ("unknown", True)
        while None not in echo.received[0]:
            await asyncio.sleep(0.001)
        await pipeline.aclose(10.0)


async def test_a_close_that_is_cancelled_leaves_no_call_behind() -> None:
    words = Words(b"1")
    async with talking(words) as (echo, pipeline):
        pipeline.send_soon()
        await answered(words, 1)
        words.in_flight.append(b"never answered")
        closing = asyncio.create_task(pipeline.aclose(10.0))
        await asyncio.sleep(0.01)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        while echo.received != [[b"1", None]]:
            await asyncio.sleep(0.001)
        assert words.why_closed == "the client was closed, and the wait for its calls was cancelled"


async def test_after_the_answer_of_a_stopping_server_the_rest_goes_to_the_next_stream() -> None:
    words = Words(b"1", b"2")
    words.afters[b"2"] = After.FINISH
    async with talking(words) as (echo, pipeline):
        transport = pipeline._transport
        assert isinstance(transport, Noting)
        transport.term = 7
        pipeline.send_soon()
        await answered(words, 2)
        assert transport.stopped == [7]
        # The first stream is being half-closed.
        pipeline.send_soon()
        words.waiting.append(b"3")
        await answered(words, 3)
        await pipeline.aclose(10.0)

        assert echo.received == [[b"1", b"2", None], [b"3", None]]
        # Its end was clean.
        assert {str(reason) for reason in words.reasons} == {"the server ended the stream"}


async def test_what_overload_holds_back_is_sent_after_a_pause() -> None:
    words = Words(b"1", b"2")
    words.afters[b"1"] = words.afters[b"2"] = After.PAUSE
    async with talking(words) as (_, pipeline):
        pipeline.send_soon()
        while not words.resumptions:
            await asyncio.sleep(0.001)
        # One pause for both.
        assert (words.answers, words.resumptions) == ([b"1", b"2"], 1)
        await pipeline.aclose(10.0)


async def test_a_pause_of_the_queue_is_filled_with_idle_requests() -> None:
    words = Words(b"1")
    words.idle_s = 0.02
    async with talking(words) as (echo, pipeline):
        pipeline.send_soon()
        await answered(words, 4)
        await pipeline.aclose(10.0)
        assert echo.received[0][:4] == [b"1", b"idle", b"idle", b"idle"]


async def test_idle_requests_are_sent_however_often_the_queue_is_looked_at() -> None:
    """As heartbeats of a member that receives many assignments."""
    words = Words(b"1")
    words.idle_s = 0.02
    async with talking(words) as (_, pipeline):
        async with asyncio.timeout(10.0):
            while words.answers.count(b"idle") < 2:
                pipeline.send_soon()
                await asyncio.sleep(0.001)
        await pipeline.aclose(10.0)


async def test_a_client_that_closes_its_connections_ends_the_stream() -> None:
    """As that of a consumer, which its user closes later."""
    words = Words(b"1")
    async with talking(words) as (_, pipeline):
        pipeline.send_soon()
        await answered(words, 1)
        await pipeline._transport.aclose()
        while not words.reasons:
            await asyncio.sleep(0.001)
        [error] = words.reasons
        assert isinstance(error, ClosedError)
        await pipeline.aclose(10.0)
