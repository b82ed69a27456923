"""What the commands of all benchmarks share: options, a temporary folder, and the settings of their servers."""

import signal
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_cli.files import local_path
from tidelog_cli.option_groups import OptionGroup
from tidelog_cli.output.progress import progress_line
from tidelog_cli.output.records import show_progress
from tidelog_server.commands.bench.report import Report, print_report
from tidelog_server.commands.bench.stolen_time import StolenTime
from tidelog_server.core.limits import MAX_MESSAGES_PER_BATCH

if TYPE_CHECKING:
    from tidelog_server.commands.bench.server_process import Target

EndpointOption = Annotated[
    str | None,
    typer.Option("--endpoint", help="Measure the server at host:port instead of a new one.", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print each report as one JSON object.")]
FolderOption = Annotated[
    Path, typer.Option("--folder", parser=local_path, help="Folder for temporary files; its disk is measured.")
]
SizeOption = Annotated[int, typer.Option(min=1, help="Bytes per payload.")]
MessagesOption = Annotated[int, typer.Option("--messages", min=1, help="Number of messages.")]
BatchMessagesOption = Annotated[
    int, typer.Option(min=1, max=MAX_MESSAGES_PER_BATCH, help="Maximum messages per batch.")
]
BatchBytesOption = Annotated[int, typer.Option(min=1, help="Maximum bytes of payloads per batch.")]

_Result = TypeVar("_Result")

# The producer's default.
DEFAULT_BATCH_BYTES: Final = 1 << 20


def print_measured(measure: Callable[[], Report | Iterable[Report]], *, as_json: bool) -> None:
    """Print the reports that ``measure`` returns, each with the share of CPU that was stolen since its call."""
    stolen = StolenTime()
    measured = measure()
    for report in [measured] if isinstance(measured, Report) else measured:
        print_report(stolen.noted(report), as_json=as_json)


def run_measurement(measurement: Coroutine[None, None, _Result]) -> _Result:
    """Run a measurement and return its result.

    Raises:
        CommandError: A server or broker refused, or is unreachable.
    """
    # Imported late: this module is imported to print help, and the client takes 0.3 s.
    from tidelog_cli import connection

    return connection.run(measurement)


def print_measurement(measurement: Coroutine[None, None, Report | Iterable[Report]], *, as_json: bool) -> None:
    """Run a measurement and print its reports. Raises as ``run_measurement``."""
    print_measured(lambda: run_measurement(measurement), as_json=as_json)


def per_batch_of(size: int, batch_messages: int, batch_bytes: int) -> int:
    """Return the number of messages of a batch that keeps both limits."""
    return max(1, min(batch_messages, batch_bytes // size))


def settings_for(size: int) -> dict[str, str]:
    """Return the settings with which a server accepts messages of this size and a nearly full disk."""
    limits = {"limits.min_free_disk_bytes": "0"}
    if size > 1 << 20:
        limits |= {
            "limits.max_message_bytes": str(size),
            "limits.max_batch_bytes": str(max(4 << 20, size + (1 << 20))),
            "limits.max_in_flight_bytes_per_stream": str(max(8 << 20, 2 * size + (1 << 21))),
        }
    return limits


@dataclass(frozen=True)
class EngineOptions(OptionGroup):
    """Options that choose an engine to measure."""

    kafka: Annotated[
        str | None,
        typer.Option(
            help="Measure a new server whose log is in the Kafka at these addresses, against confluent-kafka alone.",
            show_default=False,
        ),
    ] = None
    kafka_options: Annotated[str, typer.Option(help="File of options for Kafka's client, as engine.options_file.")] = ""
    pulsar: Annotated[
        str | None,
        typer.Option(
            help="Measure a new server whose log is in the Pulsar at this address, against pulsar-client alone.",
            show_default=False,
        ),
    ] = None
    pulsar_admin: Annotated[str, typer.Option(help="Address of its administration API, as engine.admin_url.")] = ""

    def chosen(self, **alone: object) -> tuple[str, Mapping[str, str]] | None:
        """Return the kind of the engine, and the settings that name it; the options ``alone`` exclude one."""
        if self.kafka is not None and self.pulsar is not None:
            raise CommandError("--kafka and --pulsar are both given: use one of them", ExitCode.USAGE)
        if self.kafka is not None:
            kind, settings = "kafka", {"engine.servers": self.kafka, "engine.options_file": self.kafka_options}
        elif self.pulsar is not None:
            kind, settings = "pulsar", {"engine.service_url": self.pulsar, "engine.admin_url": self.pulsar_admin}
        else:
            return None
        if given := [name.replace("_", "-") for name, is_given in alone.items() if is_given]:
            raise CommandError(
                f"--kafka or --pulsar, and --{given[0]}, are both given: use one of them", ExitCode.USAGE
            )
        return kind, {name: value for name, value in settings.items() if value}


NO_ENGINE: Final = EngineOptions()


@contextmanager
def bench_folder(parent: Path) -> Iterator[Path]:
    """Yield a new temporary folder, which is always removed at the end. SIGTERM ends the block as Ctrl-C does."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="tidelog-bench-", dir=parent, ignore_cleanup_errors=True)
    except OSError as error:
        raise CommandError(f"cannot create a folder in {parent.absolute()}: {error.strerror}") from error
    # Otherwise the servers of the measurement would outlive it: they have sessions of their own.
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with folder as path:
            yield Path(path)
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextmanager
def bench_target(endpoint: str | None, parent: Path, settings: Mapping[str, str]) -> Iterator[tuple["Target", Path]]:
    """Yield the server at ``endpoint``, or a new one, and a new temporary folder, which also has the server's data."""
    # Imported late: it needs psutil, and this module is imported to print help.
    from tidelog_server.commands.bench.server_process import running_target

    with bench_folder(parent) as folder, running_target(endpoint, folder, settings) as target:
        yield target, folder


def _interrupt(*_: object) -> None:
    # Once: a second signal must not end the removal of what the first one left.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A background job of a shell script inherits that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr if it is a terminal; yield a function that advances it by a number of ``what``."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with progress_line(*columns, is_shown=show_progress(no_progress=False, quiet=False)) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.update(task, advance=count)
