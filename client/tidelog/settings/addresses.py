"""Addresses of servers: ``host:port``, or ``tidelog://`` and ``tidelogs://`` with one or several of them."""

import re
from dataclasses import dataclass
from typing import Final

from tidelog.transport.endpoints import check_address

_URL: Final = re.compile(r"(tidelogs?)://(.*)", re.DOTALL)
_SECURE: Final = "tidelogs"
_EXPECTED: Final = "expected tidelog://HOST:PORT or tidelogs://HOST:PORT, with more after commas"


@dataclass(frozen=True, slots=True)
class Addresses:
    """The nodes of a cluster, or a server.

    Attributes:
        endpoints: ``host:port`` of each, at least one, all different.
        needs_tls: Whether only TLS may be used. If not, it is used if an option of TLS is set.
    """

    endpoints: tuple[str, ...]
    needs_tls: bool = False


def is_url(text: object) -> bool:
    """Return whether ``text`` is a URL of ours: a client that gets one finds the owners of channels."""
    # Untyped callers may pass only a port number.
    return isinstance(text, str) and _URL.match(text) is not None


def addresses_of(text: str) -> Addresses:
    """Return the addresses in a URL, or in a list of ``host:port`` separated by commas. Pure.

    Raises:
        ValueError: There are no addresses, or one is invalid. The error never has what precedes an ``@``, which may be
            a secret.
    """
    found = _URL.fullmatch(text.strip())
    listed = found[2].removesuffix("/") if found else text
    if found and "@" in listed:
        raise ValueError(f"the URL has an '@': {_EXPECTED}. Pass the token with token, or in TIDELOG_TOKEN_FILE")
    if found and (extra := re.search(r"[/?#]", listed)):
        raise ValueError(f"the URL '{text}' has '{listed[extra.start() :]}' after the address: {_EXPECTED}")
    endpoints = tuple(dict.fromkeys(each.strip() for each in listed.split(",") if each.strip()))
    if not endpoints:
        raise ValueError("there is no endpoint: pass the host:port of at least one node")
    for endpoint in endpoints:
        check_address(endpoint)
    return Addresses(endpoints, needs_tls=found is not None and found[1] == _SECURE)
