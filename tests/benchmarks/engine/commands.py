"""``benchmarks engine``: the commands."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from benchmarks.own_server import bench_process
from tidelog_cli.exit_codes import COMMON_CODES
from tidelog_server.commands.bench.common import (
    FolderOption,
    JsonOption,
    bench_folder,
    print_measured,
    print_measurement,
    settings_for,
)

_MESSAGE_BYTES: Final = 1_000
_KafkaOption = Annotated[
    str | None,
    typer.Option("--kafka", help="Addresses of a Kafka; without it one is started.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Measure logs in an engine.")
    for command in (snapshots, topic, replay, takeover, start):
        group.command(epilog=COMMON_CODES)(command)
    app.add_typer(group, name="engine")


def snapshots(
    *,
    vchannels: Annotated[int, typer.Option(min=1, help="Vchannels of the log of which snapshots are made.")] = 10_000,
    producers: Annotated[int, typer.Option(min=0, help="Producers with full windows there.")] = 10_000,
    load_mib: Annotated[int, typer.Option(min=16, help="MiB that are appended meanwhile.")] = 1_024,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure snapshots of a log in a folder, and their share of what is written."""
    from benchmarks.engine.snapshots import SnapshotSettings, measure_snapshots

    settings = SnapshotSettings(vchannels, producers, load_mib)
    with bench_folder(folder) as bench:
        print_measured(lambda: measure_snapshots(bench, settings), as_json=json)


def topic(
    *,
    gib: Annotated[float, typer.Option(min=0.001, help="GiB appended to a topic of a Kafka that is started.")] = 10,
    retention_mib: Annotated[int, typer.Option(min=1, help="MiB that retention keeps of them.")] = 1_024,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure the size of a topic that begins with a message of an idle channel."""
    from benchmarks.engine.topic_size import TopicSettings, kafka_log, measure_topic

    settings = TopicSettings(gib, retention_mib, _MESSAGE_BYTES)
    with bench_folder(folder) as bench, kafka_log(bench) as log:
        with bench_process(folder, {**settings_for(_MESSAGE_BYTES), **log.settings}) as (process, _):
            print_measurement(measure_topic(process, log, settings), as_json=json)


def replay(
    *,
    mib: Annotated[int, typer.Option(min=1, help="MiB of entries.")] = 64,
    entry_bytes: Annotated[int, typer.Option(min=1, help="Bytes of an entry.")] = 1_024,
    group_entries: Annotated[int, typer.Option(min=1, help="Entries of a group.")] = 100,
    vchannels: Annotated[int, typer.Option(min=1, help="Vchannels of the log.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Number of turns of each.")] = 5,
    kafka: _KafkaOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure the replay of a log into a view, over a plain consumer that writes the same entries to RocksDB."""
    from benchmarks.engine.kafka import running_kafka
    from benchmarks.engine.replay import ReplaySettings, measure_replay

    settings = ReplaySettings(mib, entry_bytes, group_entries, vchannels, rounds)
    with bench_folder(folder) as bench, running_kafka(kafka, bench) as servers:
        print_measured(lambda: measure_replay(bench, servers, settings), as_json=json)


def takeover(
    *,
    end: Annotated[Literal["SIGKILL", "SIGTERM"], typer.Option(help="How an owner ends.")] = "SIGKILL",
    rounds: Annotated[int, typer.Option(min=1, help="Number of takeovers.")] = 20,
    vchannels: Annotated[int, typer.Option(min=1, max=1_024, help="Vchannels under load.")] = 1_000,
    lease_ttl_s: Annotated[int, typer.Option(min=2, help="Lease of a registration, in seconds.")] = 3,
    rate: Annotated[int, typer.Option(min=16, help="Appends in a second.")] = 1_000,
    kafka: _KafkaOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure the time from the end of a node's owner until the next acknowledgement, with a standby. Needs etcd."""
    from benchmarks.engine.kafka import running_kafka
    from benchmarks.engine.takeover import TakeoverSettings, measure_takeovers

    settings = TakeoverSettings(end, rounds, vchannels, lease_ttl_s, rate)
    with bench_folder(folder) as bench, running_kafka(kafka, bench) as servers:
        print_measurement(measure_takeovers(bench.absolute(), servers, settings), as_json=json)


def start(
    *,
    vchannels: Annotated[int, typer.Option(min=1, help="Number of vchannels.")] = 10_000,
    mib: Annotated[int, typer.Option(min=1, help="MiB of entries, all live.")] = 1_024,
    entry_bytes: Annotated[int, typer.Option(min=1, help="Bytes of an entry.")] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, help="Number of starts of each kind.")] = 5,
    kafka: _KafkaOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure starts with the view and without it, over those of a server on RocksDB with the same content."""
    from benchmarks.engine.kafka import running_kafka
    from benchmarks.engine.start import StartSettings, measure_starts

    settings = StartSettings(vchannels, mib, entry_bytes, rounds)
    with bench_folder(folder) as bench, running_kafka(kafka, bench) as servers:
        print_measured(lambda: measure_starts(bench, servers, settings), as_json=json)
