"""Endpoints of this machine's server, from the variables that configure it.

A health check runs in the environment of its server, for example in the same container.
"""

import os
from typing import Annotated, Final

import typer

from tidelog_cli.options.passed import is_passed

# The address of this machine at which a server answers that listens on all addresses.
_REACHED_AT: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def http_endpoint() -> str:
    """Return ``host:port`` of the HTTP port, which serves probes and metrics."""
    return _endpoint("HTTP_HOST", "HTTP_PORT", "7421")


def grpc_endpoint() -> str:
    """Return ``host:port`` of the gRPC port."""
    return _endpoint("HOST", "GRPC_PORT", "7420")


def _endpoint(host_name: str, port_name: str, default_port: str) -> str:
    host = os.environ.get(f"TIDELOG_SERVER__{host_name}", "").strip("[]")
    port = os.environ.get(f"TIDELOG_SERVER__{port_name}", "") or default_port
    host = _REACHED_AT.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _of_http(call: typer.Context, value: str) -> str:
    """Return the value of ``--http``. Raises BadParameter if the address of gRPC is given in its place."""
    if call.find_root().params.get("endpoint") and not is_passed(call, "http"):
        raise typer.BadParameter("it is not given, and --endpoint is the address of gRPC: pass --http HOST:PORT")
    return value


HttpOption = Annotated[
    str,
    typer.Option(
        "--http",
        envvar="TIDELOG_HTTP_ENDPOINT",
        callback=_of_http,
        default_factory=http_endpoint,
        help="host:port of the server's HTTP endpoint. Default: this machine, TIDELOG_SERVER__HTTP_PORT or 7421.",
    ),
]
