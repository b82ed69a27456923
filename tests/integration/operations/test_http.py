"""The HTTP port: alive while the process runs, ready only while the server takes work, and metrics that count.

Method: plain HTTP against servers that are well, whose storage failed, whose disk is full, and that shut down.
"""

import asyncio
import urllib.error
import urllib.request

import pytest
from structlog.testing import capture_logs

from tidelog import AsyncClient, UnavailableError
from tidelog.v1 import channel_service_pb2, error_pb2
from tidelog_server.app import Server
from tidelog_server.core.limits import MAX_HTTP_CONNECTIONS
from tidelog_server.rpc import http_listener
from tidelog_server.rpc.http import MAX_HTTP_REQUESTS_PER_S, METRICS_RENDERS_AT_ONCE, METRICS_RENDERS_PER_S, HttpServer
from tidelog_server.runtime.metrics import Metrics
from tidelog_testing.parts.grpc_calls import a_request, connected, refusal_in, refused, running_server
from tidelog_testing.parts.stores import FaultyStore


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


async def get(server: Server, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(_get, f"http://{server.http_endpoint}{path}")


async def metric(server: Server, name: str) -> float:
    _, text = await get(server, "/metrics")
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


async def test_a_server_that_is_well_is_alive_and_ready() -> None:
    async with running_server() as server:
        assert await get(server, "/livez") == (200, "ok\n")
        assert await get(server, "/readyz") == (200, "ok\n")
        assert await get(server, "/healthz") == (200, "ok\n")
        assert (await get(server, "/nothing"))[0] == 404


async def test_checks_are_listed_and_excluded_as_those_of_kubernetes() -> None:
    async with running_server() as server:
        passed = "".join(f"[+]{name} ok\n" for name in ("ping", "log", "start", "tasks", "lease", "engine", "disk"))
        assert await get(server, "/readyz?verbose") == (200, f"{passed}readyz check passed\n")
        assert await get(server, "/livez?verbose") == (200, "[+]ping ok\nlivez check passed\n")
        assert await get(server, "/healthz?verbose=1") == (200, "[+]ping ok\nhealthz check passed\n")
        server._log.admission.free_disk_bytes = -1
        assert await get(server, "/readyz") == (503, "not ready: the disk is nearly full\n")
        assert await get(server, "/readyz?exclude=disk") == (200, "ok\n")
        assert await get(server, "/readyz?exclude=log&exclude=disk") == (200, "ok\n")
        status, text = await get(server, "/readyz?verbose&exclude=nothing")
        assert (status, text.splitlines()[-3:]) == (503, [
            "[-]disk failed: the disk is nearly full",
            'warn: some health checks cannot be excluded: no matches for "nothing"',
            "readyz check failed",
        ])  # fmt: skip
        status, text = await get(server, "/readyz?" + "&".join(["exclude=x"] * 17))
        assert (status, text) == (400, "the request excludes 17 checks, at most 16 may be\n")


async def test_metrics_count_what_was_done() -> None:
    async with running_server() as server, connected(server) as client:
        await client.create("a", vchannels=3)
        await client.append_all([a_request("a/0", b"x", b"y")] * 10 + [a_request("a/9")])
        await client.rows("a/0")
        assert await metric(server, "tidelog_append_messages_total") == 20
        assert await metric(server, "tidelog_append_batches_total") == 10
        assert await metric(server, "tidelog_scan_messages_total") == 20
        assert await metric(server, "tidelog_append_in_flight_bytes") == 0
        assert await metric(server, "tidelog_vchannels") == 3
        assert await metric(server, "tidelog_scanners") == 0
        assert await metric(server, "tidelog_storage_failed") == 0
        assert await metric(server, 'tidelog_append_errors_total{reason="REASON_CHANNEL_NOT_EXIST"}') == 1


async def test_a_grpc_client_at_the_http_port_is_told_so_and_logged_in_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        running_server(log__level="warning") as server,
        AsyncClient(server.http_endpoint, connect_timeout_s=0.3) as client,
    ):
        with capture_logs() as logged:
            with pytest.raises(UnavailableError, match="speaks HTTP/1, not gRPC") as error:
                await client.wal_name()
            assert "It may be the server's HTTP port" in str(error.value)
            assert error.value.effect == "none"
    events = {event["event"]: event for event in logged}
    assert "server.grpc_port" in events["http_request_malformed"]["reason"]
    assert events["http_request_malformed"]["peer"] == "127.0.0.1"
    assert "exc_info" not in events["http_request_malformed"]
    assert caplog.records == [], "a traceback on several lines"


async def test_a_defect_behind_the_http_port_is_logged_with_its_traceback() -> None:
    async def broken() -> bytes:
        raise ArithmeticError("a defect")

    server = HttpServer(dict, broken, Metrics(), on_failure=_failed)
    port = await server.start("127.0.0.1", 0)
    try:
        with capture_logs() as logged:
            status, _ = await asyncio.to_thread(_get, f"http://127.0.0.1:{port}/metrics")
    finally:
        await server.stop()
    assert status == 500
    [event] = logged
    assert (event["event"], event["log_level"], event["message"]) == (
        "http_server", "error", "Error handling request from 127.0.0.1"
    )  # fmt: skip
    assert isinstance(event["exc_info"], ArithmeticError)


async def test_a_client_is_told_why_there_is_no_connection() -> None:
    async with AsyncClient("127.0.0.1:1", connect_timeout_s=0.3) as client:
        with pytest.raises(UnavailableError, match=r"no connection to 127\.0\.0\.1:1 .* \(Connection refused\): start"):
            await client.wal_name()


