"""``tidelog engine``: logs in an engine such as Kafka."""

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidelog_cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_cli.files import local_path
from tidelog_cli.output.progress import Progress
from tidelog_cli.output.records import (
    NoProgressOption,
    OutputOption,
    QuietOption,
    note,
    print_records,
    show_progress,
)
from tidelog_server.backup.manifest import BackupError
from tidelog_server.commands.config_flags import (
    SETTINGS_HELP,
    TAKES_SETTINGS,
    ConfigOption,
    effective_config,
    parse_settings,
)
from tidelog_server.commands.error_codes import FOLDER_CODES, exit_codes_of
from tidelog_server.core.errors import DataLossError, StorageFailedError
from tidelog_server.core.errors.cluster import MetadataUnavailableError, OwnershipLostError
from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.recordlog.engine import (
    EngineUnavailableError,
    LogExistsError,
    LogMissingError,
    LogSetupError,
    PositionGoneError,
)
from tidelog_server.recordlog.kinds import ENGINE_KINDS
from tidelog_server.recordlog.rules import TenureEndedError
from tidelog_server.runtime.process_limits import ProcessLimitError
from tidelog_server.storage.format.folder_errors import folder_error

if TYPE_CHECKING:
    from tidelog_server.config import Config, EngineSettings
    from tidelog_server.recordlog.access import FoundTopic, LogAccess
    from tidelog_server.recordlog.record_log import RecordLog
    from tidelog_server.storage.engine.export import Exported
    from tidelog_server.storage.engine.open import LogName

_EPILOG: Final = f"{SETTINGS_HELP} {COMMON_CODES} 78 if the configuration is invalid."

_LOG_CODES: Final[dict[type[Exception], ExitCode]] = {
    LogExistsError: ExitCode.CONFLICT,
    LogSetupError: ExitCode.BAD_CONFIG,
    EngineUnavailableError: ExitCode.UNAVAILABLE,
    TenureEndedError: ExitCode.UNAVAILABLE,
    MetadataUnavailableError: ExitCode.UNAVAILABLE,
}
_ROW_CODES: Final[dict[type[Exception], ExitCode]] = {
    DataLossError: ExitCode.DATA_LOSS,
    BackupError: ExitCode.FAILURE,
    StorageUnreadableError: ExitCode.FAILURE,
    OwnershipLostError: ExitCode.CONFLICT,
    StorageFailedError: ExitCode.STORAGE_FAILED,
    ProcessLimitError: ExitCode.NO_RESOURCES,
}

_PULSAR: Final = "--pulsar"
PulsarOption = Annotated[
    str | None,
    typer.Option(_PULSAR, help="Address of Pulsar, as engine.service_url; without it, Kafka.", show_default=False),
]
_FOLDER_EPILOG: Final = f"{_EPILOG} 65 if the log is damaged, 72 to 77 as `tidelog serve` if the folder cannot be used."


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Manage logs in an engine such as Kafka.")
    group.command(context_settings=TAKES_SETTINGS, epilog=_EPILOG)(create)
    group.command("ls", context_settings=TAKES_SETTINGS, epilog=_EPILOG)(list_logs)
    group.command("import", context_settings=TAKES_SETTINGS, epilog=_FOLDER_EPILOG)(import_)
    group.command("export", context_settings=TAKES_SETTINGS, epilog=_FOLDER_EPILOG)(export)
    app.add_typer(group, name="engine")


