"""Malformed requests by HTTP, and connections that send them to a server one after another."""

import asyncio
import itertools
import random
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_CONNECTIONS: Final = 8
_ANSWER_WITHIN_S: Final = 0.2
_CLOSE_WITHIN_S: Final = 1.0
_PATHS: Final = (
    "/livez", "/metrics", "/nothing", "/api/v1", "/api/v1/openapi.json", "/api/v1/mailboxes", "/api/v1/mailboxes/jobs",
    "/api/v1/mailboxes/jobs/messages", "/api/v1/mailboxes/jobs/ack", "/api/v1/mailboxes/%FF/fetch",
    "/api/v1/mailboxes/\xed\xa0\x80/fetch", "/api/v1/mailboxes/%ED%A0%80/fetch", "/api/v1/mailboxes?page_size=\xff",
    "/api/v1/mailboxes/" + "a/" * 1_000, "/pandora", "/pandora/", "/pandora/send", "/pandora/ack", "/pandora/fetch",
    "/pandora/admin/headers?receiver=%ED%A0%80&receivedat=\xff", "/pandora/admin/fetchBlob?mid=" + "f" * 40,
    "/pandora/?receiver=\xff&receivedat=%00", "/pandora/admin/reenqueue", "*", "//", "/../etc/passwd", "http://[::1/x",
    "/%", "/\x7f", "/?" + "a&" * 3_000,
)  # fmt: skip
_METHODS: Final = (
    "GET",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "get",
    "G\xc9T",
    "X" * 99,
)
_HEADERS: Final[tuple[dict[str, str], ...]] = (
    {}, {"Content-Encoding": "gzip"}, {"Content-Encoding": "deflate"}, {"Content-Encoding": "br, gzip, identity"},
    {"Transfer-Encoding": "chunked"}, {"Transfer-Encoding": "gzip, chunked"}, {"Content-Length": "-1"},
    {"Content-Length": "1e3"}, {"Content-Length": "99999999999999999999"}, {"Content-Length": "7, 7"},
    {"Content-Type": "\xff/;;=="}, {"Content-Type": "multipart/form-data"},
    {"Content-Type": "application/x-www-form-urlencoded"},
    {"Content-Type": "application/json; charset=nothing"}, {"Content-Type": "application/json; charset=utf-16"},
    {"Authorization": "Basic \xff"}, {"Authorization": "Basic " + "A" * 5_000}, {"Authorization": "Bearer \xff\xfe"},
    {"Authorization": ""}, {"Host": "[::1"}, {"Host": "\xff"}, {"Host": "attacker.example"}, {"Host": "a" * 5_000},
    {"Origin": "null"}, {"Origin": "\xff"}, {"Expect": "100-continue"}, {"Expect": "\xff"}, {"Upgrade": "websocket"},
    {"Connection": "upgrade", "Upgrade": "h2c"}, {"Cookie": "\xff=;;"}, {"Range": "bytes=\xff"},
    {"If-Modified-Since": "\xff"}, {"X-" + "a" * 8_000: "x"}, {"Bad Name": "x"}, {"Accept": "text/html"},
    {"traceparent": "\xff"}, {"Accept-Encoding": "gzip;q=\xff"},
)  # fmt: skip
_CONTENTS: Final = (
    b"", b"{", b"[" * 5_000, b'{"\\ud800": 1}', b'{"messages": [{"body_base64": "\xc3\xa9"}]}', b'{"name": "\\ud800"}',
    b'{"name": NaN}', b"\xff\xfe{\x00}\x00", b"\x00" * 100, b'{"messages": ' + b"[" * 900 + b"]" * 900 + b"}",
    b'{"confirmed": [' + b'"",' * 5_000 + b'""]}', b"{" + b'"body": 1,' * 2_000 + b'"body": 1}', b"1" * 6_000,
    b'{"messages": [{"body": "x", "priority": ' + b"9" * 4_300 + b"}]}", b"sender=%zz", b"a;b", b"a&" * 5_000,
    b"sender=%ff&receiver=%ed%a0%80&delay=99999999h&clientTime=%00", b"receiver=" + b"x" * 30_000,
    b"mid=%ff&lid=&statusCode=%ff", b"csrf=%ff&action=send&to=%ff", b"5\r\nabc", b"zz\r\nabc\r\n0\r\n\r\n",
    b"0\r\n" + b"a: b\r\n" * 2_000 + b"\r\n", b"\x1f\x8b\x08\x00 no gzip",
)  # fmt: skip
_RAW: Final = (
    b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n a: folded\r\n\r\n", b"GET /livez HTTP/1.0\n\n", b"\r\n" * 1_000,
    b"GET /livez HTTP/1.1\rHost: a\r\r", b"POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"A" * 20_000, b"\x00" * 500,
    b"POST /pandora/send HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * 5_000 + b"\r\n",
    b"POST /livez HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /livez HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!",
)  # fmt: skip


