"""``tidelog pipeline``: archive, compact, verify and count channels in a separate Spark session."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

import tidelog
from tidelog.read.channel_patterns import is_pattern
from tidelog_cli.connection import refused
from tidelog_cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_cli.files import local_path, refused_by_system
from tidelog_cli.local_spark import check_java, spark_session
from tidelog_cli.option_groups import OptionGroup, expanded
from tidelog_cli.options.completers import vchannel_names
from tidelog_cli.options.target import NOT_GIVEN, EndpointOption, source_options, target_at
from tidelog_cli.output.progress import progress_line
from tidelog_cli.output.records import (
    NoProgressOption,
    Output,
    OutputOption,
    QuietOption,
    chosen_output,
    is_table,
    note,
    print_records,
    show_progress,
)

if TYPE_CHECKING:
    from types import ModuleType as Preflight

    from pyspark.sql import SparkSession

    from tidelog.spark.pipelines import VerifyReport
    from tidelog.spark.pipelines.tasks import OnProgress

ChannelsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="CHANNEL...",
        help="CHANNEL, CHANNEL/INDEX, or one pattern: 'orders.*' or '*'.",
        autocompletion=vchannel_names,
    ),
]
MasterOption = Annotated[str, typer.Option(help="Spark master: local[N], spark://..., yarn or k8s://....")]
ConfOption = Annotated[list[str] | None, typer.Option("--conf", help="Spark setting KEY=VALUE; repeatable.")]
SourceOption = Annotated[
    list[str] | None,
    typer.Option("--option", help="Option NAME=VALUE of the Spark source; repeatable."),
]
# Why str: a Path would turn s3://bucket into the folder "s3:".
ArchiveOption = Annotated[
    str | None,
    typer.Option(help="Folder of an archive: read archived messages from it, and newer ones from the log."),
]
ArchiveOnlyOption = Annotated[bool, typer.Option("--archive-only", help="Read only the archive, without a server.")]
AsOfOption = Annotated[int | None, typer.Option(help="Read the log as of this tick, inclusive. Default: now.")]
HtmlOption = Annotated[Path | None, typer.Option(parser=local_path, help="Also write the report to this HTML file.")]

_CODES: Final = f"{COMMON_CODES} Here 9 means that there are findings."


@dataclass(frozen=True, slots=True)
class Reads(OptionGroup):
    """What a command reads besides the whole log."""

    as_of_tick: AsOfOption = None
    archive: ArchiveOption = None
    archive_only: ArchiveOnlyOption = False

    def options(self) -> dict[str, str]:
        """Return the options of the Spark source."""
        given = {
            "archive": None if self.archive is None else str(_folder(self.archive)),
            "archiveOnly": "true" if self.archive_only else None,
            "asOfTick": None if self.as_of_tick is None else str(self.as_of_tick),
        }
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Job(OptionGroup):
    """The Spark job of a command."""

    option: SourceOption = None
    master: MasterOption = "local[*]"
    conf: ConfOption = None
    endpoint: EndpointOption = NOT_GIVEN
    output: OutputOption = None
    quiet: QuietOption = False
    no_progress: NoProgressOption = False

    def source(self, channels: Sequence[str], reads: Reads | None = None) -> Mapping[str, str]:
        """Return the options of the Spark source."""
        if any(map(is_pattern, channels)):
            if len(channels) > 1:
                raise CommandError("expected one pattern or a list of channels, not both", ExitCode.USAGE)
            what = {"channelPattern": channels[0]}
        else:
            what = {"vchannels" if any("/" in name for name in channels) else "channels": ",".join(channels)}
        read = {} if reads is None else reads.options()
        return {**source_options(target_at(self.endpoint)), **what, **read, **_pairs(self.option, "--option")}

    @contextmanager
    def session(
        self, name: str, checks: "Callable[[Preflight], None]", page: Path | None = None
    ) -> "Iterator[tuple[SparkSession, OnProgress | None]]":
        """Check ``page``, run ``checks``, then yield a session and its progress callback. Fails with CommandError."""
        conf, is_shown = _pairs(self.conf, "--conf"), show_progress(no_progress=self.no_progress, quiet=self.quiet)
        with _explained(), _progress(is_shown=is_shown) as on_progress:
            from tidelog.spark.pipelines import preflight

            check_java()
            if page is not None:
                preflight.check_file(page)
            checks(preflight)
            if on_progress is not None:
                on_progress("starting Spark", 0, 0)
            with (
                tempfile.TemporaryDirectory(prefix="tidelog-pipeline-", ignore_cleanup_errors=True) as folder,
                spark_session(Path(folder), name=f"tidelog {name}", master=self.master, conf=conf) as spark,
            ):
                yield spark, on_progress


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(
        no_args_is_help=True, help="Archive, compact, verify and count channels with Spark. Requires Java 17 or newer."
    )
    group.command("archive", epilog=COMMON_CODES)(expanded(archive))
    group.command("compact", epilog=COMMON_CODES)(expanded(compact))
    group.command("verify", epilog=_CODES)(expanded(verify))
    group.command("stats", epilog=COMMON_CODES)(expanded(stats))
    app.add_typer(group, name="pipeline")


def archive(
    root: Annotated[str, typer.Argument(help="Folder of the archive; created if missing.")],
    channels: ChannelsArgument,
    *,
    trim: Annotated[
        bool,
        typer.Option(
            "--trim",
            help="Then trim the log up to its archived end, but keep what a consumer group or a broadcast still needs.",
        ),
    ] = False,
    delta: Annotated[
        bool,
        typer.Option(
            "--delta",
            help="Create a Delta table of the files, which later runs update. Requires tidelog\\[delta].",
        ),
    ] = False,
    job: Job,
) -> None:
    """Archive messages appended since the last run to Parquet files, each message exactly once."""
    place = _folder(root)
    options = job.source(channels)
    with job.session("archive", lambda check: check.check_archive(place, options, delta=delta)) as (spark, on_progress):
        from tidelog.spark.pipelines import archive as run

        done = run(spark, place, options, trim=trim, delta=delta, on_progress=on_progress)
    if not done.commit:
        note(f"nothing to archive: the archive is unchanged since commit {done.archive.commit}", quiet=job.quiet)
    for name, lane in done.trimmed.items():
        if lane.held_by:
            note(
                f"{name} is trimmed only up to tick {lane.first_available_tick}: {lane.held_by} needs the rest",
                quiet=job.quiet,
            )
    record = done.as_record()
    if is_table(job.output):
        del record["archive"]
        record["trimmed"] = len(done.trimmed)
        archived = done.archive.as_record()
        if not done.commit:
            print_records([{**record, **archived}], job.output, title="archive")
            return
        print_records([record], job.output, title="added")
        print_records([archived], job.output, title="archive")
    else:
        print_records([record], job.output)


def compact(
    folder: Annotated[str, typer.Argument(help="Folder of snapshots; each snapshot is named by its tick.")],
    channels: ChannelsArgument,
    *,
    reads: Reads,
    tombstones: Annotated[
        Literal["drop", "keep"], typer.Option(help="Treatment of keys whose latest payload is empty.")
    ] = "drop",
    unkeyed: Annotated[
        Literal["error", "keep", "drop"], typer.Option(help="Treatment of messages without a key.")
    ] = "error",
    job: Job,
) -> None:
    """Write a snapshot: the latest message of each key as of a tick, as Parquet."""
    place = _folder(folder)
    options = job.source(channels, reads)
    with job.session("compact", lambda check: check.check_compact(place, options)) as (spark, on_progress):
        from tidelog.spark.pipelines import compact as run

        done = run(spark, place, options, tombstones=tombstones, unkeyed=unkeyed, on_progress=on_progress)
    if not done.written:
        note("nothing written: the snapshot already exists", quiet=job.quiet)
    print_records([done.as_record()], job.output)


def verify(
    channels: ChannelsArgument,
    *,
    reads: Reads,
    digest: Annotated[str | None, typer.Option(help="Expected full digest.")] = None,
    content_digest: Annotated[str | None, typer.Option(help="Expected content digest.")] = None,
    sequence_property: Annotated[
        str, typer.Option(help="Message property that holds the producer's sequence number.")
    ] = "",
    producer_property: Annotated[str, typer.Option(help="Message property that identifies the producer.")] = "",
    html: HtmlOption = None,
    job: Job,
) -> None:
    """Audit the log, an archive or both: order, transactions, broadcasts, sequences, counts and digests.

    Exits with 9 if there are findings.
    """
    options = job.source(channels, reads)

    def checks(check: "Preflight") -> None:
        check.check_verify(options, digest=digest, content_digest=content_digest)

    with job.session("verify", checks, html) as (spark, on_progress):
        from tidelog.spark.pipelines import Sequences, verify_page
        from tidelog.spark.pipelines import verify as run

        sequences = Sequences(sequence_property, producer_property) if sequence_property else None
        report = run(
            spark, options, digest=digest, content_digest=content_digest, sequences=sequences, on_progress=on_progress
        )
        page = verify_page(report, options)
    print_audit(report, job.output)
    _write_page(html, page)
    if not report.ok:
        raise CommandError(f"{len(report.findings)} findings: {report.findings[0].text}", ExitCode.UNHEALTHY)


def print_audit(report: "VerifyReport", output: Output | None) -> None:
    """Print an audit: tables of vchannels, digests and findings, or one record in other formats."""
    record = report.as_record()
    if is_table(output):
        lanes, findings = record.pop("lanes"), record.pop("findings")
        # A separate table, so that digests do not wrap and can be copied.
        names = ("digest", "content_digest")
        counts = [{name: value for name, value in lane.items() if name not in names} for lane in lanes]
        digests = [{name: lane[name] for name in ("vchannel", "digest", "content_digest")} for lane in lanes]
        print_records(counts, output, title="vchannels")
        print_records(digests, output, title="digests")
        if findings:
            print_records(findings, output, title="findings")
    print_records([record], output)


def stats(
    channels: ChannelsArgument,
    *,
    window: Annotated[
        int | None,
        typer.Option(min=1, help="Seconds per window. Default: about 100 windows in all."),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Number of most frequent keys to list per channel.")] = 10,
    parquet: Annotated[str | None, typer.Option(help="Also write the windows to this folder as Parquet.")] = None,
    reads: Reads,
    html: HtmlOption = None,
    job: Job,
) -> None:
    """Count messages, bytes, sizes and keys over time windows.

    A table shows channels and their most frequent keys; JSON also shows windows, sizes and types.
    """
    options = job.source(channels, reads)
    with job.session("stats", lambda check: check.check_stats(options, output=parquet), html) as (spark, on_progress):
        from tidelog.spark.pipelines import stats as run
        from tidelog.spark.pipelines import stats_page

        report = run(spark, options, window_s=window, top=top, output=parquet, on_progress=on_progress)
        page = stats_page(report, options)
    if is_table(job.output):
        about = {"distinct_keys": "distinct keys (estimate)"}
        channels_ = [{about.get(name, name): value for name, value in each.items()} for each in report.channels]
        print_records(channels_, job.output, title=f"channels as of tick {report.tick}")
        if report.top_keys:
            print_records(report.top_keys, job.output, title="keys with most messages")
    elif chosen_output(job.output) is Output.TEXT:
        print_records(report.channels, job.output)
    else:
        print_records([report.as_record()], job.output)
    _write_page(html, page)


@contextmanager
def _explained() -> Iterator[None]:
    """Convert exceptions of the block to a CommandError with one line and an exit code."""
    from pyspark.errors import PySparkException

    from tidelog.spark.errors import OptionError
    from tidelog.spark.pipelines import ArchiveError, CompactError, UnkeyedError, reason_of

    try:
        yield
    except tidelog.TidelogError as error:
        raise refused(error) from error
    except OptionError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    except UnkeyedError as error:
        raise CommandError(str(UnkeyedError("--unkeyed keep", "--unkeyed drop")), ExitCode.CONFLICT) from error
    except (ArchiveError, CompactError) as error:
        raise CommandError(str(error), ExitCode.CONFLICT) from error
    except PySparkException as error:
        raise CommandError(reason_of(error)) from error
    except OSError as error:
        # Without a file it is an error of a connection, such as that to Spark's JVM.
        reason = refused_by_system(error) if error.filename else str(error) or type(error).__name__
        raise CommandError(reason) from error
    except KeyboardInterrupt as error:
        raise CommandError("interrupted", ExitCode.INTERRUPTED) from error


@contextmanager
def _progress(*, is_shown: bool) -> "Iterator[OnProgress | None]":
    if not is_shown:
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
    )
    with progress_line(*columns) as bar:
        task = bar.add_task("checking", total=None, count="")

        def update(what: str, done: int, total: int) -> None:
            count = f"{done:,} of {total:,} tasks" if total else ""
            bar.update(task, description=what, completed=done, total=total or None, count=count)

        yield update


def _folder(text: str) -> Path:
    """Return the absolute path of a folder argument."""
    with _explained():
        from tidelog.spark.archive.manifest import folder_path

        return folder_path(text)


def _pairs(texts: Sequence[str] | None, flag: str) -> dict[str, str]:
    pairs = {}
    for text in texts or ():
        name, is_there, value = text.partition("=")
        if not is_there:
            raise CommandError(f"invalid {flag} {text!r}: expected NAME=VALUE", ExitCode.USAGE)
        pairs[name] = value
    return pairs


def _write_page(path: Path | None, page: str) -> None:
    """Write the report's page. Ordering: after everything is printed, so that a failure loses no output."""
    if path is not None:
        with _explained():
            path.write_text(page)
