"""Finds out why a connection failed, and what the caller can do about it."""

import asyncio
import os
import ssl
from typing import Any, Final, Literal

import grpc.aio

from tidelog.transport.credentials import TlsOptions

_HARMLESS_METHOD: Final = "/grpc.health.v1.Health/Check"
_REASON_WITHIN_S: Final = 0.2
_HANDSHAKE_WITHIN_S: Final = 0.6
# Part of the details that gRPC's core reports for a server that answers in HTTP/1.
_HTTP1: Final = "http1.x"
_START: Final = "start a server with `tidelog serve`, or correct the endpoint"


async def why_not_connected(channel: grpc.aio.Channel, endpoint: str, tls: TlsOptions | None) -> str:
    """Return the text after "no connection" in an error: the reason, if it can be found, and what to do."""
    if channel.get_state() is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
        return f": {_START}"
    details = await _reason_of_grpc(channel)
    if _HTTP1 in details:
        return (
            ": the endpoint speaks HTTP/1, not gRPC. It may be the server's HTTP port, by default 7421: use the gRPC "
            "port, by default 7420"
        )
    reason = details.rpartition(": ")[2].strip(" ]")
    if reason == "Connection refused":
        return f" ({reason}): {_START}"
    found = await _handshake(endpoint, tls)
    if found == "tls" and tls is None:
        return (
            ": the endpoint speaks TLS. Pass `tls=TlsOptions(ca=...)`, on the command line --tls-ca, with the CA file "
            "for the server's certificate"
        )
    if found == "plain" and tls is not None:
        return ": the endpoint does not speak TLS. Leave out `tls`, or correct the endpoint"
    if isinstance(found, ssl.SSLCertVerificationError):
        why = found.verify_message
        return f" ({why}): the client does not accept the server's certificate. Correct `ca` or the endpoint"
    return f" ({reason}): {_START}" if reason and reason != "OK" else f": {_START}"


async def _reason_of_grpc(channel: grpc.aio.Channel) -> str:
    # Only a call receives the reason, and in this state at once. If the channel has recovered, the call is harmless.
    call: Any = channel.unary_unary(_HARMLESS_METHOD)
    try:
        await call(b"", timeout=_REASON_WITHIN_S)
    except grpc.aio.AioRpcError as failure:
        return failure.details() or ""
    return ""


async def _handshake(
    endpoint: str, tls: TlsOptions | None
) -> Literal["tls", "plain", "unknown"] | ssl.SSLCertVerificationError:
    """Start a TLS handshake; return what the endpoint speaks, or the error if the server's certificate is rejected.

    Why not ask gRPC: for a failed handshake it reports only that the socket was closed, or nothing.
    """
    host, _, port = endpoint.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or host.startswith("unix"):
        return "unknown"
    # In a thread, because it reads files.
    context = await asyncio.to_thread(_context, tls)
    try:
        async with asyncio.timeout(_HANDSHAKE_WITHIN_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    except ssl.SSLCertVerificationError as error:
        return error
    except ssl.SSLError as error:
        # These two mean that the answer is not a TLS record. Any other error, such as an alert, is an answer in TLS.
        return "plain" if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE") else "tls"
    except (OSError, TimeoutError):
        return "unknown"
    writer.close()
    return "tls"


def _context(tls: TlsOptions | None) -> ssl.SSLContext:
    """Return a context that verifies the server's certificate, or accepts any if the client does not use TLS."""
    context = ssl.create_default_context(cafile=None if tls is None or tls.ca is None else os.fspath(tls.ca))
    if tls is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
