"""``tidelog serve``: run a server until a signal or a storage failure stops it."""

import asyncio
import errno
import gc
import json
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog_cli import event_loop
from tidelog_cli.exit_codes import SERVE_CODES, CommandError, ExitCode
from tidelog_cli.invocation import invoke
from tidelog_cli.output.records import note
from tidelog_server.commands.config_flags import (
    SETTINGS_HELP,
    TAKES_SETTINGS,
    ConfigOption,
    effective_config,
    parse_settings,
)
from tidelog_server.commands.development import (
    Development,
    authority_of,
    export_lines,
    flags_for_development,
    flags_with_certificate,
    remains_of,
)
from tidelog_server.commands.error_codes import FOLDER_CODES, exit_codes_of
from tidelog_server.core.addresses import address_text
from tidelog_server.core.errors import DataLossError, StorageFailedError, TidelogServerError
from tidelog_server.core.errors.cluster import MetadataUnavailableError, OwnershipLostError, cause_of
from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.recordlog.engine import EngineUnavailableError, LogSetupError
from tidelog_server.recordlog.kinds import ENGINE_KINDS
from tidelog_server.recordlog.rules import TenureEndedError
from tidelog_server.runtime.allocator import keep_freed_memory
from tidelog_server.runtime.logging import flush_log, forward_library_logs, write_line
from tidelog_server.runtime.process_limits import ProcessLimitError, check_process_limits
from tidelog_server.runtime.tasks import TaskFailedError
from tidelog_server.storage.format.folder_errors import DataFolderError, folder_error

if TYPE_CHECKING:
    from tidelog_server.app import Server
    from tidelog_server.config import Config
    from tidelog_server.opening import Opening

# Time that a stop takes to close the log, at least.
MIN_STOP_S: Final = 2.0
# A node that lost its lease stops before it starts in the same process. A stop that takes longer ends the process.
MAX_STOP_BEFORE_START_S: Final = 30.0

# How long a thread may hold the interpreter lock while another waits. By default a reader or sync that returns from the
# disk waits 5 ms for the event loop, as long as ten syncs; this setting speeds up scans by about a tenth.
_SWITCH_INTERVAL_S = 0.000_5
# Collections are rarer than Python's 700, 10 and 10 make them: with thousands of open streams, each visits all of them.
_GC_THRESHOLDS = (10_000, 20, 100)
# Before the second timer of a shutdown ends the process.
_LAST_LINES_WITHIN_S = 0.5
_RESTORE = "`tidelog backup restore` restores a data folder from a backup, and `tidelog backup ls` lists the backups"
_KEEP_LOG = "Keep the topic and the data folders as they are until the cause is known"
_START_CODES: dict[type[Exception], ExitCode] = {
    LogSetupError: ExitCode.BAD_CONFIG,
    EngineUnavailableError: ExitCode.UNAVAILABLE,
    TenureEndedError: ExitCode.UNAVAILABLE,
    ProcessLimitError: ExitCode.NO_RESOURCES,
}
_TlsSelfOption = Annotated[
    bool,
    typer.Option(
        "--tls-self",
        help="Development only: use a certificate of an own authority, in the folder DATA_DIR-tls, made if missing.",
    ),
]
_DevOption = Annotated[
    bool,
    typer.Option(
        "--dev",
        help="Development only: free ports and a log in memory, unless settings say otherwise, and the lines to copy "
        "with which clients connect.",
    ),
]
_ADDRESS_ERRORS = (errno.EADDRINUSE, errno.EADDRNOTAVAIL)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command(context_settings=TAKES_SETTINGS, epilog=f"{SETTINGS_HELP} {SERVE_CODES}")(serve)


def run(arguments: Sequence[str]) -> int:
    """Run the command without loading the other commands, and return the exit code. ``arguments`` begin with ``serve``.

    Raises:
        CommandError: The arguments are wrong, or the server cannot start.
    """
    app = typer.Typer(pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]})
    # Without a callback, Typer would drop the name of an app's only command.
    app.callback()(lambda: None)
    register(app)
    return invoke(app, arguments, "tidelog")


