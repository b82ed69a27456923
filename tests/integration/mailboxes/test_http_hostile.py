"""What a caller may cost by HTTP before it is known, and before its permission is checked; what no input causes.

A caller is identified by the headers, and its permission checked by the path, before any content is read; what is read
has bounds; calls and waits are shared by principals; malformed requests cause neither a status 500 nor a long log.

Method: real servers, requests written by hand, and mixtures of malformed requests: seconds in the core, ten minutes as
a soak.
"""

import asyncio
import json
import os
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import API_INLINE_BYTES, MAX_API_CALLS, MAX_HTTP_CONNECTIONS, MAX_MAILBOX_BATCH
from tidelog_server.rpc.http import MAX_HTTP_REQUESTS_PER_S
from tidelog_server.rpc.web import json_reader
from tidelog_server.rpc.web.bounds import MAX_API_WAITS
from tidelog_server.rpc.web.json_reader import MAX_API_DEPTH, MAX_API_MEMBERS, MAX_API_VALUES, read_json
from tidelog_server.rpc.web.pandora import MAX_FORM_FIELDS
from tidelog_testing.loads.malformed_http import attack
from tidelog_testing.parts.fixtures import secured_with
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.parts.http_calls import Answer, requested
from tidelog_testing.servers.secured import Secured, secured_server, until

JOBS = "/api/v1/mailboxes/jobs"
FORM = "application/x-www-form-urlencoded"
SOAK_S = float(os.environ.get("TIDELOG_SOAK_HTTP_S", "600"))
MAX_LOG_BYTES = 1_000_000
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
secured = secured_with(mailboxes__http_prefix="/pandora")


def tls_of(secured: Secured) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(secured.authority.ca))


async def call(
    secured: Secured,
    token: str,
    method: str,
    path: str,
    content: bytes | Mapping[str, str] | None = None,
    **headers: str,
) -> Answer:
    sent = {"Authorization": f"Bearer {token}", **headers}
    return await requested(secured.server.http_endpoint, method, path, content, sent, tls=tls_of(secured))


@asynccontextmanager
async def begun(
    endpoint: str, tls: ssl.SSLContext | None, path: str, content: bytes | int, **headers: str
) -> AsyncIterator[Stream]:
    """Begin a request with a content, sent at once with its head; of a number of bytes no byte is sent."""
    host, _, port = endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    told = {"Host": "localhost", **headers}
    if isinstance(content, int):
        told["Content-Length"], content = str(content), b""
    head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in told.items())
    writer.write(head.encode() + b"\r\n" + content)
    try:
        yield reader, writer
    finally:
        writer.close()


async def status_of(stream: Stream) -> int:
    async with asyncio.timeout(30):
        return int((await stream[0].readline()).split()[1])


# -- Before a content is read --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [JOBS + "/messages", "/api/v1/mailboxes", "/pandora/send", "/pandora/"])
async def test_a_caller_is_known_before_its_content_is_read(secured: Secured, path: str) -> None:
    weak = await secured.token("read:zzz")
    for token, status in (("", 401), ("wrong", 401), (weak, 403)):
        if path == "/pandora/" and token == weak:
            continue
        headers = {"Content-Type": FORM, **({"Authorization": f"Bearer {token}"} if token else {})}
        size = 1_000
        async with begun(secured.server.http_endpoint, tls_of(secured), path, size, **headers) as stream:
            assert await status_of(stream) == status, token
    assert secured.server._http._api_calls == 0


async def test_the_permission_on_the_name_in_the_path_is_checked_before_the_content(secured: Secured) -> None:
    other = await secured.token("mailbox.send:other", "mailbox.receive:other")
    for action in ("messages", "ack", "extend", "fetch", "purge"):
        headers = {"Authorization": f"Bearer {other}"}
        path = f"{JOBS}/{action}"
        async with begun(secured.server.http_endpoint, tls_of(secured), path, 2_000_000, **headers) as stream:
            assert await status_of(stream) == 403


async def test_requests_without_credentials_and_contents_hold_nothing(secured: Secured) -> None:
    endpoint, tls = secured.server.http_endpoint, tls_of(secured)
    assert (await call(secured, secured.admin, "POST", "/api/v1/mailboxes", b'{"name": "jobs"}')).status == 201
    async with AsyncExitStack() as stack:
        for _ in range(MAX_API_CALLS):
            await stack.enter_async_context(begun(endpoint, tls, JOBS + "/messages", 100))
        for _ in range(10):
            sent = await call(secured, secured.admin, "POST", JOBS + "/messages", b'{"messages": [{"body": "x"}]}')
            assert sent.status == 200
        assert secured.server._http._api_calls == 0


