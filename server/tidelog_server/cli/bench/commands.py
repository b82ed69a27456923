"""``tidelog bench``: each benchmark against its floor, with a server of its own."""

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
    typer.Option("--endpoint", help="Measure this server instead of one of our own.", show_default=False),
]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
_FolderOption = Annotated[
    Path, typer.Option("--folder", help="Where a temporary folder is made: this disk is measured.")
]
_SizeOption = Annotated[int, typer.Option(min=1, help="Bytes of each payload.")]
_MessagesOption = Annotated[int, typer.Option("--messages", min=1, help="How many messages.")]
_BatchMessagesOption = Annotated[
    int, typer.Option(min=1, max=MAX_MESSAGES_PER_BATCH, help="Messages in a batch at most.")
]
_BatchBytesOption = Annotated[int, typer.Option(min=1, help="Bytes of payloads in a batch at most.")]

# As the producer does by itself.
_DEFAULT_BATCH_BYTES: Final = 1 << 20
_SINGLE_MESSAGES: Final = 100_000
_LARGEST_CAPPED: Final = 1 << 10


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Measure Tidelog against what this machine can do without it.")
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
        int | None, typer.Option(min=1, help="Default: 8,000,000 or 1 GB, --single 100,000.", show_default=False)
    ] = None,
    size: _SizeOption = 100,
    batch_messages: _BatchMessagesOption = MAX_MESSAGES_PER_BATCH,
    batch_bytes: _BatchBytesOption = _DEFAULT_BATCH_BYTES,
    producers: Annotated[int, typer.Option(min=1, help="Producers at the same time.")] = 1,
    concurrency: Annotated[int, typer.Option(min=1, help="With --single: tasks that await one append each.")] = 64,
    single: Annotated[bool, typer.Option("--single", help="Append one message at a time in each task.")] = False,
    vchannels: Annotated[int, typer.Option(min=1, help="Vchannels to append to.")] = 1,
    durability: Annotated[Literal["sync", "os"], typer.Option(help="What an ack promises.")] = "sync",
    stalled_follower: Annotated[
        bool, typer.Option("--stalled-follower", help="Attach a follower that stops reading.")
    ] = False,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Messages per second to disk. From 10,000,000 messages on also how the server ages: rates, seeks, restart."""
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
    streams: Annotated[int, typer.Option(min=0, help="Idle streams beside a hostile client; 0 for TLS alone.")] = 5_000,
    seconds: Annotated[float, typer.Option(min=1, help="How long the hostile client attacks, in each round.")] = 15,
    attack: Annotated[
        list[str] | None, typer.Option("--attack", help="Run this attack only; repeatable.", show_default=False)
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each attack and its floor.")] = 3,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Appends with TLS and a token against plaintext; then what a client keeps under idle streams and attacks."""
    from tidelog_server.cli.bench.attacks import ATTACKS
    from tidelog_server.cli.bench.security import SecuritySettings
    from tidelog_server.cli.bench.security_attack import AttackSettings, measure_attack

    known = {each.name: each for each in ATTACKS}
    if unknown := sorted(set(attack or ()) - known.keys()):
        raise CommandError(f"there is no attack '{unknown[0]}'; the attacks are {', '.join(known)}", ExitCode.USAGE)
    if attack is None:
        tls = SecuritySettings(messages, size, _per_batch(size, batch_messages, batch_bytes), streams, seconds)
        _measure_security(tls, folder, as_json=json)
    for name in attack or known:
        with _bench_folder(folder) as bench:
            settings = AttackSettings(seconds, rounds, size)
            _report(lambda: event_loop.run(measure_attack(known[name], bench, settings)), as_json=json)  # noqa: B023 - run at once


def _measure_security(settings: "SecuritySettings", folder: Path, *, as_json: bool) -> None:
    """Measure TLS against plaintext, and a client beside idle streams and a hostile client."""
    from tidelog_server.cli.bench.security import measure_siege, measure_tls
    from tidelog_server.cli.bench.security_server import secured_server
    from tidelog_server.cli.bench.server_process import ServerProcess, running_target

    # What is measured is the cost of a call, not its quota.
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
        # A server of its own, whose memory is that of this alone.
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
    """Microseconds of one synced append at a time."""
    from tidelog_server.cli.bench.latency import measure_latency
    from tidelog_server.cli.bench.server_process import running_target

    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        _report(lambda: event_loop.run(measure_latency(target, bench, messages=messages, size=size)), as_json=json)


