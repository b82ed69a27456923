"""Calls of services for which the client package has no methods, and the exit codes of their errors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import grpc
import grpc.aio

from tidelog_cli.connection import secured_channel
from tidelog_cli.exit_codes import CommandError, ExitCode

_Code = grpc.StatusCode
_CODES: Final = {
    _Code.INVALID_ARGUMENT: ExitCode.USAGE,
    _Code.NOT_FOUND: ExitCode.NOT_FOUND,
    _Code.FAILED_PRECONDITION: ExitCode.CONFLICT,
    _Code.RESOURCE_EXHAUSTED: ExitCode.CONFLICT,
    _Code.DEADLINE_EXCEEDED: ExitCode.TIMEOUT,
    _Code.UNAVAILABLE: ExitCode.UNAVAILABLE,
    _Code.UNAUTHENTICATED: ExitCode.DENIED,
    _Code.PERMISSION_DENIED: ExitCode.DENIED,
    _Code.DATA_LOSS: ExitCode.UNHEALTHY,
}


@asynccontextmanager
async def raw_channel(endpoint: str) -> AsyncIterator[grpc.aio.Channel]:
    """Yield a gRPC channel to the server at ``endpoint``; closed with the context.

    Raises:
        CommandError: A call in the context failed.
    """
    try:
        async with secured_channel(endpoint) as channel:
            yield channel
    except grpc.aio.AioRpcError as error:
        text = error.details() or error.code().name
        if error.code() is _Code.UNAVAILABLE:
            text = f"no response from {endpoint} ({text}): start the server, or correct --endpoint"
        raise CommandError(text, _CODES.get(error.code(), ExitCode.FAILURE)) from error
