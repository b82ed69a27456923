"""Connections to a server: endpoint, credentials, timeout, and the exit codes of its errors."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import grpc.aio
import typer

import tidelog
from tidelog import AsyncClient, Retry, TlsOptions, TokenFile, TokenSource
from tidelog_cli import event_loop
from tidelog_cli.credential_files import check_credentials
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.files import local_path
from tidelog_cli.numbers import seconds
from tidelog_cli.option_groups import OptionGroup
from tidelog_cli.output.escapes import shown
from tidelog_cli.output.queued_lines import QueuedLines

DEFAULT_ENDPOINT: Final = "127.0.0.1:7420"
DEFAULT_RETRY: Final = Retry()

_ENDPOINT_VARIABLE: Final = "TIDELOG_ENDPOINT"
EndpointOption = Annotated[
    str, typer.Option("--endpoint", envvar=_ENDPOINT_VARIABLE, help="host:port of the server's gRPC endpoint.")
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        envvar="TIDELOG_TIMEOUT",
        min=0,
        callback=seconds,
        help="Seconds for the whole command; then exit with code 5.",
    ),
]

_Result = TypeVar("_Result")

# Ordering: the first matching class wins, so subclasses precede their base class.
_CODES: Final[tuple[tuple[type[tidelog.TidelogError], ExitCode], ...]] = (
    (tidelog.InvalidRequestError, ExitCode.USAGE),
    (tidelog.ChannelNotFoundError, ExitCode.NOT_FOUND),
    (tidelog.ChannelAlreadyExistsError, ExitCode.CONFLICT),
    (tidelog.PositionTrimmedError, ExitCode.CONFLICT),
    (tidelog.PositionBeyondEndError, ExitCode.CONFLICT),
    (tidelog.LastTickMismatchError, ExitCode.CONFLICT),
    (tidelog.JournalRevisionError, ExitCode.CONFLICT),
    (tidelog.FencedError, ExitCode.CONFLICT),
    (tidelog.ResourceAcquiredError, ExitCode.CONFLICT),
    (tidelog.BroadcastNotFoundError, ExitCode.NOT_FOUND),
    (tidelog.BroadcastError, ExitCode.CONFLICT),
    (tidelog.TransactionNotFoundError, ExitCode.NOT_FOUND),
    (tidelog.TransactionForeignError, ExitCode.DENIED),
    (tidelog.TransactionError, ExitCode.CONFLICT),
    (tidelog.GroupNotFoundError, ExitCode.NOT_FOUND),
    (tidelog.GroupError, ExitCode.CONFLICT),
    (tidelog.MailboxNotFoundError, ExitCode.NOT_FOUND),
    (tidelog.MailboxError, ExitCode.CONFLICT),
    (tidelog.UnauthenticatedError, ExitCode.DENIED),
    (tidelog.CredentialsExpiredError, ExitCode.DENIED),
    (tidelog.PermissionDeniedError, ExitCode.DENIED),
    (tidelog.TokenNotFoundError, ExitCode.NOT_FOUND),
    (tidelog.NotOwnerError, ExitCode.NOT_FOUND),
    (tidelog.CheckpointNotFoundError, ExitCode.NOT_FOUND),
    (tidelog.CheckpointUnsupportedError, ExitCode.CONFLICT),
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
        CommandError: The server refused or is unreachable, or ``timeout_s`` has passed.
    """
    try:
        return event_loop.run(_within(command, timeout_s))
    except tidelog.TidelogError as error:
        raise refused(error) from error
    except (ValueError, OverflowError) as error:
        # The methods of the client raise these for an argument that is out of range or cannot be encoded.
        raise CommandError(str(error), ExitCode.USAGE) from error


def refused(error: tidelog.TidelogError) -> CommandError:
    """Return the CommandError for an error of the client."""
    # The cause of ProducerStoppedError is the error that stopped the producer.
    told = error.__cause__ if isinstance(error, tidelog.ProducerStoppedError) else error
    return CommandError(str(error), next((code for kind, code in _CODES if isinstance(told, kind)), ExitCode.FAILURE))


@dataclass(frozen=True, slots=True)
class Server(OptionGroup):
    """The server that a command calls.

    Attributes:
        endpoint: ``host:port``.
        timeout: Seconds for the whole command; None for no limit.
    """

    endpoint: EndpointOption = DEFAULT_ENDPOINT
    timeout: TimeoutOption = 30.0

    def with_more_time(self, seconds: float) -> "Server":
        """Return the server with a longer timeout; without a timeout, itself."""
        return self if self.timeout is None else replace(self, timeout=self.timeout + seconds)

    def run(self, command: Coroutine[None, None, _Result]) -> _Result:
        """Run a command within the timeout; see ``run``."""
        return run(command, self.timeout)

    def ask(self, call: Callable[[AsyncClient], Awaitable[_Result]]) -> _Result:
        """Return the result of a call on a new client. Raises as ``run``."""

        async def command() -> _Result:
            async with connected(self.endpoint) as client:
                return await call(client)

        return self.run(command())

    def ask_all(self, call: Callable[[AsyncClient], AsyncIterator[_Result]]) -> list[_Result]:
        """Return all results of a listing call, as ``ask``."""

        async def listed(client: AsyncClient) -> list[_Result]:
            return [each async for each in call(client)]

        return self.ask(listed)


