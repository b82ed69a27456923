"""``tidelog bench``: each benchmark is compared with its floor and starts its own server."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from tidelog_server.cli import event_loop
from tidelog_server.cli.bench.report import Report, print_report
from tidelog_server.cli.bench.stolen_time import StolenTime
from tidelog_server.cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_server.cli.local_spark import check_java
from tidelog_server.core.limits import MAX_CHANNELS, MAX_MESSAGES_PER_BATCH

if TYPE_CHECKING:
    from tidelog_server.cli.bench.security import SecuritySettings

_EndpointOption = Annotated[
    str | None,
    typer.Option("--endpoint", help="Measure the server at host:port instead of a new one.", show_default=False),
]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print each report as one JSON object.")]
_FolderOption = Annotated[Path, typer.Option("--folder", help="Folder for temporary files; its disk is measured.")]
_SizeOption = Annotated[int, typer.Option(min=1, help="Bytes per payload.")]
_MessagesOption = Annotated[int, typer.Option("--messages", min=1, help="Number of messages.")]
_BatchMessagesOption = Annotated[
    int, typer.Option(min=1, max=MAX_MESSAGES_PER_BATCH, help="Maximum messages per batch.")
]
_BatchBytesOption = Annotated[int, typer.Option(min=1, help="Maximum bytes of payloads per batch.")]

# The producer's default.
_DEFAULT_BATCH_BYTES: Final = 1 << 20
_SINGLE_MESSAGES: Final = 100_000
_LARGEST_CAPPED: Final = 1 << 10


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Measure Tidelog and compare it with the same work without Tidelog.")
    for command in (
        append, latency, txn, broadcast, msgstream, scan, consume, rebalance, channels, retention, metadata, backup,
        security, spark, stream, pipeline,
    ):  # fmt: skip
        group.command(epilog=COMMON_CODES)(command)
    group.command("all", epilog=COMMON_CODES)(run_all)
    app.add_typer(group, name="bench")


def append(
    *,
    messages: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of messages. Default: 8,000,000 or 1 GiB; 100,000 with --single.", show_default=False
        ),
    ] = None,
    size: _SizeOption = 100,
    batch_messages: _BatchMessagesOption = MAX_MESSAGES_PER_BATCH,
    batch_bytes: _BatchBytesOption = _DEFAULT_BATCH_BYTES,
    producers: Annotated[int, typer.Option(min=1, help="Number of concurrent producers.")] = 1,
    concurrency: Annotated[int, typer.Option(min=1, help="With --single: number of concurrent appends.")] = 64,
    single: Annotated[bool, typer.Option("--single", help="Append single messages, one at a time per task.")] = False,
    vchannels: Annotated[int, typer.Option(min=1, help="Number of vchannels.")] = 1,
    durability: Annotated[Literal["sync", "os"], typer.Option(help="Acknowledge when on disk, or in the OS.")] = "sync",
    stalled_follower: Annotated[
        bool, typer.Option("--stalled-follower", help="Attach a following scan that does not read.")
    ] = False,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure durable messages per second; from 10,000,000 messages on, also rate over time, seeks and a restart."""
    from tidelog_server.cli.bench.append import AppendSettings, measure_append
    from tidelog_server.cli.bench.server_process import running_target

    settings = AppendSettings(
        messages=messages or (_SINGLE_MESSAGES if single else _default_messages(size)),
        size=size,
        per_batch=_per_batch(size, batch_messages, batch_bytes),
        producers=concurrency if single else producers,
        vchannels=vchannels,
        durability=durability,
        is_single=single,
        has_stalled_follower=stalled_follower,
    )
    server_settings = {"storage.durability": durability, **_needs(size)}
    with _bench_folder(folder) as bench, running_target(endpoint, bench, server_settings) as target:
        _report(lambda: event_loop.run(measure_append(target, bench, settings)), as_json=json)