# -- Shares --------------------------------------------------------------------------------------------------


async def test_one_principal_leaves_calls_and_waits_to_another(secured: Secured) -> None:
    endpoint, tls = secured.server.http_endpoint, tls_of(secured)
    assert (await call(secured, secured.admin, "POST", "/api/v1/mailboxes", b'{"name": "jobs"}')).status == 201
    one, two = await secured.token("mailbox.receive:jobs"), await secured.token("mailbox.receive:jobs")
    wait, headers = b'{"wait_ms": 60000}', {"Authorization": f"Bearer {one}"}
    async with AsyncExitStack() as stack:
        for _ in range(MAX_API_WAITS // 2):
            _, writer = await stack.enter_async_context(begun(endpoint, tls, JOBS + "/fetch", len(wait), **headers))
            writer.write(wait)
        waits = secured.server._rpc.web_calls.bounds.waits  # type: ignore[union-attr]  # it serves
        await until(lambda: waits.total == MAX_API_WAITS // 2)
        refused = await call(secured, one, "POST", JOBS + "/fetch", wait)
        assert refused.status == 429
        assert "this principal uses 48 fetches by HTTP that wait" in json.loads(refused.content)["error"]["message"]
        assert (await call(secured, two, "POST", JOBS + "/fetch", b'{"wait_ms": 1}')).status == 200
        # Contents that do not arrive.
        for _ in range(MAX_API_CALLS // 2 - MAX_API_WAITS // 2):
            await stack.enter_async_context(begun(endpoint, tls, JOBS + "/fetch", 100, **headers))
        await until(lambda: secured.server._http._api_calls == MAX_API_CALLS // 2)
        assert (await call(secured, one, "POST", JOBS + "/fetch", b"{}")).status == 429
        assert (await call(secured, two, "POST", JOBS + "/fetch", b"{}")).status == 200
    await until(lambda: secured.server._http._api_calls == 0)


async def test_large_contents_that_do_not_arrive_leave_turns_to_another_principal(secured: Secured) -> None:
    endpoint, tls = secured.server.http_endpoint, tls_of(secured)
    assert (await call(secured, secured.admin, "POST", "/api/v1/mailboxes", b'{"name": "jobs"}')).status == 201
    one, two = await secured.token("mailbox.send:jobs"), await secured.token("mailbox.send:jobs")
    async with AsyncExitStack() as stack:
        for _ in range(20):
            headers = {"Authorization": f"Bearer {one}"}
            await stack.enter_async_context(begun(endpoint, tls, JOBS + "/messages", 1_000_000, **headers))
        await until(lambda: secured.server._http._api_calls == 20)
        large = json.dumps({"messages": [{"body": "x" * 300_000}]}).encode()
        async with asyncio.timeout(5):
            assert (await call(secured, two, "POST", JOBS + "/messages", large)).status == 200


# -- What is read has bounds ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"confirmed": [' + b'"",' * 690_000 + b'""]}', f"{MAX_MAILBOX_BATCH} elements"),
        (b'{"messages": [' + b'{"body":""},' * 170_000 + b"{}]}", f"{MAX_MAILBOX_BATCH} elements"),
        (b'{"messages": [{' + b'"body":"",' * 170_000 + b'"body":""}]}', f"{MAX_API_MEMBERS} members"),
        (b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}", f"{MAX_API_DEPTH} levels"),
        (b"[" * 500_000, f"{MAX_API_DEPTH} levels"),
        (b"[" + (b"[" + b"1," * 999 + b"1],") * 999 + b"1]", f"{MAX_API_VALUES} values"),
    ],
)
def test_json_is_read_up_to_its_bounds(content: bytes, message: str) -> None:
    decoder = json_reader._Decoder()
    with pytest.raises(InvalidRequestError, match=message):
        decoder.decode(content.decode())
    assert decoder._values <= MAX_API_VALUES + 1
    with pytest.raises(InvalidRequestError, match=message):
        read_json(content)


def test_json_within_its_bounds_is_that_of_the_standard_library() -> None:
    message = {"body": "ü" + "x" * 100, "headers": {"a": "\ud800"}, "priority": 1.5e3, "b": [None, True, -7]}
    value = {"messages": [message] * MAX_MAILBOX_BATCH}
    assert read_json(json.dumps(value).encode()) == value
    assert read_json(b"\xff\xfe{\x00}\x00") == {}
    assert read_json(b"") == {}
    for content in (b"{", b"\xff", b"nothing", b"[1,]", b"1" * 5_000):
        with pytest.raises(InvalidRequestError, match="not valid JSON"):
            read_json(content)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'{"\\ud800": 1}', r"the field '\ud800' is unknown"),
        (b'{"messages": [{"body_base64": "\xc3\xa9"}]}', "expected base64"),
        (b'{"messages": [{"body": "\\udfff"}]}', "expected text that UTF-8 can encode"),
        (b'{"messages": [{"body": "x", "headers": {"\\ud800": "1"}}]}', "expected a value in its range"),
        (b'{"confirmed": [' + b'"",' * 10_000 + b'""]}', "send less at a time"),
    ],
)
@pytest.mark.parametrize("padding", [0, API_INLINE_BYTES])
async def test_text_that_is_none_is_an_invalid_value(tmp_path: Path, content: bytes, text: str, padding: int) -> None:
    async with running_server(tmp_path / "data") as server:
        answer = await requested(server.http_endpoint, "POST", JOBS + "/messages", content + b" " * padding)
        error = json.loads(answer.content)["error"]
        assert (answer.status, error["reason"], error["effect"]) == (400, "INVALID_ARGUMENT", "none")
        assert text in error["message"]