@dataclass(frozen=True, slots=True)
class PatientServer(Server):
    """The server that a command calls, which by default may take any time."""

    timeout: TimeoutOption = None


@asynccontextmanager
async def connected(endpoint: str, *, retry: Retry = DEFAULT_RETRY) -> AsyncIterator[AsyncClient]:
    """Yield a client of the server at ``endpoint``; closed with the context.

    Messages that the client logs, such as that a reader waits for the server, are printed on stderr.
    """
    async with _client(endpoint, retry) as client:
        _log.addHandler(_waits)
        # The line that reports the end of a wait has level INFO.
        _log.setLevel(logging.INFO)
        try:
            yield client
        finally:
            _log.removeHandler(_waits)
            _waits.lines.flush()


def _client(endpoint: str, retry: Retry = DEFAULT_RETRY) -> AsyncClient:
    """Return a client that is not connected yet. Raises CommandError for an invalid endpoint or credentials."""
    check_credentials(_shown.tls, _shown.token, _shown.token_file)
    try:
        return AsyncClient(endpoint, tls=_shown.tls, token=_shown.token, retry=retry)
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error


class _Notes(logging.Handler):
    """Prints each log record of the client as one line on stderr, on a thread: the client logs on its event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = QueuedLines(lambda dropped: self._print(f"{dropped} notes were dropped because stderr was full"))

    def emit(self, record: logging.LogRecord) -> None:
        self._print(shown(record.getMessage()))

    def _print(self, text: str) -> None:
        self.lines.write(sys.stderr, text + "\n")


_log: Final = logging.getLogger("tidelog")
_waits: Final = _Notes()


class _Shown:
    """Credentials that all commands of this process present to servers, and how they verify servers."""

    tls: TlsOptions | None = None
    token: TokenSource | None = None
    token_file: Path | None = None
    options: Mapping[str, str] = {}


_shown = _Shown()


def credentials(
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            envvar="TIDELOG_TLS_CA", parser=local_path, help="PEM file of CAs to verify the server with; enables TLS."
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            envvar="TIDELOG_TLS_CERT", parser=local_path, help="PEM file of a client certificate, for mutual TLS."
        ),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            envvar="TIDELOG_TLS_KEY", parser=local_path, help="PEM file of the client certificate's private key."
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="TIDELOG_TOKEN_FILE",
            parser=local_path,
            help="File with the access token. Alternatively, set TIDELOG_TOKEN to the token itself.",
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            help="host:port of the server's gRPC endpoint. --endpoint after the command takes precedence.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Set the endpoint and credentials of all commands. These options precede the command."""
    if endpoint is not None:
        # Each command reads the variable unless it has its own --endpoint.
        os.environ[_ENDPOINT_VARIABLE] = endpoint
    try:
        _shown.tls = TlsOptions(tls_ca, tls_cert, tls_key) if tls_ca or tls_cert or tls_key else None
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    # Why not an option: other users of the machine can read the arguments of a process.
    token = os.environ.get("TIDELOG_TOKEN")
    _shown.token_file = token_file
    _shown.token = TokenFile(token_file) if token_file else token or None
    paths = {"tlsCa": tls_ca, "tlsCert": tls_cert, "tlsKey": tls_key, "tokenFile": token_file}
    _shown.options = {name: str(path.absolute()) for name, path in paths.items() if path is not None}
    if token and not token_file:
        _shown.options = {**_shown.options, "token": token}


def source_options() -> Mapping[str, str]:
    """Return the credentials of the commands as options of the Spark source."""
    return _shown.options


class _ShowToken(grpc.aio.UnaryUnaryClientInterceptor):
    """Adds the token of all commands to each call."""

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        if _shown.token is None:
            return await continuation(details, request)
        token = _shown.token if isinstance(_shown.token, str) else _shown.token()
        metadata = grpc.aio.Metadata(*(details.metadata or ()), ("authorization", f"Bearer {token}"))
        return await continuation(details._replace(metadata=metadata), request)


def secured_channel(endpoint: str) -> grpc.aio.Channel:
    """Return a gRPC channel with the TLS options and the token of all commands.

    Raises:
        CommandError: The endpoint is invalid, or the token would travel unencrypted to another machine.
    """
    # For its checks: refuse every endpoint that a client would refuse.
    _client(endpoint)
    interceptors = [_ShowToken()]
    if _shown.tls is None:
        return grpc.aio.insecure_channel(endpoint, interceptors=interceptors)
    return grpc.aio.secure_channel(endpoint, _shown.tls.channel_credentials(), interceptors=interceptors)


async def _within(command: Coroutine[None, None, _Result], timeout_s: float | None) -> _Result:
    deadline = asyncio.timeout(timeout_s)
    try:
        async with deadline:
            return await command
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise CommandError(f"timed out after {timeout_s} s: raise --timeout", ExitCode.TIMEOUT) from error