def txn(
    *,
    transactions: Annotated[
        int, typer.Option(min=1, help="How many transactions, on one vchannel and on four.")
    ] = 60_000,
    messages: Annotated[int, typer.Option("--messages", min=4, max=1_000, help="Messages in each.")] = 10,
    size: _SizeOption = 100,
    concurrency: Annotated[int, typer.Option(min=1, help="Tasks that await one commit each.")] = 64,
    large_mib: Annotated[int, typer.Option(min=0, help="Size of the large transaction; 0 for none.")] = 1_024,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Commits per second on one vchannel, and on four of two channels, against plain appends of the same messages.

    Then one large transaction, with the memory that the server takes for it.
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
        # A server of its own, whose memory is that of this alone.
        large = LargeTxnSettings(large_mib, size)
        with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
            _report(lambda: event_loop.run(measure_large_txn(target, large)), as_json=json)


def broadcast(
    *,
    broadcasts: Annotated[int, typer.Option(min=1, help="How many, one after the other.")] = 1_000,
    vchannels: Annotated[int, typer.Option(min=1, max=1_024, help="Vchannels that each goes to.")] = 100,
    size: _SizeOption = 100,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Time of one broadcast to many vchannels under a resource key, against one append to one of them."""
    from tidelog_server.cli.bench.broadcast import BroadcastSettings, measure_broadcast
    from tidelog_server.cli.bench.server_process import running_target

    settings = BroadcastSettings(broadcasts, vchannels, size)
    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        _report(lambda: event_loop.run(measure_broadcast(target, settings)), as_json=json)


def msgstream(
    *,
    intervals: Annotated[int, typer.Option(min=4, help="How many intervals to watch.")] = 50,
    interval_ms: Annotated[int, typer.Option(min=10, max=60_000, help="Length of an interval.")] = 200,
    pause_ms: Annotated[float, typer.Option(min=0, help="How long the producer waits between packs.")] = 5,
    size: _SizeOption = 100,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Delay of the packs of two time-tick streams over eight channels, of which two are silent."""
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
    """Messages per second into Python bytes, and megabytes per second as raw batches."""
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
    members: Annotated[int, typer.Option(min=1, help="Processes that share the group.")] = 4,
    vchannels: Annotated[int, typer.Option(min=1, help="Vchannels of the channel; a multiple of the members.")] = 8,
    commit_every: Annotated[
        int, typer.Option(min=1, max=MAX_MESSAGES_PER_BATCH, help="Messages of a batch; each is committed.")
    ] = 1_000,
    waits: Annotated[bool, typer.Option("--waits", help="Wait for each commit before the next batch.")] = False,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Messages per second through a consumer group, with durable commits, against a scan of the same log."""
    from tidelog_server.cli.bench.consume import ConsumeSettings, measure_consume
    from tidelog_server.cli.bench.server_process import running_target

    if vchannels % members:
        raise CommandError(f"{vchannels} vchannels cannot be shared evenly by {members} members", ExitCode.USAGE)
    settings = ConsumeSettings(messages, size, members, vchannels, commit_every, waits)
    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        _report(lambda: event_loop.run(measure_consume(target, settings)), as_json=json)


def rebalance(
    *,
    seconds: Annotated[float, typer.Option(min=1, help="How long members are killed and added.")] = 60.0,
    members: Annotated[int, typer.Option(min=2, help="Processes that share the group at a time.")] = 4,
    vchannels: Annotated[int, typer.Option(min=1, help="Vchannels of the channel.")] = 8,
    rate: Annotated[int, typer.Option(min=1, help="Messages per second that are appended.")] = 2_000,
    kill_every: Annotated[float, typer.Option(min=0.1, help="Seconds from one kill to the next.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the choice of who is killed.")] = 0,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Messages lost and doubled, and the longest pause, while members of a group are killed and added."""
    from tidelog_server.cli.bench.rebalance import RebalanceSettings, measure_rebalance
    from tidelog_server.cli.bench.server_process import running_target

    settings = RebalanceSettings(seconds, members, vchannels, rate, kill_every, seed)
    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(100)) as target:
        _report(lambda: event_loop.run(measure_rebalance(target, settings)), as_json=json)


def channels(
    *,
    channels: Annotated[int, typer.Option(min=200, max=MAX_CHANNELS, help="How many, in hundreds.")] = MAX_CHANNELS,
    messages: Annotated[
        int, typer.Option("--messages", min=0, help="Messages in each, appended one by one, for the restart.")
    ] = 100,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Milliseconds to create, describe, change and list channels and groups, the server's memory, and its restarts."""
    from tidelog_server.cli.bench.channels import ChannelsSettings, measure_channels
    from tidelog_server.cli.bench.server_process import running_target

    settings = ChannelsSettings(channels, messages)
    with _bench_folder(folder) as bench, running_target(None, bench, _needs(1)) as target:
        assert target.process is not None
        process = target.process
        _report(lambda: event_loop.run(measure_channels(process, settings)), as_json=json)


def retention(
    *,
    seconds: Annotated[float, typer.Option(min=1, help="How long is appended with retention.")] = 300,
    cap: Annotated[str, typer.Option(help="What the channel may keep, such as 1GiB.")] = "1GiB",
    vchannels: Annotated[int, typer.Option(min=1, max=64, help="Vchannels of the channel, with a producer each.")] = 2,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """What the disk holds of a channel with a cap that is appended to at full speed, 100 bytes to 1 KiB a message."""
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
    etcd: Annotated[str | None, typer.Option(help="host:port of an etcd; one of our own without.")] = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Messages per second to disk with metadata in etcd, against embedded metadata by turns."""
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
    gigabytes: Annotated[float, typer.Option(min=0.01, help="Size of the log that is backed up, in GB.")] = 5,
    size: _SizeOption = 1 << 10,
    rate: Annotated[str, typer.Option(help="Bytes a second that the backup reads at most.")] = "32MiB",
    rounds: Annotated[int, typer.Option(min=1, help="How many backups are taken.")] = 2,
    plain_s: Annotated[float, typer.Option(min=0.1, help="Seconds without a backup before and after each.")] = 20,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Appends while a backup is taken, against those without; and the restored copy against the log, byte for byte."""
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
    vchannels: Annotated[int, typer.Option(min=1, help="Vchannels to read.")] = 4,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Rows per second into Spark, against the same rows from Parquet."""
    from tidelog_server.cli.bench.server_process import running_target
    from tidelog_server.cli.bench.spark import measure_spark

    check_java()
    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        _report(lambda: measure_spark(target, bench, messages=messages, size=size, vchannels=vchannels), as_json=json)


def stream(
    *,
    rate: Annotated[int, typer.Option(min=50, help="Messages appended each second.")] = 200_000,
    size: _SizeOption = 100,
    vchannels: Annotated[int, typer.Option(min=1, help="Vchannels to append to and to read.")] = 4,
    seconds: Annotated[int, typer.Option(min=1, help="How long is appended.")] = 30,
    trigger: Annotated[float, typer.Option(min=0.1, help="Seconds from one micro-batch to the next.")] = 2.0,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """A streaming query in Spark on what is appended steadily: time of batches, and delay of messages."""
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
    vchannels: Annotated[int, typer.Option(min=1, help="Vchannels to archive.")] = 4,
    endpoint: _EndpointOption = None,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Archive, verify and trim with Spark; producer, log and archive must have the same digest."""
    from tidelog_server.cli.bench.pipeline import measure_pipeline
    from tidelog_server.cli.bench.server_process import running_target

    check_java()
    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        _report(
            lambda: measure_pipeline(target, bench, messages=messages, size=size, vchannels=vchannels), as_json=json
        )


def run_all(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="A tenth of the messages.")] = False,
    folder: _FolderOption = Path(),
    json: _JsonOption = False,
) -> None:
    """Run each benchmark once, one after the other."""
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
    """Print what ``measure`` returns, and what others had of the CPU meanwhile."""
    stolen = StolenTime()
    print_report(stolen.noted(measure()), as_json=as_json)


def _default_messages(size: int) -> int:
    """Return how many messages a run needs to be longer than the disk's moods, and much larger than the memtables."""
    return max(1_000, min(8_000_000, (1 << 30) // size))


def _per_batch(size: int, batch_messages: int, batch_bytes: int) -> int:
    return max(1, min(batch_messages, batch_bytes // size))


def _needs(size: int) -> dict[str, str]:
    """Return the settings without which a server would refuse messages of this size, or a disk of this machine."""
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
    """Yield a new folder that is removed at the end, whatever happens."""
    try:
        folder = tempfile.TemporaryDirectory(prefix="tidelog-bench-", dir=parent, ignore_cleanup_errors=True)
    except OSError as error:
        raise CommandError(f"cannot make a folder in {parent.absolute()}: {error.strerror}") from error
    with folder as path:
        yield Path(path)
