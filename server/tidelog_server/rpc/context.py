"""What the context and the request of a call show of it."""

import asyncio
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.json_format import MessageToDict

from tidelog_server.security.authenticator import Shown, authorization_of

Context = grpc.aio.ServicerContext[Any, Any]
Method = Callable[[Any, Context], Awaitable[Any]]
"""Handles calls."""

AUTHORIZATION: Final = "authorization"
TRACE_KEYS: Final = ("traceparent", "tracestate")
"""Metadata of a call that name the span which has made it."""
_LOCAL_PREFIXES: Final = ("127.", "::ffff:127.", "unix:")
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


def shown_of(context: Context) -> Shown:
    """Return what a call shows of its caller."""
    values = [value for key, value in context.invocation_metadata() or () if key == AUTHORIZATION]
    facts = context.auth_context()
    certificates = tuple(facts.get("x509_pem_cert", ()))
    peer = context.peer()
    address = address_of(peer)
    return Shown(
        authorization_of(values), certificates[0] if certificates else b"", address, is_local(address),
        bool(facts.get("transport_security_type")), peer,
    )  # fmt: skip


def address_of(peer: str) -> str:
    """Return the host of a gRPC peer, such as ``ipv4:127.0.0.1:1234``."""
    kind, _, rest = urllib.parse.unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]") if kind in ("ipv4", "ipv6") else peer


def is_local(address: str) -> bool:
    """Return whether an address is this machine's own."""
    return address == "::1" or address.startswith(_LOCAL_PREFIXES)


def fields_of(request: Any) -> dict[str, object]:
    """Return the fields of a request that are set, by their names in the protocol."""
    return MessageToDict(request, preserving_proto_field_name=True)


def ended_with(error: BaseException, context: Context) -> grpc.StatusCode:
    """Return the status code of a call that raised ``error``."""
    if isinstance(error, asyncio.CancelledError):
        return grpc.StatusCode.CANCELLED
    code: Any = context.code()
    known = code if isinstance(code, grpc.StatusCode) else _CODES.get(code)
    return known or grpc.StatusCode.UNKNOWN