def serve(
    context: typer.Context, config: ConfigOption = None, tls_self: _TlsSelfOption = False, dev: _DevOption = False
) -> None:
    """Run a server.

    Prints one line when it accepts requests: text on a terminal, otherwise {"event": "ready", "grpc": "HOST:PORT",
    "http": "HOST:PORT", "pid": N}; with --tls-self also "tls_ca", the file of the authority, and on a terminal the
    lines with which clients connect from another shell. A standby of a cluster prints it once it serves a node.

    --dev chooses free ports, and prints the lines to copy on a terminal, otherwise "variables". The log is in memory
    and is gone at the end, as is the temporary folder with other files; with storage.data_dir the data stays there.
    "remains" says which.

    The first SIGTERM or SIGINT drains requests in flight, for at most server.shutdown_grace_s; the second exits
    immediately. SIGHUP reloads the configuration: log.level, log.format, log.slow_append_ms,
    limits.min_free_disk_bytes, limits.txn_keepalive_ms and server.shutdown_grace_s take effect, and the log names
    changed settings that need a restart. With --dev, SIGHUP stops the server: a terminal that is closed sends it.
    """

    def load() -> "Config":
        from tidelog_server.config import load_config

        return load_config(config, os.environ, flags)

    # Ordering: first, because later steps crash without these resources.
    with exit_codes_of({ProcessLimitError: ExitCode.NO_RESOURCES}):
        check_process_limits()
    keep_freed_memory()
    # A start makes many objects and little garbage: collections would take a tenth of its time. See _keep_objects.
    gc.disable()
    flags = parse_settings(context.args)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    forward_library_logs()
    with TemporaryDirectory(prefix="tidelog-dev-") if dev else nullcontext("") as name:
        folder = Path(name)
        if dev:
            flags = flags_for_development(config, os.environ, flags, folder)
        if tls_self:
            flags = flags_with_certificate(config, os.environ, flags)
        settings = effective_config(config, flags)
        development = Development(
            authority_of(settings) if tls_self else None, remains_of(settings, folder) if dev else ""
        )
        code = _run(settings, load, development)
    raise typer.Exit(code)


def _run(config: "Config", load: "Callable[[], Config]", development: Development) -> ExitCode:
    """Serve until the end, and return the exit code. Raises CommandError."""
    try:
        code = event_loop.run(_serve(config, load, development))
    except CommandError as error:
        # Ordering: before the error that ends the command. If stderr is not read, printing that would never end.
        if not flush_log():
            os._exit(error.code)
        raise
    flush_log()
    return code


async def _serve(config: "Config", load: "Callable[[], Config]", development: Development) -> ExitCode:
    stop_asked, reload_asked = asyncio.Event(), asyncio.Event()
    # Ordering: before the start, because recovery may take long and must be interruptible.
    _handle_signals(asyncio.get_running_loop(), stop_asked, None if development.remains else reload_asked)
    from tidelog_server.opening import stands_by

    # A process may stand by for as long as others serve.
    first = await _start_unless(config, stop_asked) if stands_by(config) else await _start(config)
    if first is None:
        return ExitCode.OK
    server = first
    _announce(server, config, development)
    while True:
        cause = await _run_until(server, stop_asked, _reload_on_demand(server, reload_asked, load))
        may_start_again = cause is not None and server.may_start_again
        # Before a start, too: nothing else would end a process that hangs there.
        least_s = MAX_STOP_BEFORE_START_S if may_start_again else MIN_STOP_S
        is_stopped = _end_at_the_latest_in(max(least_s, server.shutdown_grace_s))
        try:
            await server.stop()
        except (StorageFailedError, OwnershipLostError) as error:
            # Its last writes. What was acknowledged is durable, and the next start checks all of it.
            cause, may_start_again = cause or cause_of(error), False
        if cause is None:
            return ExitCode.OK
        if server.is_damaged:
            mend = "Copy the data folder, then restore a backup with `tidelog backup restore`"
            raise CommandError(
                f"the server stopped because stored data is damaged: {cause}. "
                f"{_KEEP_LOG if config.storage.is_in_engine else mend}",
                ExitCode.DATA_LOSS,
            )
        if server.is_replaced:
            raise CommandError(
                f"the server stopped: {cause}. Do not restart it while the other process runs: they would take the log "
                "from each other",
                ExitCode.LOG_CLAIMED,
            )
        if not may_start_again:
            raise CommandError(
                f"the server stopped because storage failed: {cause}. Check "
                f"{_what_stores(config)}, then restart the server",
                ExitCode.STORAGE_FAILED,
            )
        # Start again from disk: the state in memory belongs to the expired lease.
        is_stopped()
        started = await _start_unless(server.again, stop_asked, is_again=True)
        if started is None:
            return ExitCode.OK
        server = started