def security(
    *,
    messages: _MessagesOption = 4_000_000,
    size: _SizeOption = 100,
    batch_messages: _BatchMessagesOption = MAX_MESSAGES_PER_BATCH,
    batch_bytes: _BatchBytesOption = _DEFAULT_BATCH_BYTES,
    streams: Annotated[int, typer.Option(min=0, help="Idle streams during the attack; 0 to measure TLS only.")] = 5_000,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds that the hostile client attacks, per round.")] = 15,
    attack: Annotated[
        list[str] | None, typer.Option("--attack", help="Run only this attack; repeatable.", show_default=False)
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds of each attack and its floor.")] = 3,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure appends with TLS and a token against plaintext; then during idle streams and attacks."""
    from tidelog_server.cli.bench.attacks import ATTACKS
    from tidelog_server.cli.bench.security import SecuritySettings
    from tidelog_server.cli.bench.security_attack import AttackSettings, measure_attack

    known = {each.name: each for each in ATTACKS}
    if unknown := sorted(set(attack or ()) - known.keys()):
        raise CommandError(f"unknown attack '{unknown[0]}': expected one of {', '.join(known)}", ExitCode.USAGE)
    if attack is None:
        tls = SecuritySettings(messages, size, _per_batch(size, batch_messages, batch_bytes), streams, seconds)
        _measure_security(tls, folder, as_json=json)
    for name in attack or known:
        with _bench_folder(folder) as bench:
            settings = AttackSettings(seconds, rounds, size)
            _report(lambda: event_loop.run(measure_attack(known[name], bench, settings)), as_json=json)  # noqa: B023 - run at once


def _measure_security(settings: "SecuritySettings", folder: Path, *, as_json: bool) -> None:
    """Measure TLS against plaintext, and a client during idle streams and an attack."""
    from tidelog_server.cli.bench.security import measure_siege, measure_tls
    from tidelog_server.cli.bench.security_server import secured_server
    from tidelog_server.cli.bench.server_process import ServerProcess, running_target

    # No quotas: they would limit what is measured.
    flags = {
        "quota.requests_per_s": "0", "limits.max_open_streams": str(2 * settings.streams + 1_000),
        "limits.max_open_streams_per_principal": str(settings.streams + 1_000),
    }  # fmt: skip

    async def tls(plain: ServerProcess, bench: Path) -> Report:
        async with secured_server(bench, flags) as secured:
            return await measure_tls(plain, secured, settings)

    async def siege(bench: Path, *, asks_for_certificates: bool) -> Report:
        async with secured_server(bench, flags, asks_for_certificates=asks_for_certificates) as secured:
            return await measure_siege(secured, settings)

    with _bench_folder(folder) as bench, running_target(None, bench, {}) as target:
        process = target.process
        assert process is not None
        _report(lambda: event_loop.run(tls(process, bench)), as_json=as_json)
    if settings.streams:
        # Its own server, so that the reported memory is that of this measurement.
        for asks in (False, True):
            with _bench_folder(folder) as bench:
                _report(lambda: event_loop.run(siege(bench, asks_for_certificates=asks)), as_json=as_json)  # noqa: B023 - run at once


def latency(
    *,
    messages: _MessagesOption = 4_000,
    size: _SizeOption = 100,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure the latency of single synced appends, in microseconds."""
    from tidelog_server.cli.bench.latency import measure_latency
    from tidelog_server.cli.bench.server_process import running_target

    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        _report(lambda: event_loop.run(measure_latency(target, bench, messages=messages, size=size)), as_json=json)


def txn(
    *,
    transactions: Annotated[
        int, typer.Option(min=1, help="Number of transactions, on one vchannel and again on four.")
    ] = 60_000,
    messages: Annotated[int, typer.Option("--messages", min=4, max=1_000, help="Messages per transaction.")] = 10,
    size: _SizeOption = 100,
    concurrency: Annotated[int, typer.Option(min=1, help="Number of concurrent transactions.")] = 64,
    large_mib: Annotated[int, typer.Option(min=0, help="MiB of the large transaction; 0 to skip it.")] = 1_024,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure commits per second on one vchannel, and on four of two channels, against appends of the same messages.

    Then measure one large transaction, and the server's memory for it.
    """
    from tidelog_server.cli.bench.large_txn import LargeTxnSettings, measure_large_txn
    from tidelog_server.cli.bench.server_process import running_target
    from tidelog_server.cli.bench.txn import TxnSettings, measure_txn

    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        for channels, vchannels in ((1, 1), (2, 4)):
            settings = TxnSettings(transactions, messages, size, concurrency, channels, vchannels)
            stolen = StolenTime()
            print_report(stolen.noted(event_loop.run(measure_txn(target, settings))), as_json=json)
    if large_mib:
        # Its own server, so that the reported memory is that of this transaction.
        large = LargeTxnSettings(large_mib, size)
        with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
            _report(lambda: event_loop.run(measure_large_txn(target, large)), as_json=json)


def broadcast(
    *,
    broadcasts: Annotated[int, typer.Option(min=1, help="Number of broadcasts, one after the other.")] = 1_000,
    vchannels: Annotated[int, typer.Option(min=1, max=1_024, help="Vchannels per broadcast.")] = 100,
    size: _SizeOption = 100,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure broadcasts to many vchannels under a resource key, against single appends to one of them."""
    from tidelog_server.cli.bench.broadcast import BroadcastSettings, measure_broadcast
    from tidelog_server.cli.bench.server_process import running_target

    settings = BroadcastSettings(broadcasts, vchannels, size)
    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        _report(lambda: event_loop.run(measure_broadcast(target, settings)), as_json=json)


def msgstream(
    *,
    intervals: Annotated[int, typer.Option(min=4, help="Number of intervals to measure.")] = 50,
    interval_ms: Annotated[int, typer.Option(min=10, max=60_000, help="Milliseconds per interval.")] = 200,
    pause_ms: Annotated[float, typer.Option(min=0, help="Milliseconds between packs of the producer.")] = 5,
    size: _SizeOption = 100,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure the delay of packs of two time-tick streams over eight channels, two of them without messages."""
    from tidelog_server.cli.bench.msgstream import MsgstreamSettings, measure_msgstream
    from tidelog_server.cli.bench.server_process import running_target

    settings = MsgstreamSettings(intervals, interval_ms, pause_ms, size)
    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        _report(lambda: event_loop.run(measure_msgstream(target, settings)), as_json=json)


def scan(
    *,
    messages: _MessagesOption = 4_000_000,
    size: _SizeOption = 100,
    batch_messages: _BatchMessagesOption = MAX_MESSAGES_PER_BATCH,
    batch_bytes: _BatchBytesOption = _DEFAULT_BATCH_BYTES,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure messages per second into Python bytes, and megabytes per second as raw batches."""
    from tidelog_server.cli.bench.scan import measure_scan
    from tidelog_server.cli.bench.server_process import running_target

    per_batch = _per_batch(size, batch_messages, batch_bytes)
    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        _report(
            lambda: event_loop.run(measure_scan(target, bench, messages=messages, size=size, per_batch=per_batch)),
            as_json=json,
        )


def consume(
    *,
    messages: _MessagesOption = 8_000_000,
    size: _SizeOption = 100,
    members: Annotated[int, typer.Option(min=1, help="Number of members, each a process.")] = 4,
    vchannels: Annotated[int, typer.Option(min=1, help="Number of vchannels; a multiple of --members.")] = 8,
    commit_every: Annotated[
        int, typer.Option(min=1, max=MAX_MESSAGES_PER_BATCH, help="Messages per batch; each batch is committed.")
    ] = 1_000,
    waits: Annotated[bool, typer.Option("--waits", help="Wait for each commit before the next batch.")] = False,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure messages per second through a consumer group, with durable commits, against a scan of the same log."""
    from tidelog_server.cli.bench.consume import ConsumeSettings, measure_consume
    from tidelog_server.cli.bench.server_process import running_target

    if vchannels % members:
        raise CommandError(
            f"{members} members cannot share {vchannels} vchannels evenly: make --vchannels a multiple of --members",
            ExitCode.USAGE,
        )
    settings = ConsumeSettings(messages, size, members, vchannels, commit_every, waits)
    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        _report(lambda: event_loop.run(measure_consume(target, settings)), as_json=json)


def rebalance(
    *,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds during which members are killed and added.")] = 60.0,
    members: Annotated[int, typer.Option(min=2, help="Number of concurrent members, each a process.")] = 4,
    vchannels: Annotated[int, typer.Option(min=1, help="Number of vchannels.")] = 8,
    rate: Annotated[int, typer.Option(min=1, help="Messages appended per second.")] = 2_000,
    kill_every: Annotated[float, typer.Option(min=0.1, help="Seconds between kills.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the random choice of the killed member.")] = 0,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Count lost and duplicate messages, and measure the longest pause, while members are killed and added."""
    from tidelog_server.cli.bench.rebalance import RebalanceSettings, measure_rebalance
    from tidelog_server.cli.bench.server_process import running_target

    settings = RebalanceSettings(seconds, members, vchannels, rate, kill_every, seed)
    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(100)) as target:
        _report(lambda: event_loop.run(measure_rebalance(target, settings)), as_json=json)


def channels(
    *,
    channels: Annotated[
        int, typer.Option(min=200, max=MAX_CHANNELS, help="Number of channels, a multiple of 100.")
    ] = MAX_CHANNELS,
    messages: Annotated[
        int, typer.Option("--messages", min=0, help="Messages per channel, appended one by one before a restart.")
    ] = 100,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure creating, describing, altering and listing channels and groups, the server's memory, and restarts."""
    from tidelog_server.cli.bench.channels import ChannelsSettings, measure_channels
    from tidelog_server.cli.bench.server_process import running_target

    settings = ChannelsSettings(channels, messages)
    with _bench_folder(folder) as bench, running_target(None, bench, _needs(1)) as target:
        assert target.process is not None
        process = target.process
        _report(lambda: event_loop.run(measure_channels(process, settings)), as_json=json)


def retention(
    *,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds of appends with retention.")] = 300,
    cap: Annotated[str, typer.Option(help="Retention of the channel in bytes, such as 1GiB.")] = "1GiB",
    vchannels: Annotated[int, typer.Option(min=1, max=64, help="Number of vchannels, with a producer each.")] = 2,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure disk usage of a channel with retention during appends at full speed; messages of 100 bytes to 1 KiB."""
    from tidelog import Retention
    from tidelog_server.cli.bench.retention import RetentionSettings, measure_retention
    from tidelog_server.cli.bench.server_process import running_target

    try:
        cap_bytes = Retention.of(bytes=cap).bytes
    except ValueError as error:
        raise CommandError(str(error), ExitCode.USAGE) from error
    assert cap_bytes is not None
    settings = RetentionSettings(seconds, cap_bytes, vchannels)
    with _bench_folder(folder) as bench, running_target(None, bench, _needs(_LARGEST_CAPPED)) as target:
        _report(lambda: event_loop.run(measure_retention(target, bench / "server", settings)), as_json=json)


def metadata(
    *,
    messages: _MessagesOption = 6_000_000,
    size: _SizeOption = 100,
    batch_messages: _BatchMessagesOption = MAX_MESSAGES_PER_BATCH,
    etcd: Annotated[str | None, typer.Option(help="host:port of an etcd. Default: start one.")] = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure durable messages per second with metadata in etcd, against embedded metadata, in turns."""
    from tidelog_server.cli.bench.metadata import measure_metadata, running_etcd

    def measure(bench: Path, endpoint: str) -> Report:
        per_batch = _per_batch(size, batch_messages, _DEFAULT_BATCH_BYTES)
        return event_loop.run(measure_metadata(bench, endpoint, messages=messages, size=size, per_batch=per_batch))

    with _bench_folder(folder) as bench:
        if etcd is not None:
            _report(lambda: measure(bench, etcd), as_json=json)
            return
        with running_etcd(bench) as endpoint:
            _report(lambda: measure(bench, endpoint), as_json=json)


def backup(
    *,
    gigabytes: Annotated[float, typer.Option(min=0.01, help="Size of the log to back up, in GB.")] = 5,
    size: _SizeOption = 1 << 10,
    rate: Annotated[str, typer.Option(help="Maximum bytes per second that the backup reads.")] = "32MiB",
    rounds: Annotated[int, typer.Option(min=1, help="Number of backups.")] = 2,
    plain_s: Annotated[float, typer.Option(min=0.1, help="Seconds without a backup before and after each.")] = 20,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure appends during a backup, against appends without one; and compare the restored copy with the log."""
    from tidelog_server.cli.bench.backup import BackupSettings, measure_backup
    from tidelog_server.cli.bench.server_process import running_target

    settings = BackupSettings(int(gigabytes * 1e9), size, rate, rounds, plain_s)
    with _bench_folder(folder) as bench, running_target(None, bench, _needs(size)) as target:
        process = target.process
        assert process is not None
        _report(lambda: event_loop.run(measure_backup(process, bench, settings)), as_json=json)


def spark(
    *,
    messages: _MessagesOption = 5_000_000,
    size: _SizeOption = 100,
    vchannels: Annotated[int, typer.Option(min=1, help="Number of vchannels.")] = 4,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure rows per second into Spark, against the same rows from Parquet."""
    from tidelog_server.cli.bench.server_process import running_target
    from tidelog_server.cli.bench.spark import measure_spark

    check_java()
    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        _report(lambda: measure_spark(target, bench, messages=messages, size=size, vchannels=vchannels), as_json=json)


def stream(
    *,
    rate: Annotated[int, typer.Option(min=50, help="Messages appended per second.")] = 200_000,
    size: _SizeOption = 100,
    vchannels: Annotated[int, typer.Option(min=1, help="Number of vchannels.")] = 4,
    seconds: Annotated[int, typer.Option(min=1, help="Seconds of appends.")] = 30,
    trigger: Annotated[float, typer.Option(min=0.1, help="Trigger interval of micro-batches, in seconds.")] = 2.0,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure a streaming query in Spark during steady appends: duration of batches, and delay of messages."""
    from tidelog_server.cli.bench.server_process import running_target
    from tidelog_server.cli.bench.stream import StreamSettings, measure_stream

    check_java()
    settings = StreamSettings(rate, size, vchannels, seconds, trigger)
    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        _report(lambda: measure_stream(target, bench, settings), as_json=json)


def pipeline(
    *,
    messages: _MessagesOption = 2_000_000,
    size: _SizeOption = 100,
    vchannels: Annotated[int, typer.Option(min=1, help="Number of vchannels.")] = 4,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Measure archiving, verifying and trimming with Spark; producer, log and archive must have the same digest."""
    from tidelog_server.cli.bench.pipeline import measure_pipeline
    from tidelog_server.cli.bench.server_process import running_target

    check_java()
    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        _report(
            lambda: measure_pipeline(target, bench, messages=messages, size=size, vchannels=vchannels), as_json=json
        )


def run_all(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Use a tenth of the messages.")] = False,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Run the benchmarks one after the other."""
    share = 10 if quick else 1
    runs: list[Callable[[], None]] = [
        *(
            lambda size=size: append(messages=_default_messages(size) // share, size=size, folder=folder, json=json)
            for size in (100, 1_024, 16_384)
        ),
        lambda: append(messages=_SINGLE_MESSAGES // share, single=True, folder=folder, json=json),
        lambda: latency(messages=4_000 // share, folder=folder, json=json),
        lambda: txn(transactions=60_000 // share, large_mib=1_024 // share, folder=folder, json=json),
        lambda: broadcast(broadcasts=1_000 // share, folder=folder, json=json),
        lambda: msgstream(intervals=50 // share, folder=folder, json=json),
        lambda: scan(messages=4_000_000 // share, folder=folder, json=json),
        lambda: consume(messages=8_000_000 // share, folder=folder, json=json),
        lambda: channels(channels=10_000 // share, folder=folder, json=json),
        lambda: retention(seconds=300 / share, folder=folder, json=json),
        lambda: metadata(messages=6_000_000 // share, folder=folder, json=json),
        lambda: spark(messages=5_000_000 // share, folder=folder, json=json),
        lambda: stream(seconds=30 // share, folder=folder, json=json),
    ]
    for run in runs:
        run()


def _report(measure: Callable[[], Report], *, as_json: bool) -> None:
    """Print the report that ``measure`` returns, with the share of CPU that was stolen meanwhile."""
    stolen = StolenTime()
    print_report(stolen.noted(measure()), as_json=as_json)


def _default_messages(size: int) -> int:
    """Return a number of messages that averages out the disk's variation and is much larger than the memtables."""
    return max(1_000, min(8_000_000, (1 << 30) // size))


def _per_batch(size: int, batch_messages: int, batch_bytes: int) -> int:
    return max(1, min(batch_messages, batch_bytes // size))


def _needs(size: int) -> dict[str, str]:
    """Return the settings with which a server accepts messages of this size and a nearly full disk."""
    limits = {"limits.min_free_disk_bytes": "0"}
    if size > 1 << 20:
        limits |= {
            "limits.max_message_bytes": str(size),
            "limits.max_batch_bytes": str(max(4 << 20, size + (1 << 20))),
            "limits.max_in_flight_bytes_per_stream": str(max(8 << 20, 2 * size + (1 << 21))),
        }
    return limits


@contextmanager
def _bench_folder(parent: Path) -> Iterator[Path]:
    """Yield a new temporary folder, which is always removed at the end."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="tidelog-bench-", dir=parent, ignore_cleanup_errors=True)
    except OSError as error:
        raise CommandError(f"cannot create a folder in {parent.absolute()}: {error.strerror}") from error
    with folder as path:
        yield Path(path)
