"""Benchmarks of consumer groups."""

from pathlib import Path
from typing import Annotated

import typer

from tidelog_cli.exit_codes import CommandError, ExitCode
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
from tidelog_server.core.limits import MAX_MESSAGES_PER_BATCH
from tidelog_server.groups.groups import MAX_POSITIONS_PER_GROUP
from tidelog_server.groups.sessions import MAX_MEMBERS_PER_GROUP


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
    from benchmarks.groups.consume import ConsumeSettings, measure_consume

    if vchannels % members:
        raise CommandError(
            f"{members} members cannot share {vchannels} vchannels evenly: make --vchannels a multiple of --members",
            ExitCode.USAGE,
        )
    settings = ConsumeSettings(messages, size, members, vchannels, commit_every, waits)
    with bench_target(endpoint, folder, settings_for(size)) as (target, _):
        print_measurement(measure_consume(target, settings), as_json=json)


def rebalance(
    *,
    seconds: Annotated[float, typer.Option(min=1, help="Seconds during which members are killed and added.")] = 60.0,
    members: Annotated[int, typer.Option(min=2, help="Number of concurrent members, each a process.")] = 4,
    vchannels: Annotated[int, typer.Option(min=1, help="Number of vchannels.")] = 8,
    rate: Annotated[int, typer.Option(min=1, help="Messages appended per second.")] = 2_000,
    kill_every: Annotated[float, typer.Option(min=0.1, help="Seconds between kills.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the random choice of the killed member.")] = 0,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Count lost and duplicate messages, and measure the longest pause, while members are killed and added."""
    from benchmarks.groups.rebalance import RebalanceSettings, measure_rebalance

    settings = RebalanceSettings(seconds, members, vchannels, rate, kill_every, seed)
    with bench_target(endpoint, folder, settings_for(100)) as (target, _):
        print_measurement(measure_rebalance(target, settings), as_json=json)


def joins(
    *,
    members: Annotated[
        int, typer.Option(min=1, max=MAX_MEMBERS_PER_GROUP, help="Number of members, all in one process.")
    ] = MAX_MEMBERS_PER_GROUP,
    vchannels: Annotated[int, typer.Option(min=1, max=MAX_POSITIONS_PER_GROUP, help="Number of vchannels.")] = 9_216,
    settles_each: Annotated[
        bool, typer.Option("--settles-each", help="Wait after each join until the group has settled.")
    ] = False,
    endpoint: EndpointOption = None,
    folder: FolderOption = Path(),
    json: JsonOption = False,
) -> None:
    """Measure how long a group takes to settle while members join it one after the other."""
    from benchmarks.groups.joins import JoinsSettings, measure_joins

    settings = JoinsSettings(members, vchannels, settles_each)
    with bench_target(endpoint, folder, settings_for(100)) as (target, _):
        print_measurement(measure_joins(target, settings), as_json=json)
