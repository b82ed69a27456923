"""Endpoints of this machine's server, from the variables that configure it.

A health check runs in the environment of its server, for example in the same container.
"""

import os
from typing import Final

_LOOPBACK: Final = "127.0.0.1"
_ALL_ADDRESSES: Final = ("", "0.0.0.0", "::")


def http_endpoint() -> str:
    """Return ``host:port`` of the HTTP port, which serves probes and metrics."""
    return _endpoint("HTTP_HOST", "HTTP_PORT", "7421")


def grpc_endpoint() -> str:
    """Return ``host:port`` of the gRPC port."""
    return _endpoint("HOST", "GRPC_PORT", "7420")


def _endpoint(host_name: str, port_name: str, default_port: str) -> str:
    host = os.environ.get(f"TIDELOG_SERVER__{host_name}", "")
    port = os.environ.get(f"TIDELOG_SERVER__{port_name}", "") or default_port
    if host in _ALL_ADDRESSES:
        host = _LOOPBACK
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