async def test_a_form_has_a_bounded_number_of_fields(tmp_path: Path) -> None:
    async with running_server(
        tmp_path / "data", mailboxes__http_prefix="/pandora", mailboxes__http_max_body_bytes="1MiB"
    ) as server:
        for content, status in ((b"a=&b=&" * 500_000, 400), (b"sender=a&receiver=b&" + b"a=&" * 1_000, 200)):
            answer = await requested(server.http_endpoint, "POST", "/pandora/send", content, {"Content-Type": FORM})
            assert answer.status == status
            assert status == 200 or f"more than {MAX_FORM_FIELDS} fields" in answer.form["error"][0]


async def test_a_coded_or_malformed_content_is_refused_and_not_logged_at_length(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data", mailboxes__http_prefix="/pandora", log__level="info") as server:
        with capture_logs() as logged:
            for coding in ("gzip", "deflate", "br", "x"):
                headers = {"Content-Encoding": coding, "Content-Type": FORM}
                for path in (JOBS + "/messages", "/pandora/send", "/pandora/"):
                    answer = await requested(server.http_endpoint, "POST", path, b"not gzip", headers)
                    assert answer.status == 415, path
            chunks = {"Transfer-Encoding": "chunked", "Content-Type": FORM}
            for path in (JOBS + "/messages", "/pandora/send", "/livez"):
                async with begun(server.http_endpoint, None, path, b"zz\r\nabc\r\n", **chunks) as stream:
                    assert await status_of(stream) == 400, path
        assert all("exc_info" not in event or event["exc_info"] is None for event in logged), logged


# -- Malformed requests --------------------------------------------------------------------------------------


async def attacked(folder: Path, seconds: float, seed: int) -> None:
    async with secured_server(
        folder, mailboxes__http_prefix="/pandora", quota__auth_failures_per_minute=10, log__level="info"
    ) as secured:
        with capture_logs() as logged:
            answers = await attack(secured.server.http_endpoint, seconds, seed, tls_of(secured))
    assert answers.failed == []
    assert {400, 401, 404}.issubset(answers.by_status), answers.by_status
    # More than in a run of this time, of the same requests, would be one of the kinds that are not bounded.
    assert len(repr(logged)) < MAX_LOG_BYTES * min(1, max(seconds, 60) / 600), logged[-3:]
    assert all(event["log_level"] != "error" for event in logged), logged


async def test_no_malformed_request_is_answered_with_500_or_logged_at_length(tmp_path: Path) -> None:
    await attacked(tmp_path, 5, seed=0)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
async def test_ten_minutes_of_malformed_requests(tmp_path: Path) -> None:
    await attacked(tmp_path, SOAK_S, seed=1_000)


async def test_without_authentication_no_malformed_request_is_answered_with_500(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data", mailboxes__http_prefix="/pandora", log__level="warning") as server:
        assert (await requested(server.http_endpoint, "POST", "/api/v1/mailboxes", b'{"name": "jobs"}')).status == 201
        with capture_logs() as logged:
            answers = await attack(server.http_endpoint, 5, seed=7)
    assert answers.failed == []
    assert {event["event"] for event in logged} <= {"http_request_malformed"}


async def test_requests_of_unknown_callers_have_a_rate_together(secured: Secured) -> None:
    loop = asyncio.get_running_loop()
    host, _, port = secured.server.http_endpoint.rpartition(":")
    began_s, count = loop.time(), 2 * MAX_HTTP_CONNECTIONS

    async def ask() -> None:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=tls_of(secured))
        for _ in range(count // 4):
            writer.write(b"GET /api/v1/mailboxes HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b" 401 " in await reader.readuntil(b"\r\n\r\n")
            await reader.readuntil(b"}}}")
        writer.close()

    await asyncio.gather(*(ask() for _ in range(4)))
    assert loop.time() - began_s >= (count - MAX_HTTP_CONNECTIONS) / MAX_HTTP_REQUESTS_PER_S - 0.1


# -- Hosts and headers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/readyz", "/nothing", "/api/v1/mailboxes", "/pandora/"])
async def test_a_name_that_leads_here_is_refused_on_all_paths(tmp_path: Path, path: str) -> None:
    async with running_server(
        tmp_path / "data", mailboxes__http_prefix="/pandora", server__http_host="127.0.0.1"
    ) as server:
        for host, is_refused in (
            ("attacker.example", True), ("attacker.example:80", True), ("localhost:1", False), ("[::1]:80", False),
            ("127.0.0.1", False), ("tidelog-0", False), ("127.0.0.1.example", True),
        ):  # fmt: skip
            answer = await requested(server.http_endpoint, "GET", path, None, {"Host": host})
            assert (answer.status == 403) == is_refused, host


async def test_a_host_of_the_configuration_is_this_server(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data", cluster__advertise="Log.example.org:7420") as server:
        for host, status in (("log.example.org:7421", 200), ("LOG.EXAMPLE.ORG", 200), ("example.org", 403)):
            assert (await requested(server.http_endpoint, "GET", "/metrics", None, {"Host": host})).status == status, (
                host
            )


async def test_local_metrics_need_a_token_under_the_name_of_another_site(secured: Secured) -> None:
    async def scraped(**headers: str) -> int:
        endpoint, tls = secured.server.http_endpoint, tls_of(secured)
        return (await requested(endpoint, "GET", "/metrics", None, headers, tls=tls)).status

    assert await scraped() == 200
    assert await scraped(Host="attacker.example") == 401
    assert await scraped(Host="log.example.org", Authorization=f"Bearer {secured.admin}") == 200


async def test_every_answer_has_the_same_safe_headers(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data", mailboxes__http_prefix="/pandora") as server:
        for method, path, content in (
            ("GET", "/livez", None), ("GET", "/readyz", None), ("GET", "/metrics", None), ("GET", "/nothing", None),
            ("POST", "/livez", b""), ("GET", "/api/v1/nothing", None), ("POST", "/pandora/send", b""),
            ("POST", "/pandora/send", b"a" * 40_000), ("GET", "/pandora/", None), ("BAD METHOD", "/", None),
        ):  # fmt: skip
            answer = await requested(server.http_endpoint, method, path, content, {"Content-Type": FORM})
            assert answer.headers["x-content-type-options"] == "nosniff", (method, path)
            assert "server" not in answer.headers, (method, path)


# -- Whether a mailbox exists --------------------------------------------------------------------------------


async def test_a_send_does_not_tell_which_mailboxes_exist(secured: Secured) -> None:
    admin, sent = secured.admin, {"sender": "a/box", "receiver": "a/box", "topic": "x"}
    assert (await call(secured, admin, "POST", "/pandora/send", sent)).status == 200
    other = await secured.token("mailbox.send:b/*", "mailbox.manage:b/*")
    for place in ("receiver", "sender"):
        answers = [
            await call(secured, other, "POST", "/pandora/send", {"sender": "b/x", "receiver": "b/x", place: name})
            for name in ("a/box", "a/bux")
        ]
        texts = [answer.content.replace(b"a%2Fbux", b"a%2Fbox") for answer in answers]
        assert [answer.status for answer in answers] == [403, 403]
        assert texts[0] == texts[1]
    assert (await call(secured, other, "POST", "/pandora/send", {"sender": "b/x", "receiver": "b/x"})).status == 200
