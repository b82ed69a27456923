"""Validation of server addresses."""

import ipaddress
import re
from typing import Final

# The targets that gRPC accepts besides host:port. A host may have such a name too: then only a port follows.
_SCHEME: Final = re.compile(r"(unix|unix-abstract|vsock|dns|ipv4|ipv6|xds):(?!\d{1,5}$)", re.ASCII)
_URL: Final = re.compile(r"\w+://", re.ASCII)
_BRACKETED: Final = re.compile(r"\[([^\]]*)\]:(.*)")
_NOT_IN_A_HOST: Final = re.compile(r"[\s/\\@?#,;\[\]'\"]")
_MAX_PORT: Final = 65_535
_EXPECTED: Final = "expected host:port, such as 127.0.0.1:7420 or [::1]:7420"


def check_address(endpoint: str) -> None:
    """Raise ValueError unless ``endpoint`` is ``host:port`` or another target of gRPC."""
    # Untyped callers may pass only a port number.
    if not isinstance(endpoint, str):
        raise ValueError(f"the endpoint is {endpoint!r}, which is not a string: {_EXPECTED}")
    if _SCHEME.match(endpoint):
        return
    if (wrong := _what_is_wrong(endpoint)) is not None:
        raise ValueError(f"the endpoint '{endpoint}' {wrong}: {_EXPECTED}")


def _what_is_wrong(endpoint: str) -> str | None:
    if _URL.match(endpoint):
        return "is a URL"
    if "," in endpoint:
        return "names several servers, which only AsyncCluster and Cluster accept, or has an extra comma"
    host, colon, port = endpoint.rpartition(":")
    if (bracketed := _BRACKETED.fullmatch(endpoint)) is not None:
        inner, port = bracketed.groups()
        wrong = None if _is_ipv6(inner) else f"has '{inner}' in brackets, which is not an IPv6 address"
    elif ":" in host:
        wrong = "has more than one colon; enclose an IPv6 address in brackets"
    elif not colon or not host:
        wrong = "has no host" if colon else "has no port"
    else:
        wrong = f"has '{host}' as its host, which is invalid" if _NOT_IN_A_HOST.search(host) else None
    if wrong is None and not (port.isascii() and port.isdecimal() and len(port) <= 5 and 1 <= int(port) <= _MAX_PORT):
        wrong = f"has the port '{port}', which is not in 1 to {_MAX_PORT}"
    return wrong


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
