"""Which requests of browsers are answered, and how requests are read.

A browser sends requests for any page that it shows, and adds passwords and client certificates that it knows. So a
request that another site has caused is refused. Without authentication the name of the host counts too: a site whose
name leads to this machine could read the answers.
"""

import asyncio
import ipaddress
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from tidelog_server.core.limits import API_READ_WITHIN_S

_OTHER_SITES: Final = ("cross-site", "same-site")


def is_from_other_site(request: web.Request) -> bool:
    """Return whether a browser says that another site has caused a request."""
    origin = request.headers.get("Origin")
    if origin is not None and origin.lower().partition("://")[2] != request.headers.get("Host", "").lower():
        return True
    is_navigation = request.method == "GET" and request.headers.get("Sec-Fetch-Mode") == "navigate"
    return request.headers.get("Sec-Fetch-Site") in _OTHER_SITES and not is_navigation


def is_own_host(request: web.Request, known: str) -> bool:
    """Return whether the host that a request names belongs to this server.

    It is an address, a name without a dot, which public names are not, or the host that the server listens on.
    """
    try:
        host = urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
        if host == known or ("." not in host and ":" not in host):
            return True
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def read_body(request: web.Request, max_bytes: int) -> bytes:
    """Return the content of a request.

    Raises:
        HTTPRequestEntityTooLarge: It is larger than ``max_bytes``.
        HTTPRequestTimeout: It did not arrive within API_READ_WITHIN_S.
    """
    if (request.content_length or 0) > max_bytes:
        raise web.HTTPRequestEntityTooLarge(max_bytes, request.content_length or 0)
    parts: list[bytes] = []
    size_bytes = 0
    try:
        async with asyncio.timeout(API_READ_WITHIN_S):
            async for part in request.content.iter_any():
                parts.append(part)
                size_bytes += len(part)
                if size_bytes > max_bytes:
                    raise web.HTTPRequestEntityTooLarge(max_bytes, size_bytes)
    except TimeoutError as error:
        raise web.HTTPRequestTimeout from error
    return b"".join(parts)
