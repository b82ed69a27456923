"""``tidelog bench``: each benchmark is compared with its floor and starts its own server."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from tidelog_cli.exit_codes import COMMON_CODES, CommandError, ExitCode
from tidelog_cli.local_spark import check_java
from tidelog_cli.numbers import seconds
from tidelog_server.commands.bench.common import (
    DEFAULT_BATCH_BYTES,
    BatchBytesOption,
    BatchMessagesOption,
    EndpointOption,
    FolderOption,
    JsonOption,
    MessagesOption,
    SizeOption,
    bench_folder,
    counted,
    per_batch_of,
    print_measured,
    run_measurement,
    settings_for,
)
from tidelog_server.commands.bench.report import Report, print_report
from tidelog_server.commands.bench.stolen_time import StolenTime
from tidelog_server.commands.pulsar import DEFAULT_PULSAR_NAMESPACE
from tidelog_server.core.limits import MAX_MESSAGES_PER_BATCH

if TYPE_CHECKING:
    from tidelog_server.commands.bench.siege.measure import SecuritySettings

_SINGLE_MESSAGES: Final = 100_000


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Measure Tidelog and compare it with the same work without Tidelog.")
    for command in (
        append,
        latency,
        txn,
        broadcast,
        scan,
        consume,
        mailbox,
        gazette,
        msgstream,
        security,
        spark,
        pipeline,
    ):
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
    size: SizeOption = 100,
    batch_messages: BatchMessagesOption = MAX_MESSAGES_PER_BATCH,
    batch_bytes: BatchBytesOption = DEFAULT_BATCH_BYTES,
    producers: Annotated[int, typer.Option(min=1, help="Number of concurrent producers.")] = 1,
    concurrency: Annotated[int, typer.Option(min=1, help="With --single: number of concurrent appends.")] = 64,
    single: Annotated[bool, typer.Option("--single", help="Append single messages, one at a time per task.")] = False,
    vchannels: Annotated[int, typer.Option(min=1, help="Number of vchannels.")] = 1,
    durability: Annotated[Literal["sync", "os"], typer.Option(help="Acknowledge when on disk, or in the OS.")] = "sync",
    stalled_follower: Annotated[
        bool, typer.Option("--stalled-follower", help="Attach a following scan that does not read.")
    ] = False,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure durable messages per second; from 10,000,000 messages on, also rate over time, seeks and a restart."""
    from tidelog_server.commands.bench.measures.append import AppendSettings, measure_append
    from tidelog_server.commands.bench.server_process import running_target

    settings = AppendSettings(
        messages=messages or (_SINGLE_MESSAGES if single else _default_messages(size)),
        size=size,
        per_batch=per_batch_of(size, batch_messages, batch_bytes),
        producers=concurrency if single else producers,
        vchannels=vchannels,
        durability=durability,
        is_single=single,
        has_stalled_follower=stalled_follower,
    )
    server_settings = {"storage.durability": durability, **settings_for(size)}
    with bench_folder(folder) as bench, running_target(endpoint, bench, server_settings) as target:
        print_measured(lambda: run_measurement(measure_append(target, bench, settings)), as_json=json)


