"""Bounds of calls by HTTP: waiting fetches and slow clients leave room for other calls and for probes.

Method: a real server, and connections whose requests are written by hand.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tidelog_server.app import Server
from tidelog_server.core.limits import MAX_API_CALLS
from tidelog_server.rpc.web.bounds import MAX_API_WAITS, MAX_ARRIVING_PER_ADDRESS
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.parts.http_calls import Answer, requested
from tidelog_testing.parts.waiting import until

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
WAIT = b'{"wait_ms": 60000}'


@asynccontextmanager
async def begun(server: Server, count: int, content: bytes, missing: int = 0) -> AsyncIterator[list[Stream]]:
    """Begin fetches on connections of their own, whose content lacks its last ``missing`` bytes."""
    host, port = server.http_endpoint.split(":")
    head = f"POST /api/v1/mailboxes/jobs/fetch HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(content)}\r\n\r\n"
    streams: list[Stream] = []
    try:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(host, int(port))
            streams.append((reader, writer))
            writer.write(head.encode() + content[: len(content) - missing])
            await writer.drain()
        yield streams
    finally:
        for _, writer in streams:
            writer.close()


async def call(server: Server, method: str, path: str, **content: object) -> Answer:
    return await requested(server.http_endpoint, method, path, json.dumps(content).encode())


async def until_calls(server: Server, count: int) -> None:
    await until(lambda: server._http._api_calls == count)


async def status_of(stream: Stream) -> int:
    async with asyncio.timeout(30):
        return int((await stream[0].readline()).split()[1])


async def test_fetches_that_wait_leave_room_and_end_when_the_server_stops(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server:
        assert (await call(server, "POST", "/api/v1/mailboxes", name="jobs")).status == 201
        async with begun(server, MAX_API_WAITS, WAIT) as streams:
            await until_calls(server, MAX_API_WAITS)
            refused = await call(server, "POST", "/api/v1/mailboxes/jobs/fetch", wait_ms=1)
            assert (refused.status, refused.headers["retry-after"]) == (429, "1")
            assert json.loads(refused.content)["error"]["values"]["limit"] == "api_waits"
            assert (await call(server, "POST", "/api/v1/mailboxes/jobs/fetch")).status == 200
            assert (await requested(server.http_endpoint, "GET", "/readyz")).status == 200
            sent = await call(server, "POST", "/api/v1/mailboxes/jobs/messages", messages=[{"body": "x"}])
            assert sent.status == 200
            await until_calls(server, MAX_API_WAITS - 1)
            await server.stop()
            statuses = [await status_of(stream) for stream in streams]
            assert sorted(statuses) == [200] + [503] * (MAX_API_WAITS - 1)


async def test_requests_that_do_not_arrive_leave_room_for_calls_and_probes(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server:
        assert (await call(server, "POST", "/api/v1/mailboxes", name="jobs")).status == 201
        async with begun(server, MAX_API_CALLS, WAIT, missing=1) as streams:
            await until_calls(server, MAX_ARRIVING_PER_ADDRESS)
            for _ in range(20):
                sent = await call(server, "POST", "/api/v1/mailboxes/jobs/messages", messages=[{"body": "x"}])
                assert sent.status == 200
            assert (await requested(server.http_endpoint, "GET", "/livez")).status == 200
            assert server._http._api_calls == MAX_ARRIVING_PER_ADDRESS
            # The time to read a request is bounded.
            assert await status_of(streams[0]) == 408
        await until_calls(server, 0)
        assert (await call(server, "GET", "/api/v1/mailboxes")).status == 200
