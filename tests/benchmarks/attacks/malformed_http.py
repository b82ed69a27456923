"""Invalid requests on the HTTP port, and requests without credentials or content, each on a connection of its own."""

import asyncio
from contextlib import suppress
from typing import Final

from benchmarks.attacks.attack import Assault, Attack

_AT_ONCE: Final = 8
_REQUESTS: Final = (
    b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", b"\x00" * 64 + b"\r\n\r\n",
    b"POST /api/v1/mailboxes/jobs/messages HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n",
    b"POST /api/v1/mailboxes HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\nnot gzip",
    b"POST /livez HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /api/v1/mailboxes HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\n\r\n{\"\\ud800\": 1}",
    b"GET /livez HTTP/1.1\r\nHost: a\r\nExpect: \xff\r\n\r\n",
)  # fmt: skip
_ANSWER_WITHIN_S: Final = 1.0


async def run(assault: Assault) -> None:
    """Send them."""
    async with asyncio.TaskGroup() as senders:
        for _ in range(_AT_ONCE):
            senders.create_task(_send(assault))
        assault.under_way()


async def _send(assault: Assault) -> None:
    host, _, port = assault.order.http_endpoint.rpartition(":")
    while True:
        for request in _REQUESTS:
            with suppress(OSError, TimeoutError):
                reader, writer = await asyncio.open_connection(host, int(port))
                try:
                    writer.write(request)
                    assault.counts["requests"] += 1
                    async with asyncio.timeout(_ANSWER_WITHIN_S):
                        await reader.read()
                finally:
                    writer.close()


ATTACK: Final = Attack(name="malformed-http", what="sends malformed requests to the HTTP port", run=run, is_open=True)
