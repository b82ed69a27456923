"""Connections to a server: the client, the timeout of a command, and the exit codes of errors."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Final, TypeVar, Unpack

import grpc.aio
import typer

import tidelog
from tidelog import AsyncClient
from tidelog.client import DEFAULT_TIMEOUT_S
from tidelog.finding.owner_client import OwnerFindingClient
from tidelog.session import ClientOptions
from tidelog.settings.resolver import Target
from tidelog.transport.credentials import authorization
from tidelog_cli import event_loop
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.numbers import seconds
from tidelog_cli.option_groups import OptionGroup
from tidelog_cli.options.target import NOT_GIVEN, EndpointOption, target_at, token_of
from tidelog_cli.output.escapes import shown
from tidelog_cli.output.queued_lines import QueuedLines

_SHARE_OF_CALL: Final = 0.9

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
_Item = TypeVar("_Item")

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
    """Return the CommandError for an error of the client. On a terminal, it names the help about the error."""
    # The cause of ProducerStoppedError is the error that stopped the producer.
    told = error.__cause__ if isinstance(error, tidelog.ProducerStoppedError) else error
    lines = [str(error)]
    if sys.stderr.isatty():
        # An error of a package such as tidelog.gazette is explained as its parent.
        known = next(kind.__name__ for kind in (*type(told).__mro__, type(error)) if hasattr(tidelog, kind.__name__))
        lines.append(f"`tidelog help {known}` explains this error")
    return CommandError(lines, next((code for kind, code in _CODES if isinstance(told, kind)), ExitCode.FAILURE))


@dataclass(frozen=True, slots=True)
class Server(OptionGroup):
    """The server that a command calls.

    Attributes:
        endpoint: Value of ``--endpoint``.
        timeout: Seconds for the whole command; None for no limit.
    """

    endpoint: EndpointOption = NOT_GIVEN
    timeout: TimeoutOption = 30.0

    @property
    def address(self) -> str:
        """The server's ``host:port``, or those of the nodes of a cluster. Raises CommandError."""
        return target_at(self.endpoint).endpoint

    def with_more_time(self, seconds: float) -> "Server":
        """Return the server with a longer timeout; without a timeout, itself."""
        return self if self.timeout is None else replace(self, timeout=self.timeout + seconds)

    def run(self, command: Coroutine[None, None, _Result]) -> _Result:
        """Run a command within the timeout; see ``run``."""
        return run(command, self.timeout)

    def ask(self, call: Callable[[AsyncClient], Awaitable[_Result]]) -> _Result:
        """Return the result of a call on a new client. Raises as ``run``."""

        async def command() -> _Result:
            async with self.connected() as client:
                return await call(client)

        return self.run(command())

    def connected(self) -> AbstractAsyncContextManager[AsyncClient]:
        """Return a client as ``connected`` does. Its calls end before a short timeout, whose error does not say why."""
        short_s = DEFAULT_TIMEOUT_S if self.timeout is None else _SHARE_OF_CALL * self.timeout
        bounds: ClientOptions = {"timeout_s": short_s} if 0 < short_s < DEFAULT_TIMEOUT_S else {}
        return connected(self.endpoint, **bounds)

    def ask_all(self, call: Callable[[AsyncClient], AsyncIterator[_Result]]) -> list[_Result]:
        """Return all results of a listing call, as ``ask``."""

        async def listed(client: AsyncClient) -> list[_Result]:
            return [each async for each in call(client)]

        return self.ask(listed)

    def ask_each(
        self, items: Iterable[_Item], call: Callable[[AsyncClient, _Item], Awaitable[_Result]]
    ) -> list[_Result]:
        """Return the result of a call for each of ``items``, one after the other, as ``ask``."""

        async def called(client: AsyncClient) -> list[_Result]:
            return [await call(client, item) for item in items]

        return self.ask(called)


@dataclass(frozen=True, slots=True)
class PatientServer(Server):
    """The server that a command calls, which by default may take any time."""

    timeout: TimeoutOption = None


@asynccontextmanager
async def connected(
    endpoint: str = NOT_GIVEN, *, finds_owners: bool = True, **options: Unpack[ClientOptions]
) -> AsyncIterator[AsyncClient]:
    """Yield a client of the server, closed with the context; see ``target_at``.

    It finds the owners of channels in a cluster; without ``finds_owners`` it stays at the first address.
    Messages that the client logs, such as that a reader waits for the server, are printed on stderr.
    """
    async with client_of(target_at(endpoint), finds_owners=finds_owners, **options) as client:
        _log.addHandler(_waits)
        # The line that reports the end of a wait has level INFO.
        _log.setLevel(logging.INFO)
        try:
            yield client
        finally:
            _log.removeHandler(_waits)
            _waits.lines.flush()


def client_of(target: Target, *, finds_owners: bool = True, **options: Unpack[ClientOptions]) -> AsyncClient:
    """Return a client of a target that is not connected yet."""
    options["tls"], options["token"] = target.tls(), token_of(target)
    if finds_owners:
        return OwnerFindingClient(target.endpoints, **options)
    return AsyncClient(target.endpoints[0], **options)


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


def secured_channel(target: Target) -> tuple[grpc.aio.Channel, list[tuple[str, str]]]:
    """Return a gRPC channel to the first address of a target, and the metadata of its token for each call."""
    tls, token = target.tls(), token_of(target)
    metadata = [] if token is None else [authorization(token)]
    if tls is None:
        return grpc.aio.insecure_channel(target.endpoints[0]), metadata
    return grpc.aio.secure_channel(target.endpoints[0], tls.channel_credentials()), metadata


async def _within(command: Coroutine[None, None, _Result], timeout_s: float | None) -> _Result:
    deadline = asyncio.timeout(timeout_s)
    try:
        async with deadline:
            return await command
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise CommandError(f"timed out after {timeout_s} s: raise --timeout", ExitCode.TIMEOUT) from error
