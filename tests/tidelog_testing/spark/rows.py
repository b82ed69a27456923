"""What Spark tests append to the log, and what they compare."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidelog import Client, Tick
from tidelog.spark.archive import manifest


def append(client: Client, vchannel: str, *payloads: str) -> list[Tick]:
    """Append one batch and return its ticks."""
    result = client.append(vchannel, [payload.encode() for payload in payloads])
    return [Tick(tick) for tick in range(result.first_tick, result.last_tick + 1)]


def load(spark: SparkSession, options: Mapping[str, object], **more: object) -> DataFrame:
    """Return the DataFrame of the source with ``options`` and ``more``."""
    texts = {name: str(value) for name, value in {**options, **more}.items()}
    return spark.read.format("tidelog").options(**texts).load()


def data_files(root: Path) -> list[Path]:
    """Return the files of an archive, including uncommitted ones, in order of their names."""
    return sorted((root / manifest.DATA).rglob("*.parquet"))


def payloads(frame: DataFrame) -> list[str]:
    """Read a DataFrame and return its payloads, sorted."""
    return sorted(bytes(row.payload).decode() for row in frame.select("payload").collect())


def error_of(run: Callable[[], object]) -> str:
    """Return Spark's error text of ``run``, which must fail."""
    with pytest.raises(PySparkException) as raised:
        run()
    return str(raised.value)