def security(
    *,
    messages: MessagesOption = 4_000_000,
    size: SizeOption = 100,
    batch_messages: BatchMessagesOption = MAX_MESSAGES_PER_BATCH,
    batch_bytes: BatchBytesOption = DEFAULT_BATCH_BYTES,
    streams: Annotated[int, typer.Option(min=0, help="Idle streams during the attack; 0 to measure TLS only.")] = 5_000,
    seconds: Annotated[
        float, typer.Option(min=1, callback=seconds, help="Seconds that the hostile client attacks, per round.")
    ] = 15,
    attack: Annotated[
        list[str] | None, typer.Option("--attack", help="Run only this attack; repeatable.", show_default=False)
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds of each attack and its floor.")] = 3,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure appends with TLS and a token against plaintext; then during idle streams and attacks."""
    from tidelog_server.commands.bench.attacks import ATTACKS
    from tidelog_server.commands.bench.siege.attack import AttackSettings, measure_attack
    from tidelog_server.commands.bench.siege.measure import SecuritySettings

    known = {each.name: each for each in ATTACKS}
    if unknown := sorted(set(attack or ()) - known.keys()):
        raise CommandError(f"unknown attack '{unknown[0]}': expected one of {', '.join(known)}", ExitCode.USAGE)
    if attack is None:
        tls = SecuritySettings(messages, size, per_batch_of(size, batch_messages, batch_bytes), streams, seconds)
        _measure_security(tls, folder, as_json=json)
    for name in attack or known:
        with bench_folder(folder) as bench:
            settings = AttackSettings(seconds, rounds, size)
            print_measured(lambda: run_measurement(measure_attack(known[name], bench, settings)), as_json=json)  # noqa: B023 - run at once


def _measure_security(settings: "SecuritySettings", folder: Path, *, as_json: bool) -> None:
    """Measure TLS against plaintext, and a client during idle streams and an attack."""
    from tidelog_server.commands.bench.server_process import ServerProcess, running_target
    from tidelog_server.commands.bench.siege.measure import measure_siege, measure_tls
    from tidelog_server.commands.bench.siege.server import secured_server

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

    with bench_folder(folder) as bench, running_target(None, bench, {}) as target:
        process = target.process
        assert process is not None
        print_measured(lambda: run_measurement(tls(process, bench)), as_json=as_json)
    if settings.streams:
        # Its own server, so that the reported memory is that of this measurement.
        for asks in (False, True):
            with bench_folder(folder) as bench:
                print_measured(lambda: run_measurement(siege(bench, asks_for_certificates=asks)), as_json=as_json)  # noqa: B023 - run at once


def latency(
    *,
    messages: MessagesOption = 4_000,
    size: SizeOption = 100,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure the latency of single synced appends, in microseconds."""
    from tidelog_server.commands.bench.measures.latency import measure_latency
    from tidelog_server.commands.bench.server_process import running_target

    with bench_folder(folder) as bench, running_target(endpoint, bench, settings_for(size)) as target:
        print_measured(
            lambda: run_measurement(measure_latency(target, bench, messages=messages, size=size)), as_json=json
        )


def txn(
    *,
    transactions: Annotated[
        int, typer.Option(min=1, help="Number of transactions, on one vchannel and again on four.")
    ] = 60_000,
    messages: Annotated[int, typer.Option("--messages", min=4, max=1_000, help="Messages per transaction.")] = 10,
    size: SizeOption = 100,
    concurrency: Annotated[int, typer.Option(min=1, help="Number of concurrent transactions.")] = 64,
    large_mib: Annotated[int, typer.Option(min=0, help="MiB of the large transaction; 0 to skip it.")] = 1_024,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure commits per second on one vchannel, and on four of two channels, against appends of the same messages.

    Then measure one large transaction, and the server's memory for it.
    """
    from tidelog_server.commands.bench.measures.large_txn import LargeTxnSettings, measure_large_txn
    from tidelog_server.commands.bench.measures.txn import TxnSettings, measure_txn
    from tidelog_server.commands.bench.server_process import running_target

    with bench_folder(folder) as bench, running_target(endpoint, bench, settings_for(size)) as target:
        for channels, vchannels in ((1, 1), (2, 4)):
            settings = TxnSettings(transactions, messages, size, concurrency, channels, vchannels)
            stolen = StolenTime()
            print_report(stolen.noted(run_measurement(measure_txn(target, settings))), as_json=json)
    if large_mib:
        # Its own server, so that the reported memory is that of this transaction.
        large = LargeTxnSettings(large_mib, size)
        with bench_folder(folder) as bench, running_target(endpoint, bench, settings_for(size)) as target:
            print_measured(lambda: run_measurement(measure_large_txn(target, large)), as_json=json)


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
    from tidelog_server.commands.bench.measures.broadcast import BroadcastSettings, measure_broadcast
    from tidelog_server.commands.bench.server_process import running_target

    settings = BroadcastSettings(broadcasts, vchannels, size)
    with bench_folder(folder) as bench, running_target(endpoint, bench, settings_for(size)) as target:
        print_measured(lambda: run_measurement(measure_broadcast(target, settings)), as_json=json)


def scan(
    *,
    messages: MessagesOption = 4_000_000,
    size: SizeOption = 100,
    batch_messages: BatchMessagesOption = MAX_MESSAGES_PER_BATCH,
    batch_bytes: BatchBytesOption = DEFAULT_BATCH_BYTES,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure messages per second into Python bytes, and megabytes per second as raw batches."""
    from tidelog_server.commands.bench.measures.scan import measure_scan
    from tidelog_server.commands.bench.server_process import running_target

    per_batch = per_batch_of(size, batch_messages, batch_bytes)
    with bench_folder(folder) as bench, running_target(endpoint, bench, settings_for(size)) as target:
        print_measured(
            lambda: run_measurement(measure_scan(target, bench, messages=messages, size=size, per_batch=per_batch)),
            as_json=json,
        )


def consume(
    *,
    messages: MessagesOption = 8_000_000,
    size: SizeOption = 100,
    members: Annotated[int, typer.Option(min=1, help="Number of members, each a process.")] = 4,
    vchannels: Annotated[int, typer.Option(min=1, help="Number of vchannels; a multiple of --members.")] = 8,
    commit_every: Annotated[
        int, typer.Option(min=1, max=MAX_MESSAGES_PER_BATCH, help="Messages per batch; each batch is committed.")
    ] = 1_000,
    waits: Annotated[bool, typer.Option("--waits", help="Wait for each commit before the next batch.")] = False,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure messages per second through a consumer group, with durable commits, against a scan of the same log."""
    from tidelog_server.commands.bench.measures.consume import ConsumeSettings, measure_consume
    from tidelog_server.commands.bench.server_process import running_target

    if vchannels % members:
        raise CommandError(
            f"{members} members cannot share {vchannels} vchannels evenly: make --vchannels a multiple of --members",
            ExitCode.USAGE,
        )
    settings = ConsumeSettings(messages, size, members, vchannels, commit_every, waits)
    with bench_folder(folder) as bench, running_target(endpoint, bench, settings_for(size)) as target:
        print_measured(lambda: run_measurement(measure_consume(target, settings)), as_json=json)


def mailbox(
    *,
    cycles: Annotated[int, typer.Option(min=1, help="Cycles of send, fetch and ack in batches.")] = 500_000,
    size: SizeOption = 100,
    batch_messages: Annotated[int, typer.Option(min=1, max=1_000, help="Messages per batch.")] = 100,
    in_flight: Annotated[int, typer.Option(min=1, help="Number of batches in flight.")] = 64,
    workers: Annotated[int, typer.Option(min=1, help="Number of workers with one message at a time.")] = 64,
    worker_cycles: Annotated[int, typer.Option(min=1, help="Cycles of all workers together.")] = 50_000,
    fetches: Annotated[int, typer.Option(min=1, help="Number of fetches with nothing else in flight.")] = 2_000,
    waiting: Annotated[
        int, typer.Option(min=0, max=9_000_000, help="Waiting messages of the last part; 0 to skip it.")
    ] = 1_000_000,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure cycles of send, fetch and ack on a mailbox, in batches and one at a time, against appends.

    Then measure fetches from a mailbox with many waiting messages, and the server's memory for them.
    """
    from tidelog_server.commands.bench.measures.mailbox import MailboxSettings, measure_mailbox
    from tidelog_server.commands.bench.measures.mailbox_waiting import measure_waiting
    from tidelog_server.commands.bench.server_process import running_target

    settings = MailboxSettings(cycles, size, batch_messages, in_flight, workers, worker_cycles, fetches, waiting)
    with bench_folder(folder) as bench, running_target(endpoint, bench, settings_for(size)) as target:
        stolen = StolenTime()
        with counted("cycles", cycles + worker_cycles) as advance:
            reports = run_measurement(measure_mailbox(target, settings, advance))
        for report in reports:
            print_report(stolen.noted(report), as_json=json)
    if waiting:
        # Its own server, so that the reported memory is that of the waiting messages.
        with bench_folder(folder) as bench, running_target(endpoint, bench, settings_for(size)) as target:
            stolen = StolenTime()
            with counted("messages", waiting) as advance:
                report = run_measurement(measure_waiting(target, settings, advance))
            print_report(stolen.noted(report), as_json=json)


def gazette(
    *,
    messages: MessagesOption = 900_000,
    size: Annotated[int, typer.Option(min=75, help="Bytes per line of JSON, with its newline and UUID.")] = 100,
    per_transaction: Annotated[
        int, typer.Option(min=1, max=50_000, help="Uncommitted messages per transaction.")
    ] = 1_000,
    codec: Annotated[
        Literal["json", "msgspec", "orjson"] | None,
        typer.Option(help="The JSON package. Default: json, then msgspec if it is installed.", show_default=False),
    ] = None,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure messages published to journals and read from them, against the encoder and the decoder alone.

    They are published committed and in transactions, and read by an iterator of committed messages.
    """
    from tidelog_server.commands.bench.measures.gazette import measure_publishing
    from tidelog_server.commands.bench.measures.gazette_messages import installed_codecs
    from tidelog_server.commands.bench.measures.gazette_read import measure_reading
    from tidelog_server.commands.bench.measures.gazette_report import GazetteSettings
    from tidelog_server.commands.bench.server_process import running_target

    if codec is not None and find_spec(codec) is None:
        raise CommandError(f"{codec} is not installed: run pip install {codec}, or use --codec json", ExitCode.USAGE)
    for name in installed_codecs() if codec is None else [codec]:
        settings = GazetteSettings(messages, size, per_transaction, name)
        with bench_folder(folder) as bench, running_target(endpoint, bench, settings_for(size)) as target:
            for measure in (measure_publishing, measure_reading):
                print_measured(lambda: run_measurement(measure(target, settings)), as_json=json)  # noqa: B023 - run at once


def msgstream(
    *,
    pulsar: Annotated[
        str, typer.Option("--pulsar", help="Address of a Pulsar broker, such as pulsar://127.0.0.1:6650.")
    ],
    admin_url: Annotated[
        str | None,
        typer.Option(
            "--admin-url", help="Its administration API; needed if it does not create topics.", show_default=False
        ),
    ] = None,
    namespace: Annotated[str, typer.Option(help="Tenant and namespace of the topics.")] = DEFAULT_PULSAR_NAMESPACE,
    messages: MessagesOption = 100_000,
    size: SizeOption = 100,
    intervals: Annotated[int, typer.Option(min=2, help="Ticks of which the delay is measured.")] = 50,
    json: JsonOption = False,
) -> None:
    """Measure message streams on Pulsar in turns with its plain client: produce, consume, and the delay of packs.

    Topics are created for it; with --admin-url they are deleted at the end. The token is that of TIDELOG_PULSAR_TOKEN.
    """
    from tidelog_server.commands.bench.measures.pulsar_streams import PulsarStreamSettings, measure_pulsar_streams
    from tidelog_server.commands.pulsar import pulsar_broker

    async def measure() -> list[Report]:
        async with pulsar_broker(pulsar, admin_url, namespace) as broker:
            return await measure_pulsar_streams(broker, PulsarStreamSettings(messages, size, intervals))

    stolen = StolenTime()
    for report in run_measurement(measure()):
        print_report(stolen.noted(report), as_json=json)


def spark(
    *,
    messages: MessagesOption = 5_000_000,
    size: SizeOption = 100,
    vchannels: Annotated[int, typer.Option(min=1, help="Number of vchannels.")] = 4,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure rows per second into Spark, against the same rows from Parquet."""
    from tidelog_server.commands.bench.measures.spark import measure_spark
    from tidelog_server.commands.bench.server_process import running_target

    check_java()
    with bench_folder(folder) as bench, running_target(endpoint, bench, settings_for(size)) as target:
        print_measured(
            lambda: measure_spark(target, bench, messages=messages, size=size, vchannels=vchannels), as_json=json
        )


def pipeline(
    *,
    messages: MessagesOption = 2_000_000,
    size: SizeOption = 100,
    vchannels: Annotated[int, typer.Option(min=1, help="Number of vchannels.")] = 4,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure archiving, verifying and trimming with Spark; producer, log and archive must have the same digest."""
    from tidelog_server.commands.bench.measures.pipeline import measure_pipeline
    from tidelog_server.commands.bench.server_process import running_target

    check_java()
    with bench_folder(folder) as bench, running_target(endpoint, bench, settings_for(size)) as target:
        print_measured(
            lambda: measure_pipeline(target, bench, messages=messages, size=size, vchannels=vchannels), as_json=json
        )


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
            lambda size=size: append(messages=_default_messages(size) // share, size=size, folder=folder, json=json)
            for size in (100, 1_024, 16_384)
        ),
        lambda: append(messages=_SINGLE_MESSAGES // share, single=True, folder=folder, json=json),
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
    ]
    for run in runs:
        run()


def _default_messages(size: int) -> int:
    """Return a number of messages that averages out the disk's variation and is much larger than the memtables."""
    return max(1_000, min(8_000_000, (1 << 30) // size))