async def _start_unless(config: "Config", stop_asked: asyncio.Event, *, is_again: bool = False) -> "Server | None":
    """Start a server, again in place of one that lost its lease; None if a signal arrives first."""
    starting = asyncio.create_task(_start(config, is_again=is_again))
    asked = asyncio.create_task(stop_asked.wait())
    await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if starting.done():
        return starting.result()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    return None


async def _reload_on_demand(server: "Server", asked: asyncio.Event, load: "Callable[[], Config]") -> None:
    while True:
        await asked.wait()
        asked.clear()
        server.reload(load)


def _end_at_the_latest_in(seconds: float) -> Callable[[], None]:
    """Exit the process after ``seconds`` even if a client does not disconnect or the disk does not respond.

    Returns a function that revokes this. No acknowledged data can be lost: it is on disk, or with the operating system
    if the append asked only for that.
    """

    def end() -> None:
        write_line(f"tidelog: the shutdown took longer than {seconds:g} s and was cut short")
        flush_log(_LAST_LINES_WITHIN_S)
        os._exit(ExitCode.TIMEOUT)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    # A second timer, because the first needs the interpreter lock.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(math.ceil(seconds) + 1)

    def revoke() -> None:
        timer.cancel()
        signal.alarm(0)

    return revoke


def _handle_signals(
    loop: asyncio.AbstractEventLoop, stop_asked: asyncio.Event, reload_asked: asyncio.Event | None
) -> None:
    """Set an event at each signal; without ``reload_asked``, SIGHUP stops the server too."""

    def on_signal(number: signal.Signals) -> None:
        if stop_asked.is_set():
            # No acknowledged data can be lost: it is on disk.
            os._exit(128 + number)
        stop_asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    if reload_asked is None:
        loop.add_signal_handler(signal.SIGHUP, stop_asked.set)
    else:
        loop.add_signal_handler(signal.SIGHUP, reload_asked.set)


async def _start(config: "Config", *, is_again: bool = False) -> "Server":
    from tidelog_server.config import ConfigError
    from tidelog_server.opening import Opening

    try:
        with exit_codes_of(_START_CODES):
            return await _started(config, None if is_again else Opening.begin(config))
    except ConfigError as error:
        raise CommandError(error.problems, ExitCode.BAD_CONFIG) from error
    except DataLossError as error:
        mend = f"nothing was changed. {_KEEP_LOG}" if config.storage.is_in_engine else _RESTORE
        raise CommandError([str(error), mend], ExitCode.DATA_LOSS) from error
    except (TidelogServerError, DataFolderError) as error:
        raise CommandError(str(error), _code_of(error)) from error
    except TaskFailedError as error:
        raise CommandError(f"the start failed: {error}", ExitCode.STORAGE_FAILED) from error
    except OSError as error:
        raise _system_failure(error, config) from error
    except MemoryError as error:
        raise CommandError("out of memory at start: give the server more memory", ExitCode.NO_RESOURCES) from error


async def _started(config: "Config", opening: "Opening | None") -> "Server":
    """Return the server that starts with ``opening``; without one, the server that starts again."""
    # Imported here, while the log is being opened.
    from tidelog_server.app import Server
    from tidelog_server.security.service import SecurityError

    try:
        if opening is None:
            return await Server.start_again(config, before_serving=_keep_objects_again)
        return await Server.start_from(opening, before_serving=_keep_objects)
    except SecurityError as error:
        raise CommandError(f"invalid security settings: {error}", ExitCode.BAD_CONFIG) from error


def _keep_objects() -> None:
    """Exclude the objects of the start from garbage collection, because visiting all of them takes 50 ms.

    The little garbage among them is kept.
    """
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()


