"""``benchmarks spark``: rows per second read from the log and written to it, against Parquet, in one Spark session."""

import os
import re
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import psutil

from tidelog import AsyncClient
from tidelog_cli import event_loop
from tidelog_cli.exit_codes import CommandError
from tidelog_cli.local_spark import spark_session
from tidelog_server.commands.bench.appending import Load, append_lists
from tidelog_server.commands.bench.payloads import distinct_payloads
from tidelog_server.commands.bench.report import Floor, Report
from tidelog_server.commands.bench.server_process import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROUNDS: Final = 3
_PER_BATCH: Final = 5_000
# Compared once, to prove that the rows are equal.
_DIGEST: Final = ("count(*)", "sum(crc32(payload))", "sum(tick % 1000003)")


def measure_spark(target: Target, folder: Path, *, messages: int, size: int, vchannels: int) -> Report:
    """Append messages, then read and write them and the same rows in Parquet, in turns after a warm-up.

    Returns medians of three rounds. No client may be open meanwhile: Spark starts Java with a fork, during which gRPC
    must have no open connections.

    Raises:
        CommandError: The log and Parquet have different rows.
    """
    channel = f"bench-spark-{os.getpid()}"
    names = [f"{channel}/{index}" for index in range(vchannels)]
    load = Load(messages // vchannels * vchannels, _PER_BATCH, names, producers=vchannels)
    event_loop.run(_fill(target.grpc, channel, load, size))
    try:
        measured = _measure(target.grpc, names, folder, load.messages, size)
    finally:
        event_loop.run(_remove(target.grpc, channel))
    times = measured.times
    return Report(
        name="spark",
        settings={"messages": messages, "size": size, "vchannels": vchannels},
        messages_per_second=load.messages / times.ours,
        megabytes_per_second=load.messages * size / times.ours / 1e6,
        server_rss_bytes=target.peak_rss_bytes(),
        floor=Floor(
            "the same rows from Parquet in the same session", "messages_per_second", load.messages / times.floor
        ),
        ratio=times.floor / times.ours,
        details={
            "python_source_that_reads_nothing_messages_per_second": load.messages / times.ceiling,
            "its_ratio_to_the_floor": times.floor / times.ceiling,
            "archived_messages_per_second": load.messages / times.archived,
            "archived_ratio": times.floor / times.archived,
            "python_worker_peak_bytes": measured.reader_peak_bytes,
            "python_worker_peak_bytes_of_archive": measured.archiver_peak_bytes,
            "written_messages_per_second": load.messages / times.written,
            "written_as_parquet_messages_per_second": load.messages / times.written_floor,
            "write_ratio": times.written_floor / times.written,
        },
    )


class _Seconds(NamedTuple):
    """Medians of reading Parquet, the log, its archive and a Python source without input, and of writing both."""

    floor: float
    ours: float
    archived: float
    ceiling: float
    written_floor: float
    written: float


class _Measured(NamedTuple):
    """The times of a session, and the peak memory of its Python workers.

    Attributes:
        times: Median times.
        reader_peak_bytes: Peak memory of a worker after the whole log was read twice.
        archiver_peak_bytes: Peak memory of a worker after the log was archived too.
    """

    times: _Seconds
    reader_peak_bytes: int
    archiver_peak_bytes: int


async def _fill(endpoint: str, channel: str, load: Load, size: int) -> None:
    async with AsyncClient(endpoint) as client:
        await client.create_channels([channel, _copy_of(channel)], vchannels=len(load.vchannels))
        await append_lists(client, distinct_payloads(size), load)


async def _remove(endpoint: str, channel: str) -> None:
    async with AsyncClient(endpoint) as client:
        await client.destroy_channels([channel, _copy_of(channel)])


def _copy_of(channel: str) -> str:
    """Return the name of the channel that Spark writes to."""
    return f"{channel}-copy"


def _measure(endpoint: str, vchannels: list[str], folder: Path, messages: int, size: int) -> _Measured:
    """Measure reading and writing the rows."""
    from benchmarks.spark.ceiling import FORMAT, CeilingDataSource
    from tidelog.spark.pipelines import archive, read_table

    with spark_session(folder, name="tidelog bench") as session:
        log = (
            session.read.format("tidelog").option("endpoint", endpoint).option("vchannels", ",".join(vchannels)).load()
        )
        parquet_path = str(folder / "parquet")
        log.write.parquet(parquet_path)
        parquet = session.read.parquet(parquet_path)
        _require_equal(_row(log, _DIGEST), _row(parquet, _DIGEST), messages)
        reader_peak_bytes = _worker_peak_bytes()
        session.dataSource.register(CeilingDataSource)
        shape = {"rows": messages, "size": size, "partitions": log.rdd.getNumPartitions()}
        ceiling = session.read.format(FORMAT).options(**shape).load()
        options = {"endpoint": endpoint, "vchannels": ",".join(vchannels), "archive": str(folder / "archive")}
        archive(session, folder / "archive", {name: options[name] for name in ("endpoint", "vchannels")})
        archiver_peak_bytes = _worker_peak_bytes()
        table = read_table(session, options)
        _require_equal(_row(table, _DIGEST), _row(parquet, _DIGEST), messages)
        reads = _interleaved(*(partial(_read, frame) for frame in (parquet, log, table, ceiling)))
        payloads = parquet.select("payload")
        copy = payloads.write.format("tidelog").mode("append").option("endpoint", endpoint)
        copy_path, copy_name = str(folder / "copy"), _copy_of(vchannels[0].partition("/")[0])
        writes = _interleaved(lambda: payloads.write.mode("overwrite").parquet(copy_path), lambda: copy.save(copy_name))
        return _Measured(_Seconds(*reads, *writes), reader_peak_bytes, archiver_peak_bytes)


def _worker_peak_bytes() -> int:
    """Return the peak memory of the Python workers of this process's Spark, in bytes."""
    workers = [child for child in psutil.Process().children(recursive=True) if _is_worker(child)]
    statuses = (Path(f"/proc/{worker.pid}/status") for worker in workers)
    peaks = [
        re.search(r"^VmHWM:\s*(\d+) kB", status.read_text(), re.MULTILINE) for status in statuses if status.exists()
    ]
    return max((int(peak[1]) * 1024 for peak in peaks if peak), default=0)


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "pyspark.daemon" in " ".join(process.cmdline())
    except psutil.Error:
        # The process has ended meanwhile.
        return False


def _require_equal(ours: tuple[object, ...], theirs: tuple[object, ...], messages: int) -> None:
    if ours != theirs or ours[0] != messages:
        raise CommandError(f"the log and Parquet differ, with {messages} messages expected: {ours} and {theirs}")


def _interleaved(*runs: Callable[[], object]) -> list[float]:
    """Return the median seconds of each run, after a warm-up, in turns because a machine's speed drifts."""
    for run in runs:
        run()
    rounds = [[_seconds(run) for run in runs] for _ in range(_ROUNDS)]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def _read(frame: "DataFrame") -> None:
    """Read all columns and discard the rows, as Spark's own benchmarks of its readers do.

    The time of an aggregation would be included, and could exceed that of reading Parquet (D-030).
    """
    frame.write.format("noop").mode("overwrite").save()


def _row(frame: "DataFrame", expressions: Sequence[str]) -> tuple[object, ...]:
    row = frame.selectExpr(*expressions).first()
    assert row is not None
    return tuple(row)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
