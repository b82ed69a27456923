"""``tidelog bench``: each benchmark against its floor, with a server of its own."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from tidelog_server.cli import event_loop
from tidelog_server.cli.bench.report import Report, print_report
from tidelog_server.cli.bench.stolen_time import StolenTime
from tidelog_server.cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_server.core.limits import MAX_MESSAGES_PER_BATCH

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


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Measure Tidelog against what this machine can do without it.")
    for command in (append, latency, txn, broadcast, scan, spark):
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
    from tidelog.spark import JavaMissingError, require_java
    from tidelog_server.cli.bench.server_process import running_target
    from tidelog_server.cli.bench.spark import measure_spark

    try:
        require_java()
    except JavaMissingError as error:
        raise CommandError(str(error), ExitCode.FAILURE) from error
    with _bench_folder(folder) as bench, running_target(endpoint, bench, _needs(size)) as target:
        _report(lambda: measure_spark(target, bench, messages=messages, size=size, vchannels=vchannels), as_json=json)


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
        lambda: scan(messages=4_000_000 // share, folder=folder, json=json),
        lambda: spark(messages=5_000_000 // share, folder=folder, json=json),
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
