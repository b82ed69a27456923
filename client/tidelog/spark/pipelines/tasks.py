"""Execution of jobs: one Spark task per partition of a read, and progress reports."""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidelog.spark.payload_options import CORRUPT_RECORD
from tidelog.spark.read.partition import Partition
from tidelog.spark.source import MORE, SCHEMA, TidelogDataSource

if TYPE_CHECKING:
    from pyspark import RDD

ALL_COLUMNS: Final = StructType([*SCHEMA, *(field for field in MORE if field.name != CORRUPT_RECORD)])
"""All columns of the source, except the corrupt record."""

OnProgress = Callable[[str, int, int], None]
"""Progress callback ``(stage, tasks_done, tasks_known)``, called every 0.25 s; both counts are monotonic."""

SourceOptions = Mapping[str, Any]
"""Options of ``spark.read.format("tidelog")``."""

_POLL_S: Final = 0.25
_TRACEBACK: Final = "Traceback (most recent call last)"
_OUR_ERROR: Final = re.compile(r"\btidelog[\w.]*Error: (.+)")


def over_partitions(
    spark: SparkSession,
    partitions: Sequence[Partition],
    task: Callable[[Partition], Iterator[tuple[Any, ...]]],
) -> "RDD[tuple[Any, ...]]":
    """Run ``task`` in one Spark task per partition, and return the yielded tuples. ``partitions`` must not be empty.

    The rows that a task reads never become Spark rows. Why an RDD: ``mapInArrow`` of DataFrames needs pandas.
    """
    return spark.sparkContext.parallelize(partitions, len(partitions)).flatMap(task)


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of batches."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def arrow_schema(*names: str) -> pa.Schema:
    """Return the Arrow schema of the named columns, or of ALL_COLUMNS if there are no names."""
    return to_arrow_schema(StructType([ALL_COLUMNS[name] for name in names] or list(ALL_COLUMNS)), timezone="UTC")


def load_frame(spark: SparkSession, options: SourceOptions, *names: str) -> DataFrame:
    """Return the named columns of the messages that ``options`` select, as a DataFrame."""
    spark.dataSource.register(TidelogDataSource)
    schema = StructType([ALL_COLUMNS[name] for name in names])
    texts = {name: str(value) for name, value in options.items()}
    return spark.read.format("tidelog").schema(schema).options(**texts).load()


def reason_of(error: PySparkException) -> str:
    """Return the reason of a failure in one line: the message of a Tidelog error, else the first line of Spark's."""
    text = str(error)
    if ours := _OUR_ERROR.findall(text):
        return str(ours[-1]).strip()
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("SQLSTATE:")]
    # In a traceback the message comes last.
    return lines[-1 if _TRACEBACK in text else 0] if lines else type(error).__name__


@contextmanager
def reporting(spark: SparkSession, what: str, on_progress: OnProgress | None) -> Iterator[None]:
    """Report the progress of the session's Spark jobs to ``on_progress``, from a thread, while the block runs."""
    if on_progress is None:
        yield
        return
    tracker = spark.sparkContext.statusTracker()
    stopped = threading.Event()

    # (tasks done, tasks in total) of every stage seen so far.
    seen: dict[int, tuple[int, int]] = {}

    def poll() -> None:
        while not stopped.wait(_POLL_S):
            for stage in {*seen, *tracker.getActiveStageIds()}:
                info = tracker.getStageInfo(stage)
                if info is not None:
                    seen[stage] = info.numCompletedTasks, info.numTasks
            on_progress(what, sum(done for done, _ in seen.values()), sum(total for _, total in seen.values()))

    on_progress(what, 0, 0)
    thread = threading.Thread(target=poll, name="tidelog-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