async def test_readiness_turns_red_when_storage_fails_and_says_why() -> None:
    async with running_server(store=FaultyStore(fails_at_sync=1)) as server, connected(server) as client:
        await client.create("a")
        await client.append_all([a_request("a")])
        status, text = await get(server, "/readyz")
        assert status == 503
        assert "sync: input/output error" in text
        assert await get(server, "/livez") == (200, "ok\n")
        assert await metric(server, "tidelog_storage_failed") == 1
        described = await client.channels.DescribeChannels(channel_service_pb2.DescribeChannelsRequest(names=["a"]))
        assert described.channels[0].stopped_by == "sync: input/output error"


async def test_readiness_turns_red_at_shutdown() -> None:
    async with running_server() as server:
        server._log.begin_shutdown()
        assert await get(server, "/readyz") == (503, "not ready: shutting down\n")


async def test_readiness_turns_red_while_the_disk_is_nearly_full_and_green_again() -> None:
    async with running_server(limits__min_free_disk_bytes="1GiB") as server, connected(server) as client:
        await client.create("a", "b")
        await client.append("a", b"x")
        server._log.note_free_disk(500 << 20)
        assert await get(server, "/readyz") == (503, "not ready: the disk is nearly full\n")
        (answer,) = await client.append_all([a_request("a")])
        refusal = refusal_in(answer)
        assert refusal.reason == error_pb2.REASON_DISK_FULL
        assert "500 MiB free, and appends are refused below 1024 MiB: trim channels with `tidelog" in refusal.text
        assert "channel trim`, or enlarge the disk" in refusal.text
        async with refused() as found:
            await client.create("c")
        assert found[0].reason == error_pb2.REASON_DISK_FULL
        # Calls that free disk space continue, and so do reads.
        assert len(await client.rows("a")) == 1
        await server._node.vchannels.trim("a")
        await server._node.lifecycle.destroy(["b"], ignore_missing=False)
        server._log.note_free_disk(2 << 30)
        assert await get(server, "/readyz") == (200, "ok\n")
        await client.append("a", b"y")


async def test_malformed_requests_are_counted_and_logged_once_a_second() -> None:
    async with running_server(log__level="warning") as server:
        host, port = server.http_endpoint.rsplit(":", 1)
        began_s = asyncio.get_running_loop().time()
        with capture_logs() as logged:
            for _ in range(100):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(b"nonsense\r\n\r\n")
                assert b" 400 " in await reader.read()
                writer.close()
            took_s = asyncio.get_running_loop().time() - began_s
            while sum(event["count"] for event in logged) < 100:
                await asyncio.sleep(0.05)
        assert {event["event"] for event in logged} == {"http_request_malformed"}
        assert len(logged) <= took_s + 2
        assert await metric(server, "tidelog_http_requests_malformed_total") == 100


async def test_callers_of_metrics_share_what_is_rendered_once_a_second() -> None:
    renders = 0

    async def render() -> bytes:
        nonlocal renders
        renders += 1
        return b"%d" % renders

    server = HttpServer(dict, render, Metrics(), on_failure=_failed)
    loop = asyncio.get_running_loop()
    port = await server.start("127.0.0.1", 0)
    try:
        began_s, answers = loop.time(), 0
        while loop.time() < began_s + 3:
            pages = [asyncio.to_thread(_get, f"http://127.0.0.1:{port}/metrics") for _ in range(4)]
            answers += len(await asyncio.gather(*pages))
        assert renders <= METRICS_RENDERS_AT_ONCE + METRICS_RENDERS_PER_S * (loop.time() - began_s) + 1
        assert answers > renders
    finally:
        await server.stop()


async def test_a_scrape_gets_what_was_rendered_after_it_asked() -> None:
    value = 0

    async def render() -> bytes:
        before = value
        await asyncio.sleep(0.05)
        return b"%d" % before

    server = HttpServer(dict, render, Metrics(), on_failure=_failed)
    port = await server.start("127.0.0.1", 0)
    try:
        first = asyncio.ensure_future(asyncio.to_thread(_get, f"http://127.0.0.1:{port}/metrics"))
        for value in range(1, 15):
            await asyncio.sleep(0.02)
            _, text = await asyncio.to_thread(_get, f"http://127.0.0.1:{port}/metrics")
            assert int(text) == value
        await first
    finally:
        await server.stop()


async def test_requests_of_the_http_port_have_a_rate_together() -> None:
    server = HttpServer(dict, _no_metrics, Metrics(), on_failure=_failed)
    loop = asyncio.get_running_loop()
    port = await server.start("127.0.0.1", 0)
    try:
        count, began_s = 3 * MAX_HTTP_CONNECTIONS, loop.time()

        async def ask() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(count // 4):
                writer.write(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
                assert b"200 OK" in await reader.readuntil(b"ok\n")
            writer.close()

        await asyncio.gather(*(ask() for _ in range(4)))
        assert loop.time() - began_s >= (count - MAX_HTTP_CONNECTIONS) / MAX_HTTP_REQUESTS_PER_S - 0.1
    finally:
        await server.stop()


async def test_a_request_that_does_not_come_in_time_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_listener, "HTTP_REQUEST_WITHIN_S", 0.5)
    server = HttpServer(dict, _no_metrics, Metrics(), on_failure=_failed)
    port = await server.start("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: ")
        answer = asyncio.ensure_future(reader.read())
        async with asyncio.timeout(20):
            while not answer.done():
                writer.write(b"a")
                await asyncio.wait((answer,), timeout=0.1)
        writer.close()
    finally:
        await server.stop()


def _failed(name: str, cause: BaseException) -> None:
    pytest.fail(f"the task {name} failed: {cause!r}")


async def _no_metrics() -> bytes:
    return b""
