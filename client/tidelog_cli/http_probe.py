"""Requests to a server's HTTP port. Uses only the standard library, because a health check runs every few seconds."""

import http.client
import os
from typing import Final

from tidelog_cli.files import readable_file

_MAX_PORT: Final = 65_535


def get(endpoint: str, path: str, timeout_s: float) -> tuple[int, str]:
    """Return the HTTP status and the body of a path.

    Args:
        endpoint: ``host:port``.
        path: Path with a leading slash, such as ``/readyz``.
        timeout_s: Seconds for each network operation.

    Raises:
        ValueError: ``endpoint`` is not ``host:port``, or TIDELOG_TLS_CA names no file of certificates.
        CommandError: That file cannot be read.
        OSError, HTTPException: No server responds.
    """
    host, _, port = endpoint.rpartition(":")
    if not (host and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= _MAX_PORT):
        raise ValueError(f"invalid --http '{endpoint}': expected host:port")
    connection = _connection(host.strip("[]"), int(port), timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8", "replace")
    finally:
        connection.close()


def _connection(host: str, port: int, timeout_s: float) -> http.client.HTTPConnection:
    """Return a connection to the HTTP port; over TLS if TIDELOG_TLS_CA names a CA file."""
    if authorities := os.environ.get("TIDELOG_TLS_CA"):
        import ssl

        try:
            context = ssl.create_default_context(cafile=str(readable_file(authorities)))
        except ssl.SSLError as error:
            raise ValueError(f"TIDELOG_TLS_CA is {authorities}, which has no certificate in PEM form") from error
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
    return http.client.HTTPConnection(host, port, timeout=timeout_s)