def create(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(help="Topic of the log, as in engine.topic; in a cluster, id of the node.", show_default=False),
    ],
    config: ConfigOption = None,
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Copies in Kafka; by default three, or as many as there are brokers.")
    ] = None,
    *,
    pulsar: PulsarOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the log exists; it is not changed.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Create an empty log: a topic with one partition that keeps everything, and its first record.

    A server never creates a log. The settings of the section engine name Kafka, such as `--engine.servers HOST:PORT`,
    or --pulsar names Pulsar. If metadata.kind is etcd, NAME becomes a node of the cluster: the topic is
    tidelog.CLUSTER.NAME, with cluster.name as CLUSTER, and etcd gets the record of the log.
    """
    from tidelog_server.commands.engine_nodes import NodeExistsError, create_node

    effective = _config(config, context.args, pulsar)
    with told():
        access = _access(effective, pulsar)
        try:
            if effective.metadata.kind == "etcd":
                topic = create_node(effective, name, partial(log_of_node, access, replicas=replicas))
                note(f"created the node '{name}', whose log is '{topic}'", quiet=quiet)
                return
            create_log(access, name, replicas)
        except NodeExistsError:
            if not if_not_exists:
                raise
            note(f"the node '{name}' exists", quiet=quiet)
            return
        except LogExistsError:
            if not if_not_exists or effective.metadata.kind == "etcd":
                raise
            # What exists must be a log, too.
            check_is_log(access, name)
            note(f"the log '{name}' exists", quiet=quiet)
            return
    note(f"created the log '{name}'", quiet=quiet)


def create_log(access: "LogAccess", name: str, replicas: int | None = None) -> bytes:
    """Create a topic and the first record of its log, and return the identity of the log.

    Args:
        access: The engine.
        name: Name of the topic.
        replicas: Copies of it; see ``LogAccess.create``.

    Raises:
        LogExistsError: There is a topic of this name, and it has records.
        LogSetupError, EngineUnavailableError, TenureEndedError: See ``LogAccess`` and ``RecordLog``.
    """
    from tidelog_server.recordlog.records import INCARNATION_BYTES

    try:
        access.create(name, replicas)
    except LogExistsError:
        # As an earlier command left it that ended before the first record.
        topic_id = access.check(name)
        if not access.is_empty(name):
            raise
    else:
        topic_id = access.check_created(name)
    identity = secrets.token_bytes(INCARNATION_BYTES)
    with closing(_log(access, name)) as log:
        log.create(identity, topic_id)
    return identity


def log_of_node(access: "LogAccess", name: str, replicas: int | None = None) -> bytes:
    """As ``create_log``, for a node without a log: one without a claim becomes its log.

    An earlier command that ended before the record in etcd has left it.
    """
    try:
        return create_log(access, name, replicas)
    except LogExistsError:
        with closing(_log(access, name)) as log:
            identity = log.unclaimed()
        if identity is None:
            raise
        return identity


def log_to_import(access: "LogAccess", name: str, known: bytes | None) -> bytes:
    """Return the identity of the log for an import: ``known`` if it is that of the topic, else as ``log_of_node``."""
    if known is not None:
        with suppress(LogMissingError):
            access.check(name)
            with closing(_log(access, name)) as log:
                if (first := log.first()) is not None and first.incarnation == known:
                    return known
    return log_of_node(access, name)


def check_is_log(access: "LogAccess", name: str) -> None:
    """Raise LogSetupError if the last positions of a topic have no record of a log."""
    from tidelog_server.recordlog.overview import overview
    from tidelog_server.runtime.clock import SystemClock

    with closing(access.reader(name)) as reader:
        if overview(reader, SystemClock()).term is None:
            raise LogSetupError(f"the topic '{name}' exists, and its last positions have no record of a log")


def list_logs(
    context: typer.Context, config: ConfigOption = None, pulsar: PulsarOption = None, output: OutputOption = None
) -> None:
    """List the logs: all topics named tidelog.CLUSTER.NODE, and all others that have records of a log.

    The term is that of the last owner; entries are counted up to the last change that is near the end.
    """
    with told():
        access = _access(_config(config, context.args, pulsar), pulsar)
        found = [_record(access, topic) for topic in access.find_topics()]
    print_records([record for record in found if record is not None], output)


def import_(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(help="Topic of the log, which must be empty; in a cluster, id of the node.", show_default=False),
    ],
    folder: Annotated[
        Path, typer.Argument(parser=local_path, help="Data folder of a server that has stopped.", show_default=False)
    ],
    config: ConfigOption = None,
    output: OutputOption = None,
    *,
    pulsar: PulsarOption = None,
    quiet: QuietOption = False,
    no_progress: NoProgressOption = False,
) -> None:
    """Copy the data folder of a single server into an empty log, which `tidelog engine create` has created.

    The folder is checked as at a start, and not changed. A log whose import did not end is never served; the next
    import replaces what it has. Ticks, positions of groups, tokens and everything else are those of the folder.

    If metadata.kind is etcd, the folder becomes the first node, NAME, of a cluster without channels: the command
    creates the log, and the records of channels, groups and tokens become keys in etcd.
    """
    from tidelog_server.commands.engine_nodes import import_node, topic_of_node
    from tidelog_server.node import start_check
    from tidelog_server.storage.engine.imports import Imported, folder_to_import
    from tidelog_server.storage.engine.open import LogName

    start_s = time.monotonic()
    with told_of_folder(folder):
        effective = _config(config, context.args, pulsar)
        kind = _kind(effective, pulsar)
        is_node = effective.metadata.kind == "etcd"
        topic = topic_of_node(effective, name) if is_node else name
        access = _access(effective, pulsar)
        # Ordering: before the folder is checked, which may take long.
        origin = b"" if is_node else access.check(topic)
        with (
            folder_to_import(folder, start_check.__name__) as opened,
            Progress("imported", is_shown=show_progress(no_progress=no_progress, quiet=quiet)) as progress,
        ):

            def copy(origin: bytes) -> Imported:
                return opened.copy_into(
                    _log(access, topic), LogName(kind, topic, origin), lambda size: progress.advance(0, size),
                    has_metadata=not is_node, replaces=is_node,
                )  # fmt: skip

            if is_node:
                imported = import_node(
                    effective, name, opened, partial(log_to_import, access), lambda topic: copy(access.check(topic))
                )
            else:
                imported = copy(origin)
    record = {"log": topic, "folder": str(folder), **imported._asdict()}
    print_records([{**record, "seconds": round(time.monotonic() - start_s, 3)}], output)
    ready = f"the node '{name}' is ready: start processes" if is_node else f"the log '{name}' is ready: start a server"
    note(f"{ready} on it with --storage.kind {kind}", quiet=quiet)


def export(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Topic of the log, as in engine.topic.", show_default=False)],
    folder: Annotated[
        Path,
        typer.Argument(parser=local_path, help="Data folder to create; must be new or empty.", show_default=False),
    ],
    config: ConfigOption = None,
    output: OutputOption = None,
    *,
    pulsar: PulsarOption = None,
    copied: Annotated[
        bool,
        typer.Option(
            "--copied",
            help="Export the records of a log also from a topic to which they were copied; the end may be lost.",
        ),
    ] = False,
    quiet: QuietOption = False,
    no_progress: NoProgressOption = False,
) -> None:
    """Create a data folder with everything that a log has now, atomically. This is the backup of a log.

    The log is only read, and its server may run. A server with storage.kind = rocksdb opens the folder; `tidelog
    backup` and restores to a point in time work on it. The new store has a new identity.
    """
    from tidelog_server.node import start_check
    from tidelog_server.runtime.logging import configure_logging
    from tidelog_server.storage.engine.open import LogName

    # Warnings of the store go to stderr, and stdout has the records only.
    configure_logging("warning", "auto")
    start_s = time.monotonic()
    with told_of_folder(folder):
        effective = _config(config, context.args, pulsar)
        access = _access(effective, pulsar)
        log_name = LogName(_kind(effective, pulsar), name, access.id_of(name))
        with Progress("exported", is_shown=show_progress(no_progress=no_progress, quiet=quiet)) as progress:
            exported = export_to(
                folder,
                _log(access, name),
                log_name,
                start_check.__name__,
                lambda size: progress.advance(0, size),
                may_be_copied=copied,
            )
    record = {"log": name, "folder": str(folder), **exported._asdict(), "seconds": round(time.monotonic() - start_s, 3)}
    print_records([record], output)
    note(f"{folder} is ready: start a server on it with --storage.data_dir {folder}", quiet=quiet)


def export_to(
    folder: Path,
    log: "RecordLog",
    name: "LogName",
    check: str,
    meter: Callable[[int], None],
    *,
    may_be_copied: bool = False,
) -> "Exported":
    """Make a data folder of a log, which is closed, completely or not at all. See ``export_log``, ``restore_with``."""
    from tidelog_server.backup.restore import restore_with
    from tidelog_server.storage.engine.export import export_log

    made: list[Exported] = []
    with closing(log):
        restore_with(
            folder,
            lambda path: made.append(export_log(log, name, path, check, meter, may_be_copied=may_be_copied)),
            "export",
        )
    return made[0]


def _record(access: "LogAccess", topic: "FoundTopic") -> dict[str, object] | None:
    """Return the record of a topic; None if it has no log."""
    from tidelog_server.recordlog.access import LOG_PREFIX
    from tidelog_server.recordlog.overview import overview
    from tidelog_server.runtime.clock import SystemClock

    problem = topic.problem
    bounds = term = sequence = None
    with closing(access.reader(topic.name)) as reader:
        try:
            bounds = reader.bounds()
            bounds, term, sequence = overview(reader, SystemClock())
        except (DataLossError, PositionGoneError, EngineUnavailableError) as error:
            problem = problem or str(error)
    if not topic.name.startswith(LOG_PREFIX):
        if term is None:
            return None
        cluster, node = "", ""
    else:
        cluster, _, node = topic.name.removeprefix(LOG_PREFIX).partition(".")
        if term is None:
            problem = problem or "its last positions have no record of a log"
    return {
        "log": topic.name, "cluster": cluster, "node": node, "replicas": topic.replicas, "in_sync": topic.in_sync,
        "begin": bounds and bounds.begin, "end": bounds and bounds.end, "term": term, "entries": sequence,
        "problem": problem,
    }  # fmt: skip


def _config(config: Path | None, arguments: Sequence[str], pulsar: str | None) -> "Config":
    """Return the settings, with the address that ``--pulsar`` gives."""
    given = [] if pulsar is None else ["--engine.service_url", pulsar]
    return effective_config(config, parse_settings([*arguments, *given]))


def _kind(config: "Config", pulsar: str | None) -> str:
    """Return which engine a command is for: that of ``--pulsar``, that of the servers, or the one with an address."""
    if pulsar is None and config.storage.is_in_engine:
        return config.storage.kind
    return "pulsar" if pulsar is not None or config.engine.service_url else "kafka"


def _access(config: "Config", pulsar: str | None) -> "LogAccess":
    return open_access(_kind(config, pulsar), config.engine)


def _log(access: "LogAccess", topic: str) -> "RecordLog":
    """Return the log in a topic; the caller closes it. Raises LogSetupError."""
    from tidelog_server.recordlog.record_log import RecordLog
    from tidelog_server.runtime.clock import SystemClock

    return RecordLog(access.engine(topic), SystemClock())


def open_access(kind: str, engine: "EngineSettings") -> "LogAccess":
    """Return the engine that the settings name.

    Args:
        kind: One of ``ENGINE_KINDS``.
        engine: Its address and options.

    Raises:
        CommandError: No address is set, or the client is not installed.
        LogSetupError: An option is not allowed.
    """
    from tidelog_server.from_settings import log_access

    row = ENGINE_KINDS[kind]
    if not getattr(engine, row.address):
        given = f"engine.{row.address} is not set: give --engine.{row.address} {row.form}"
        raise CommandError(given, ExitCode.USAGE)
    try:
        return log_access(kind, engine)
    except ModuleNotFoundError as error:
        raise CommandError(row.missing, ExitCode.BAD_CONFIG) from error


def told() -> AbstractContextManager[None]:
    """Raise what is wrong with a log as CommandError."""
    return exit_codes_of(_LOG_CODES)


@contextmanager
def told_of_folder(folder: Path) -> Iterator[None]:
    """As ``told``, and raise what is wrong with a data folder and its rows as CommandError."""
    try:
        with exit_codes_of(_LOG_CODES | _ROW_CODES | FOLDER_CODES):
            yield
    except OSError as error:
        problem = folder_error(folder, error)
        raise CommandError(str(problem), FOLDER_CODES[type(problem)]) from error
