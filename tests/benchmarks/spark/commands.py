"""Benchmarks of Spark."""

from pathlib import Path
from typing import Annotated

import typer

from tidelog_cli.local_spark import check_java
from tidelog_server.commands.bench.common import (
    EndpointOption,
    FolderOption,
    JsonOption,
    MessagesOption,
    SizeOption,
    bench_target,
    print_measured,
    settings_for,
)

_VchannelsOption = Annotated[int, typer.Option(min=1, help="Number of vchannels.")]


def spark(
    *,
    messages: MessagesOption = 5_000_000,
    size: SizeOption = 100,
    vchannels: _VchannelsOption = 4,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure rows per second into Spark, against the same rows from Parquet."""
    from benchmarks.spark.source import measure_spark

    check_java()
    with bench_target(endpoint, folder, settings_for(size)) as (target, bench):
        print_measured(
            lambda: measure_spark(target, bench, messages=messages, size=size, vchannels=vchannels), as_json=json
        )


def pipeline(
    *,
    messages: MessagesOption = 2_000_000,
    size: SizeOption = 100,
    vchannels: _VchannelsOption = 4,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure archiving, verifying and trimming with Spark; producer, log and archive must have the same digest."""
    from benchmarks.spark.pipeline import measure_pipeline

    check_java()
    with bench_target(endpoint, folder, settings_for(size)) as (target, bench):
        print_measured(
            lambda: measure_pipeline(target, bench, messages=messages, size=size, vchannels=vchannels), as_json=json
        )


def stream(
    *,
    rate: Annotated[int, typer.Option(min=50, help="Messages appended per second.")] = 200_000,
    size: SizeOption = 100,
    vchannels: _VchannelsOption = 4,
    seconds: Annotated[int, typer.Option(min=1, help="Seconds of appends.")] = 30,
    trigger: Annotated[float, typer.Option(min=0.1, help="Trigger interval of micro-batches, in seconds.")] = 2.0,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure a streaming query in Spark during steady appends: duration of batches, and delay of messages."""
    from benchmarks.spark.stream import StreamSettings, measure_stream

    check_java()
    settings = StreamSettings(rate, size, vchannels, seconds, trigger)
    with bench_target(endpoint, folder, settings_for(size)) as (target, bench):
        print_measured(lambda: measure_stream(target, bench, settings), as_json=json)