def malformed_requests(seed: int) -> Iterator[bytes]:
    """Yield requests without end: each raw one, then mixtures of methods, paths, headers and contents."""
    yield from _RAW
    chosen = random.Random(seed)
    while True:
        yield _request(
            chosen.choice(_METHODS[:2] if chosen.random() < 0.7 else _METHODS), chosen.choice(_PATHS),
            chosen.choice(_HEADERS) | chosen.choice(_HEADERS), chosen.choice(_CONTENTS), chosen.random() < 0.1,
        )  # fmt: skip


def _request(method: str, path: str, headers: Mapping[str, str], content: bytes, is_cut: bool) -> bytes:
    told = {"Host": "localhost", **headers}
    if not told.keys() & {"Content-Length", "Transfer-Encoding"}:
        told["Content-Length"] = str(len(content))
    head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in told.items())
    whole = head.encode("latin-1") + b"\r\n" + content
    return whole[: len(whole) * 2 // 3] if is_cut else whole


@dataclass
class Answers:
    """What a server answered.

    Attributes:
        by_status: Number of answers by their status.
        failed: Requests that were answered with status 500, and the beginnings of the answers.
    """

    by_status: dict[int, int] = field(default_factory=dict)
    failed: list[tuple[bytes, bytes]] = field(default_factory=list)

    def note(self, request: bytes, answer: bytes) -> None:
        """Count an answer; a server may close the connection without one."""
        if not answer.startswith(b"HTTP/1."):
            return
        status = int(answer.split(None, 2)[1])
        self.by_status[status] = self.by_status.get(status, 0) + 1
        if status == 500:
            self.failed.append((request, answer[:1_000]))


async def attack(endpoint: str, seconds: float, seed: int, tls: ssl.SSLContext | None = None) -> Answers:
    """Send malformed requests on several connections, and return what the server answered."""
    answers = Answers()
    end_s = asyncio.get_running_loop().time() + seconds
    await asyncio.gather(
        *(
            _attack_once(endpoint, end_s, malformed_requests(seed + number), tls, answers)
            for number in range(_CONNECTIONS)
        )
    )
    return answers


async def _attack_once(
    endpoint: str, end_s: float, requests: Iterator[bytes], tls: ssl.SSLContext | None, answers: Answers
) -> None:
    host, _, port = endpoint.rpartition(":")
    loop = asyncio.get_running_loop()
    for number, request in zip(itertools.count(), requests, strict=False):
        if loop.time() >= end_s:
            return
        try:
            reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
        except OSError:
            continue
        try:
            writer.write(request)
            if number % 7 == 0:
                writer.write_eof() if writer.can_write_eof() else None
            async with asyncio.timeout(_CLOSE_WITHIN_S if number % 5 == 0 else _ANSWER_WITHIN_S):
                answers.note(request, await reader.read(4_096))
        except (TimeoutError, ConnectionError, ssl.SSLError):
            # A server may leave what is not a request without an answer.
            pass
        finally:
            writer.close()
