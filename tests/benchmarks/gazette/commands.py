"""Benchmarks of journals."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_server.commands.bench.common import (
    EndpointOption,
    FolderOption,
    JsonOption,
    MessagesOption,
    bench_target,
    print_measured,
    print_measurement,
    settings_for,
)


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
    from benchmarks.gazette.messages import installed_codecs
    from benchmarks.gazette.publishing import measure_publishing
    from benchmarks.gazette.reading import measure_reading
    from benchmarks.gazette.report import GazetteSettings

    if codec is not None and find_spec(codec) is None:
        raise CommandError(f"{codec} is not installed: run pip install {codec}, or use --codec json", ExitCode.USAGE)
    for name in installed_codecs() if codec is None else [codec]:
        settings = GazetteSettings(messages, size, per_transaction, name)
        with bench_target(endpoint, folder, settings_for(size)) as (target, _):
            for measure in (measure_publishing, measure_reading):
                print_measurement(measure(target, settings), as_json=json)


def sequencer(
    *,
    messages: Annotated[int, typer.Option(min=1000, help="Messages of each kind.")] = 200_000,
    transaction: Annotated[int, typer.Option(min=2, help="Messages of a transaction.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, help="Number of runs; the fastest counts.")] = 5,
    json: JsonOption = False,
) -> None:
    """Measure the CPU time of the sequencer of journals, per message; no server runs."""
    from benchmarks.gazette.sequencer import SequencerSettings, measure_sequencer

    settings = SequencerSettings(messages, transaction, rounds)
    print_measured(lambda: measure_sequencer(settings), as_json=json)
