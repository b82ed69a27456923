"""Messages, bytes, rates, sizes and keys of channels, in total and per time window: ``stats``."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC
from pathlib import Path
from typing import Any, Final

from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from tidelog.spark.errors import OptionError
from tidelog.spark.pipelines.fixed_cut import fix_cut
from tidelog.spark.pipelines.tasks import OnProgress, SourceOptions, load_frame, reporting
from tidelog.spark.ticks import iso_text

_PERCENTILES: Final = (0.5, 0.95, 0.99)
_MAX_WINDOWS: Final = 100_000
_AIMED_WINDOWS: Final = 100
_STEPS_S: Final = (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 21_600, 86_400, 604_800)
_PRECISION: Final = 10_000

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StatsReport:
    """Statistics; all records of an attribute have the same fields.

    Attributes:
        tick: The statistics are as of this tick, inclusive.
        window_s: Length of a window in seconds.
        channels: One record per channel: messages, bytes, sizes, keys, first and last time, mean rates (None if all
            messages have the same time). ``distinct_keys`` is accurate to about 5 %.
        windows: One record per channel and non-empty window, sorted by time.
        sizes: One record per channel and power of two: number of messages with at most that many bytes, and more than
            the previous power.
        types: One record per channel and type.
        top_keys: The most frequent keys of each channel.
    """

    tick: int
    window_s: int
    channels: Sequence[Record]
    windows: Sequence[Record]
    sizes: Sequence[Record]
    types: Sequence[Record]
    top_keys: Sequence[Record]

    @property
    def messages(self) -> int:
        """Number of messages of all channels."""
        return sum(int(channel["messages"]) for channel in self.channels)

    def as_record(self) -> Record:
        """Return the report as JSON values."""
        return asdict(self)


def stats(
    spark: SparkSession,
    options: SourceOptions,
    *,
    window_s: int | None = None,
    top: int = 10,
    output: str | Path | None = None,
    on_progress: OnProgress | None = None,
) -> StatsReport:
    """Return statistics of the messages that ``options`` select.

    Bytes are those of keys and payloads; times are those of ticks. Percentiles are exact to 1 in 10,000 of the
    messages, numbers of distinct keys to about 5 %; everything else is exact.

    Args:
        spark: Session that runs the job.
        options: Options of the source.
        window_s: Length of a window in seconds; None for a length that results in about 100 windows.
        top: Number of most frequent keys to report per channel.
        output: Folder to write the windows to as Parquet, replacing its content; None to write no files.
        on_progress: See ``OnProgress``.

    Raises:
        OptionError: There would be more than 100,000 windows, or an option is invalid.
        ArchiveError: The archive does not exist.
        TidelogError: The server cannot be reached, a channel does not exist, or the cut lies in the future.
    """
    cut = fix_cut(options)
    with reporting(spark, "counting", on_progress):
        messages = _messages(load_frame(spark, cut.options, "channel", "timestamp", "type", "key", "payload"))
        # Persisted, so that the log is read once for all aggregations.
        messages.persist(StorageLevel.DISK_ONLY)
        try:
            return _report(messages, cut.tick, window_s, top, output)
        finally:
            messages.unpersist()


def _messages(frame: DataFrame) -> DataFrame:
    size = F.octet_length("payload") + F.coalesce(F.octet_length("key"), F.lit(0))
    return frame.select("channel", "timestamp", "type", "key", size.cast("bigint").alias("size"))


def _report(messages: DataFrame, tick: int, window_s: int | None, top: int, output: str | Path | None) -> StatsReport:
    totals = messages.groupBy("channel").agg(
        *_aggregates(), F.min("timestamp").alias("first"), F.max("timestamp").alias("last")
    )
    by_channel = totals.orderBy("channel").collect()
    length_s = window_s or _fitting(by_channel)
    _check_windows(by_channel, length_s)
    start = F.timestamp_seconds(F.floor(F.unix_timestamp("timestamp") / length_s) * length_s).alias("start")
    windows = messages.groupBy("channel", start).agg(*_aggregates()).orderBy("start", "channel")
    if output is not None:
        windows.withColumn("window_s", F.lit(length_s)).write.mode("overwrite").parquet(str(output))
    # Exponent of the smallest power of two that is at least the size; 0 for 0 and 1 byte.
    power = F.when(F.col("size") <= 1, 0).otherwise(F.ceil(F.log2(F.col("size").cast("double")))).cast("int")
    sizes = messages.groupBy("channel", power.alias("power")).count().orderBy("channel", "power").collect()
    types = messages.groupBy("channel", "type").count().orderBy("channel", F.desc("count"), "type").collect()
    return StatsReport(
        tick,
        length_s,
        [_channel_record(row) for row in by_channel],
        [{**_record(row), "start": iso_text(row.start), **_rates(row, length_s)} for row in windows.collect()],
        [{"channel": row.channel, "at_most_bytes": 1 << row.power, "messages": row["count"]} for row in sizes],
        [{"channel": row.channel, "type": row.type % (1 << 32), "messages": row["count"]} for row in types],
        _top_keys(messages, top),
    )


def _aggregates() -> list[Any]:
    return [
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.max("size").alias("max_size"),
        F.percentile_approx("size", list(_PERCENTILES), _PRECISION).alias("percentiles"),
        F.count("key").alias("keyed"),
        F.approx_count_distinct("key").alias("distinct_keys"),
    ]


def _top_keys(messages: DataFrame, top: int) -> list[Record]:
    counted = (
        messages.where("key IS NOT NULL")
        .groupBy("channel", "key")
        .agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))
    )
    place = F.row_number().over(Window.partitionBy("channel").orderBy(F.desc("messages"), "key"))
    rows = counted.withColumn("place", place).where(F.col("place") <= top).orderBy("channel", "place").collect()
    return [
        {"channel": row.channel, "key": _shown(bytes(row.key)), "messages": row.messages, "bytes": row.bytes}
        for row in rows
    ]


def _channel_record(row: Row) -> Record:
    return {
        **_record(row),
        "first": iso_text(row["first"]),
        "last": iso_text(row["last"]),
        **_rates(row, _span_s([row])),
    }


def _record(row: Row) -> Record:
    return {
        "channel": row.channel,
        "messages": row.messages,
        "bytes": row.bytes,
        "mean_size": round(row.bytes / row.messages, 1),
        **{f"p{int(share * 100)}_size": size for share, size in zip(_PERCENTILES, row.percentiles, strict=True)},
        "max_size": row.max_size,
        "unkeyed": row.messages - row.keyed,
        "distinct_keys": row.distinct_keys,
    }


def _rates(row: Row, seconds: float) -> Mapping[str, float | None]:
    """Return rates; None if the messages span no time."""
    return {
        "messages_per_second": round(row.messages / seconds, 3) if seconds else None,
        "bytes_per_second": round(row.bytes / seconds, 3) if seconds else None,
    }


def _fitting(channels: Sequence[Row]) -> int:
    """Return the shortest length in _STEPS_S with at most _AIMED_WINDOWS windows, or the longest."""
    seconds = _span_s(channels)
    return next((step for step in _STEPS_S if seconds / step <= _AIMED_WINDOWS), _STEPS_S[-1])


def _span_s(channels: Sequence[Row]) -> float:
    """Return the seconds between the first and the last message of all channels."""
    if not channels:
        return 0.0
    # Times of Spark are local and have no zone. In UTC, because a local day on which the clocks change does not have 24
    # hours.
    first = min(row["first"].astimezone(UTC) for row in channels)
    return float((max(row["last"].astimezone(UTC) for row in channels) - first).total_seconds())


def _check_windows(channels: Sequence[Row], length_s: int) -> None:
    if _span_s(channels) / length_s * len(channels) > _MAX_WINDOWS:
        raise OptionError(
            f"there would be more than {_MAX_WINDOWS} windows of {length_s} s: choose longer windows, or read less"
        )


def _shown(key: bytes) -> str:
    """Return a key as text, or as hexadecimal digits if it is not printable UTF-8."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return text if text.isprintable() else f"0x{key.hex()}"
