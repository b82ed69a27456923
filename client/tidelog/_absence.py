"""Why a connection could not be made, and what the caller can do about it."""

import asyncio
import os
import ssl
from typing import Any, Final, Literal

import grpc.aio

from tidelog._credentials import TlsOptions

_HARMLESS_METHOD: Final = "/grpc.health.v1.Health/Check"
_REASON_WITHIN_S: Final = 0.2
_HANDSHAKE_WITHIN_S: Final = 1.0
# What gRPC's core says of a server that answers in HTTP/1.
_HTTP1: Final = "http1.x"
_START: Final = "start a server with `tidelog serve`, or correct the endpoint"


async def why_not_connected(channel: grpc.aio.Channel, endpoint: str, tls: TlsOptions | None) -> str:
    """Return what follows "no connection" in an error: the reason, as far as it can be found, and what to do."""
    if channel.get_state() is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
        return f": {_START}"
    details = await _reason_of_grpc(channel)
    if _HTTP1 in details:
        return (
            ": what answers there speaks HTTP/1, not gRPC. Is it the server's HTTP port, by default 7421? Give "
            "the port of its gRPC, by default 7420"
        )
    reason = details.rpartition(": ")[2].strip(" ]")
    if reason == "Connection refused":
        return f" ({reason}): {_START}"
    found = await _handshake(endpoint, tls)
    if found == "tls" and tls is None:
        return (
            ": what answers there speaks TLS. Give `tls=TlsOptions(ca=...)`, on the command line --tls-ca, with the "
            "file of the authority that vouches for the server"
        )
    if found == "plain" and tls is not None:
        return ": what answers there does not speak TLS. Leave `tls` out, or correct the endpoint"
    if isinstance(found, ssl.SSLCertVerificationError):
        why = found.verify_message
        return f" ({why}): the client does not accept the server's certificate. Correct `ca` or the endpoint"
    return f" ({reason}): {_START}" if reason and reason != "OK" else f": {_START}"


async def _reason_of_grpc(channel: grpc.aio.Channel) -> str:
    # Only a call receives the reason, and at once in this state. Should the state be over, this call does no harm.
    call: Any = channel.unary_unary(_HARMLESS_METHOD)
    try:
        await call(b"", timeout=_REASON_WITHIN_S)
    except grpc.aio.AioRpcError as failure:
        return failure.details() or ""
    return ""


async def _handshake(
    endpoint: str, tls: TlsOptions | None
) -> Literal["tls", "plain", "unknown"] | ssl.SSLCertVerificationError:
    """Begin a TLS handshake and return what answered; the error where the server's certificate is not accepted.

    Why not from gRPC: of a failed handshake it reports that the socket was closed, or nothing.
    """
    host, _, port = endpoint.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or host.startswith("unix"):
        return "unknown"
    # Off the loop: it reads files.
    context = await asyncio.to_thread(_context, tls)
    try:
        async with asyncio.timeout(_HANDSHAKE_WITHIN_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
    except ssl.SSLCertVerificationError as error:
        return error
    except ssl.SSLError as error:
        # What is no record of TLS at all; an alert in one is an answer in TLS.
        return "plain" if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE") else "tls"
    except (OSError, TimeoutError):
        return "unknown"
    writer.close()
    return "tls"


def _context(tls: TlsOptions | None) -> ssl.SSLContext:
    """Return what checks the server's certificate, or accepts any certificate where the client does not use TLS."""
    context = ssl.create_default_context(cafile=None if tls is None or tls.ca is None else os.fspath(tls.ca))
    if tls is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
