"""Which requests of browsers are answered, and how requests are read.

A browser sends requests for any page that it shows, and adds passwords and client certificates that it knows. So a
request that another site has caused is refused. Without authentication the name of the host counts too: a site whose
name leads to this machine could read the answers.
"""

import asyncio
import ipaddress
from collections.abc import Collection
from contextlib import nullcontext
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from tidelog_server.core.limits import KIB
from tidelog_server.rpc.calls import OtherAnswerError
from tidelog_server.rpc.web.bounds import ApiBounds

# Contents above this size share MAX_API_READS.
API_SMALL_BYTES: Final = 64 * KIB
# Less than HTTP_REQUEST_WITHIN_S, so that a request that is too slow is answered before its connection is closed.
API_READ_WITHIN_S: Final = 9.0

_OTHER_SITES: Final = ("cross-site", "same-site")


class UnmadeCallError(OtherAnswerError):
    """A request did not become a call; ``status`` is that of the answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class NotReadError(UnmadeCallError):
    """The content of a request was not read."""


def is_from_other_site(request: web.Request) -> bool:
    """Return whether a browser says that another site has caused a request."""
    origin = request.headers.get("Origin")
    if origin is not None and origin.lower().partition("://")[2] != request.headers.get("Host", "").lower():
        return True
    is_navigation = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
    return request.headers.get("Sec-Fetch-Site") in _OTHER_SITES and not is_navigation


def is_own_host(request: web.Request, known: Collection[str]) -> bool:
    """Return whether the host that a request names belongs to this server.

    It is an address, a name without a dot, which public names are not, or one that the configuration names.
    """
    try:
        host = urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
        if host in known or ("." not in host and ":" not in host):
            return True
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def read_body(request: web.Request, max_bytes: int, bounds: ApiBounds) -> bytes:
    """Return the content of a request; one that is not small waits for its turn.

    Raises:
        NotReadError: It is larger than ``max_bytes``, coded, malformed, or did not arrive within API_READ_WITHIN_S.
    """
    if (coding := request.headers.get("Content-Encoding", "identity").strip().lower()) not in ("", "identity"):
        raise NotReadError(415, f"the content is coded ({coding[:40]!r}): send it without Content-Encoding")
    size_bytes = request.content_length
    if size_bytes is not None and size_bytes > max_bytes:
        raise _too_large(size_bytes, max_bytes)
    turn = nullcontext() if size_bytes is not None and size_bytes <= API_SMALL_BYTES else bounds.reading(request)
    try:
        async with asyncio.timeout(API_READ_WITHIN_S), turn:
            return await _read(request, max_bytes)
    except TimeoutError as error:
        raise NotReadError(408, f"the content did not arrive within {API_READ_WITHIN_S:g} s: send it again") from error
    except web.RequestPayloadError as error:
        raise NotReadError(400, "the content is malformed: correct its chunks or its length") from error


async def _read(request: web.Request, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    async for part in request.content.iter_any():
        parts.append(part)
        size_bytes += len(part)
        if size_bytes > max_bytes:
            raise _too_large(size_bytes, max_bytes)
    return b"".join(parts)


def _too_large(size_bytes: int, max_bytes: int) -> NotReadError:
    return NotReadError(413, f"the content has {size_bytes} bytes or more, at most {max_bytes} are allowed")