def _keep_objects_again() -> None:
    """As ``_keep_objects``, without the objects of the server that stopped."""
    gc.unfreeze()
    gc.collect()
    _keep_objects()


def _what_stores(config: "Config") -> str:
    kind = ENGINE_KINDS.get(config.storage.kind)
    return "the disk" if kind is None else f"{kind.system} and the disk"


def _code_of(error: TidelogServerError | DataFolderError) -> ExitCode:
    match error:
        case StorageUnreadableError():
            return FOLDER_CODES[type(folder_error(Path(), OSError(error.errno, "")))]
        case StorageFailedError():
            return ExitCode.DATA_LOSS if error.is_damage else ExitCode.STORAGE_FAILED
        case OwnershipLostError():
            return ExitCode.LOG_CLAIMED if error.is_claimed else ExitCode.STORAGE_FAILED
        case MetadataUnavailableError():
            return ExitCode.UNAVAILABLE
        case DataFolderError():
            return FOLDER_CODES[type(error)]
        case _:
            return ExitCode.FAILURE


def _system_failure(error: OSError, config: "Config") -> CommandError:
    """Return the CommandError for an OSError during the start."""
    if isinstance(error, socket.gaierror) or error.errno in _ADDRESS_ERRORS:
        return CommandError(_address_advice(error, config), ExitCode.ADDRESS_UNUSABLE)
    if isinstance(error, PermissionError):
        return CommandError(f"no permission: {error}", ExitCode.NO_PERMISSION)
    problem = folder_error(config.storage.data_dir, error)
    return CommandError(str(problem), FOLDER_CODES[type(problem)])


def _address_advice(error: OSError, config: "Config") -> str:
    """Return what to do about the address that ``error`` names; about both if it names none."""
    server = config.server
    addresses = {
        "grpc_port": (address_text(server.host, server.grpc_port), "gRPC"),
        "http_port": (address_text(server.http_host, server.http_port), "HTTP"),
    }
    causes = {name: each for name, each in addresses.items() if each[0] == error.filename} or addresses
    places = " and ".join(f"{address} ({protocol})" for address, protocol in causes.values())
    options = " and ".join(f"--server.{name}" for name in causes)
    return (
        f"cannot listen on {places}: {error.strerror or error}. Stop the process that listens there, or choose "
        f"{'another port' if len(causes) == 1 else 'other ports'} with {options} (0 for any free port)"
    )


def _announce(server: "Server", config: "Config", development: Development) -> None:
    variables = development.variables(server.grpc_endpoint, server.http_endpoint, config.storage.data_dir)
    if sys.stdout.isatty():
        # On a terminal that shows the log, the log has already printed the addresses.
        is_logged = sys.stderr.isatty() and config.log.level in ("debug", "info")
        where = "" if is_logged else f"ready: gRPC on {server.grpc_endpoint}, HTTP on {server.http_endpoint}. "
        remains = f"{development.remains} " if development.remains else ""
        text = f"{export_lines(variables)}{where}{remains}Press Ctrl-C to stop"
    else:
        ready: dict[str, object] = {
            "event": "ready", "grpc": server.grpc_endpoint, "http": server.http_endpoint, "pid": os.getpid(),
        }  # fmt: skip
        if development.authority is not None:
            ready["tls_ca"] = str(development.authority)
        if development.remains:
            ready |= {"variables": variables, "remains": development.remains}
        text = json.dumps(ready)
    # The line of the log that has the addresses comes first.
    flush_log()
    print(text, flush=True)


async def _run_until(server: "Server", stop_asked: asyncio.Event, reloads: Coroutine[None, None, None]) -> str | None:
    """Wait until a signal arrives, or the server or ``reloads`` ends by itself; return the cause of the latter."""
    asked = asyncio.create_task(stop_asked.wait())
    stopped = asyncio.create_task(server.wait_stopped())
    reloading = asyncio.create_task(reloads)
    tasks = (asked, stopped, reloading)
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    cause = str(stopped.result()) if stopped.done() else None
    if cause is None and reloading.done():
        cause = f"the background task 'reload' failed: {reloading.exception()!r}"
    elif cause is None and sys.stdout.isatty():
        note("stopping: draining requests in flight; press Ctrl-C again to exit immediately")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return cause
