"""Plain HTTP requests with every header under the test's control."""

import asyncio
import http.client
import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlencode


class Answer(NamedTuple):
    """An answer by HTTP."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def form(self) -> dict[str, list[str]]:
        """The content as URL-encoded fields."""
        return parse_qs(self.content.decode(), keep_blank_values=True, strict_parsing=bool(self.content))


def request(
    endpoint: str,
    method: str,
    path: str,
    content: bytes | Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """Make a request. A mapping is sent as a form; its values may be lists."""
    host, _, port = endpoint.rpartition(":")
    sent = dict(headers or {})
    if isinstance(content, Mapping):
        content = urlencode(content, doseq=True).encode()
        sent.setdefault("Content-Type", "application/x-www-form-urlencoded")
    connection: http.client.HTTPConnection
    if tls is None:
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
    else:
        connection = http.client.HTTPSConnection(host, int(port), timeout=60, context=tls)
    try:
        connection.request(method, path, content, sent)
        response = connection.getresponse()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
    finally:
        connection.close()


async def requested(endpoint: str, method: str, path: str, *args: Any, **options: Any) -> Answer:
    """Make a request in a thread. See ``request``."""
    return await asyncio.to_thread(request, endpoint, method, path, *args, **options)
