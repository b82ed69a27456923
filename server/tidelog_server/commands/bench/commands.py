"""``tidelog bench``: each benchmark is compared with its floor and starts its own server."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from tidelog_cli.option_groups import add_group
from tidelog_server.commands.bench.common import (
    DEFAULT_BATCH_BYTES,
    NO_ENGINE,
    BatchBytesOption,
    BatchMessagesOption,
    EndpointOption,
    EngineOptions,
    FolderOption,
    JsonOption,
    MessagesOption,
    SizeOption,
    bench_target,
    counted,
    per_batch_of,
    print_measured,
    print_measurement,
    run_measurement,
    settings_for,
)
from tidelog_server.commands.bench.report import Report
from tidelog_server.core.limits import MAX_MESSAGES_PER_BATCH

if TYPE_CHECKING:
    from tidelog_server.commands.bench.floors.engine_floor import EngineBench
    from tidelog_server.commands.bench.server_process import Target

SINGLE_MESSAGES: Final = 100_000


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    text = (
        "Measure Tidelog and compare it with the same work without Tidelog. The repository has more benchmarks: see "
        "docs/performance.md there."
    )
    add_group(app, "bench", text, (append, latency, scan, mailbox))


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
    vchannels: Annotated[
        int, typer.Option(min=1, help="Number of vchannels of the channel; several are compared with one of them.")
    ] = 1,
    keys: Annotated[
        bool, typer.Option("--keys", help="Append messages with keys, which choose their vchannels.")
    ] = False,
    durability: Annotated[Literal["sync", "os"], typer.Option(help="Acknowledge when on disk, or in the OS.")] = "sync",
    stalled_follower: Annotated[
        bool, typer.Option("--stalled-follower", help="Attach a following scan that does not read.")
    ] = False,
    endpoint: EndpointOption = None,
    engine: EngineOptions = NO_ENGINE,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure durable messages per second; from 10,000,000 messages on, also rate over time, seeks and a restart."""
    from tidelog_server.commands.bench.measures.append import AppendSettings, measure_append

    settings = AppendSettings(
        messages=messages or (SINGLE_MESSAGES if single else default_messages(size)),
        size=size,
        per_batch=per_batch_of(size, batch_messages, batch_bytes),
        producers=concurrency if single else producers,
        vchannels=vchannels,
        durability=durability,
        is_single=single,
        has_stalled_follower=stalled_follower,
        has_keys=keys,
    )
    if (
        chosen := engine.chosen(endpoint=endpoint, single=single, keys=keys, stalled_follower=stalled_follower)
    ) is not None:
        from tidelog_server.commands.bench.measures.engine import measure_append as measure

        with _on_engine(*chosen, folder, size) as (log, target):
            print_measurement(measure(target, log, settings), as_json=json)
        return
    server_settings = {"storage.durability": durability, **settings_for(size)}
    with bench_target(endpoint, folder, server_settings) as (target, bench):
        print_measurement(measure_append(target, bench, settings), as_json=json)


def latency(
    *,
    messages: MessagesOption = 4_000,
    size: SizeOption = 100,
    endpoint: EndpointOption = None,
    engine: EngineOptions = NO_ENGINE,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure the latency of single synced appends, in microseconds."""
    if (chosen := engine.chosen(endpoint=endpoint)) is not None:
        from tidelog_server.commands.bench.measures.engine import measure_latency as measure

        with (
            _on_engine(*chosen, folder, size) as (log, target),
            bench_target(None, folder, settings_for(size)) as (local, _),
        ):
            print_measurement(measure(target, local, log, messages=messages, size=size), as_json=json)
        return
    from tidelog_server.commands.bench.measures.latency import measure_latency

    with bench_target(endpoint, folder, settings_for(size)) as (target, bench):
        print_measurement(measure_latency(target, bench, messages=messages, size=size), as_json=json)


def scan(
    *,
    messages: MessagesOption = 4_000_000,
    size: SizeOption = 100,
    batch_messages: BatchMessagesOption = MAX_MESSAGES_PER_BATCH,
    batch_bytes: BatchBytesOption = DEFAULT_BATCH_BYTES,
    endpoint: EndpointOption = None,
    engine: EngineOptions = NO_ENGINE,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure messages per second into Python bytes, and megabytes per second as raw batches."""
    from tidelog_server.commands.bench.measures.scan import measure_scan

    per_batch = per_batch_of(size, batch_messages, batch_bytes)
    if (chosen := engine.chosen(endpoint=endpoint)) is not None:
        from tidelog_server.commands.bench.measures.engine import measure_scan as measure

        with _on_engine(*chosen, folder, size) as (log, target):
            print_measurement(measure(target, log, messages=messages, size=size, per_batch=per_batch), as_json=json)
        return
    with bench_target(endpoint, folder, settings_for(size)) as (target, bench):
        print_measurement(measure_scan(target, bench, messages=messages, size=size, per_batch=per_batch), as_json=json)


@contextmanager
def _on_engine(
    kind: str, settings: Mapping[str, str], folder: Path, size: int
) -> Iterator[tuple["EngineBench", "Target"]]:
    """Yield a log in an engine with its floor, and a server on the log."""
    from tidelog_server.commands.bench.floors.engine_floor import EngineBench

    with (
        EngineBench.running(kind, settings) as bench,
        bench_target(None, folder, {**settings_for(size), **bench.settings}) as (target, _),
    ):
        yield bench, target


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

    settings = MailboxSettings(cycles, size, batch_messages, in_flight, workers, worker_cycles, fetches, waiting)

    def cycled(target: "Target") -> Sequence[Report]:
        with counted("cycles", cycles + worker_cycles) as advance:
            return run_measurement(measure_mailbox(target, settings, advance))

    def waited(target: "Target") -> Report:
        with counted("messages", waiting) as advance:
            return run_measurement(measure_waiting(target, settings, advance))

    with bench_target(endpoint, folder, settings_for(size)) as (target, _):
        print_measured(lambda: cycled(target), as_json=json)
    if waiting:
        # Its own server, so that the reported memory is that of the waiting messages.
        with bench_target(endpoint, folder, settings_for(size)) as (target, _):
            print_measured(lambda: waited(target), as_json=json)


def default_messages(size: int) -> int:
    """Return a number of messages that averages out the disk's variation and is much larger than the memtables."""
    return max(1_000, min(8_000_000, (1 << 30) // size))
