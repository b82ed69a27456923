"""The demonstration from beginning to end."""

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.console import Console

from examples.flights.append import append_flights
from examples.flights.flights import SOURCE, Flight, read_airlines, read_flights
from examples.flights.on_engine import log_in_engine
from examples.flights.report import Measurements, carrier_table, draw_chart
from examples.flights.server import MortalServer
from examples.flights.spark_read import ReadBack, read_back
from examples.flights.summary import summarise
from examples.flights.together import Together, go_on, stage_half
from tidelog_cli.exit_codes import CommandError
from tidelog_cli.local_spark import spark_session

CHANNEL: Final = "flights"
LANES: Final = 4
CHART_NAME: Final = "delays.png"


def run_demo(
    output: Path, *, flights: int | None = None, engine: str = "", addresses: Mapping[str, str] | None = None
) -> None:
    """Append the flights, kill and restart the server during a transaction, read all back in Spark, and compare.

    With ``engine``, ``kafka`` or ``pulsar``, the log is in the one at ``addresses``, settings of the section engine,
    and the server starts again in another folder.

    Results are printed on stdout and drawn as a chart in the folder ``output``; progress is printed on stderr. All
    other files are in a temporary folder, which is deleted.

    Raises:
        CommandError: The messages read in Spark differ from the source, or the server failed.
    """
    begin = time.perf_counter()
    progress = Console(stderr=True)
    progress.print(f"reading the flights of {SOURCE}")
    source = read_flights(flights)
    with tempfile.TemporaryDirectory(prefix="tidelog-demo-") as folder, ExitStack() as stack:
        settings = stack.enter_context(log_in_engine(engine, addresses or {})) if engine else {}
        append_s, restart_s, found, together = _through_the_log(source, Path(folder), settings, progress)
    _compare(source, found)
    chart = output / CHART_NAME
    output.mkdir(parents=True, exist_ok=True)
    draw_chart(found.summary.carriers, read_airlines(), chart)
    measured = Measurements(len(source), append_s, restart_s, found.read_s, time.perf_counter() - begin)
    _show(found, measured, together, chart)


def _through_the_log(
    source: Sequence[Flight], folder: Path, settings: Mapping[str, str], progress: Console
) -> tuple[float, float, ReadBack, Together]:
    """Return the seconds of appending and of restarting, what Spark read, and the results of ``together``.

    ``settings`` name a log that outlives the folder of its server; without them, the log is in the folder.
    """
    server = MortalServer(folder / "data", settings)
    try:
        append_s = append_flights(server.grpc, CHANNEL, LANES, source, progress)
        half = stage_half(server.grpc, source, progress)
        server.kill()
        progress.print("every flight is acknowledged; killed the server with SIGKILL, restarting it")
        begin = time.perf_counter()
        if settings:
            shutil.rmtree(folder / "data")
            progress.print("its data folder was deleted; it starts in another one")
            server = MortalServer(folder / "other-data", settings)
        else:
            server.start()
        restart_s = time.perf_counter() - begin
        progress.print(f"ready after {restart_s:.2f} s")
        together = go_on(server.grpc, half, source, progress)
        progress.print("starting Spark")
        with spark_session(folder, name="tidelog demo") as spark:
            progress.print("reading everything back in Spark")
            return append_s, restart_s, read_back(spark, server.grpc, CHANNEL), together
    finally:
        server.stop()


def _compare(source: Sequence[Flight], found: ReadBack) -> None:
    problems = summarise(source, LANES).differences(found.summary)
    if found.disordered:
        problems.append(f"{found.disordered} messages are out of order within their vchannel")
    if problems:
        raise CommandError("the messages read in Spark differ from those appended:\n" + "\n".join(problems))


def _show(found: ReadBack, measured: Measurements, together: Together, chart: Path) -> None:
    console = Console()
    console.print(carrier_table(found.summary.carriers, read_airlines()))
    console.print()
    console.print(
        f"[bold]{found.rows:,} messages were read back, each exactly once and in order:[/] counts and digests of Spark "
        "and of the source are equal for every vchannel and carrier"
    )
    for line in (*together.lines(), *measured.lines()):
        console.print(line, highlight=False, soft_wrap=True)
    console.print(f"chart     {chart}", highlight=False)
