"""Talking to a server: where it is, how long to wait, and what its errors mean as exit codes."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Final, TypeVar

import typer

import tidelog
from tidelog import AsyncClient
from tidelog_server.cli import event_loop
from tidelog_server.cli.exit_codes import CommandError, ExitCode

DEFAULT_ENDPOINT: Final = "127.0.0.1:7420"

EndpointOption = Annotated[
    str, typer.Option("--endpoint", envvar="TIDELOG_ENDPOINT", help="host:port of the server's gRPC.")
]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", envvar="TIDELOG_TIMEOUT", min=0, help="Seconds for the whole command; exit code 5."),
]

_Result = TypeVar("_Result")

# The first class that fits decides, so subclasses stand before their base.
_CODES: Final[tuple[tuple[type[tidelog.TidelogError], ExitCode], ...]] = (
    (tidelog.InvalidRequestError, ExitCode.USAGE),
    (tidelog.ChannelNotFoundError, ExitCode.NOT_FOUND),
    (tidelog.ChannelAlreadyExistsError, ExitCode.CONFLICT),
    (tidelog.PositionTrimmedError, ExitCode.CONFLICT),
    (tidelog.PositionBeyondEndError, ExitCode.CONFLICT),
    (tidelog.LastTickMismatchError, ExitCode.CONFLICT),
    (tidelog.FencedError, ExitCode.CONFLICT),
    (tidelog.ResourceAcquiredError, ExitCode.CONFLICT),
    (tidelog.BroadcastNotFoundError, ExitCode.NOT_FOUND),
    (tidelog.BroadcastError, ExitCode.CONFLICT),
    (tidelog.TransactionNotFoundError, ExitCode.NOT_FOUND),
    (tidelog.TransactionForeignError, ExitCode.DENIED),
    (tidelog.TransactionError, ExitCode.CONFLICT),
    (tidelog.BarrierNotReachedError, ExitCode.TIMEOUT),
    (tidelog.DeadlineError, ExitCode.TIMEOUT),
    (tidelog.UnavailableError, ExitCode.UNAVAILABLE),
    (tidelog.StorageFailedError, ExitCode.UNHEALTHY),
    (tidelog.DataLossError, ExitCode.UNHEALTHY),
)


def run(command: Coroutine[None, None, _Result], timeout_s: float | None = None) -> _Result:
    """Run a command that talks to a server and return its result.

    Ctrl-C cancels it, so that its ``finally`` can print a summary, and then raises KeyboardInterrupt.

    Raises:
        CommandError: The server refused or could not be reached, or the time is over.
    """
    try:
        return event_loop.run(_within(command, timeout_s))
    except tidelog.TidelogError as error:
        # A producer that stopped tells what stopped it as its cause.
        told = error.__cause__ if isinstance(error, tidelog.ProducerStoppedError) else error
        code = next((code for kind, code in _CODES if isinstance(told, kind)), ExitCode.FAILURE)
        raise CommandError(str(error), code) from error


@asynccontextmanager
async def connected(endpoint: str) -> AsyncIterator[AsyncClient]:
    """Yield a client of the server at ``endpoint``; it is closed with the context."""
    async with AsyncClient(endpoint) as client:
        yield client


async def _within(command: Coroutine[None, None, _Result], timeout_s: float | None) -> _Result:
    deadline = asyncio.timeout(timeout_s)
    try:
        async with deadline:
            return await command
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise CommandError(f"not done after {timeout_s} s: see --timeout", ExitCode.TIMEOUT) from error
