"""Benchmarks of message streams."""

from pathlib import Path
from typing import Annotated

import typer

from tidelog_server.commands.bench.common import (
    EndpointOption,
    FolderOption,
    JsonOption,
    MessagesOption,
    SizeOption,
    bench_target,
    print_measurement,
    settings_for,
)
from tidelog_server.commands.bench.report import Report
from tidelog_server.commands.pulsar import DEFAULT_PULSAR_NAMESPACE


def msgstream(
    *,
    intervals: Annotated[int, typer.Option(min=4, help="Number of intervals to measure.")] = 50,
    interval_ms: Annotated[int, typer.Option(min=10, max=60_000, help="Milliseconds per interval.")] = 200,
    pause_ms: Annotated[float, typer.Option(min=0, help="Milliseconds between packs of the producer.")] = 5,
    size: SizeOption = 100,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure the delay of packs of two time-tick streams over eight channels, two of them without messages."""
    from benchmarks.streams.ticks import MsgstreamSettings, measure_msgstream

    settings = MsgstreamSettings(intervals, interval_ms, pause_ms, size)
    with bench_target(endpoint, folder, settings_for(size)) as (target, _):
        print_measurement(measure_msgstream(target, settings), as_json=json)


def msgstream_pulsar(
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
    from benchmarks.streams.pulsar import PulsarStreamSettings, measure_pulsar_streams
    from tidelog_server.commands.pulsar import pulsar_broker

    async def measure() -> list[Report]:
        async with pulsar_broker(pulsar, admin_url, namespace) as broker:
            return await measure_pulsar_streams(broker, PulsarStreamSettings(messages, size, intervals))

    print_measurement(measure(), as_json=json)
