"""Archive and log as one table, with the archive read by Spark's own Parquet reader: ``read_table``.

The source's option ``archive`` reads archived files in Python, like the log; Spark then extracts the rows from Arrow
one by one. Spark's own reader decodes Parquet in generated code, at least twice as fast.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidelog.spark.archive.partition import ArchivePartition
from tidelog.spark.archive.plan import divide
from tidelog.spark.errors import OptionError
from tidelog.spark.option_values import known_options
from tidelog.spark.options import ALL_NAMES, parse_options
from tidelog.spark.payload_options import AS_THEY_ARE
from tidelog.spark.pipelines.tasks import ALL_COLUMNS, SourceOptions
from tidelog.spark.read.plan import by_begin
from tidelog.spark.read.pushdown import Pushdown
from tidelog.spark.source import SCHEMA, TidelogDataSource

_REPLACED: Final = frozenset(
    {"archive", "archiveOnly", "channel", "channels", "channelPattern", "vchannels", "path", "startingTick",
     "startingTimestamp", "endingTick", "endingTimestamp", "asOfTick", "versionAsOf",
     "timestampAsOf"}
)  # fmt: skip
# Overrides the session: rows that cannot be read are an error.
_STRICT: Final = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
_SIGN: Final = 1 << 31
_UINT32: Final = 1 << 32


def read_table(spark: SparkSession, options: SourceOptions) -> DataFrame:
    """Return archive and log as one table, as of a cut that is taken now. Every read returns the same rows.

    The rows are those of ``spark.read.format("tidelog").options(**options)``, in undefined order. Archived rows are
    read by Spark's Parquet reader, which skips columns and row groups that a query does not need; newer rows come from
    the log.

    Args:
        spark: A classic session, or a Spark Connect session whose server reaches the archive under the same path.
        options: Options of the source, including ``archive``.

    Raises:
        OptionError: An option is invalid, ``archive`` is not set, or ``payloadFormat`` is not binary.
        ArchiveError: The archive does not exist, or is of another channel of the same name.
        TidelogError: The server cannot be reached, a channel does not exist, or requested messages were lost. While
            the table is read: another run of ``archive`` has trimmed the log; call this function again.
    """
    texts = known_options(options, ALL_NAMES)
    read = parse_options(texts)
    if not read.archive:
        raise OptionError("the option 'archive' is not set: set it, or use spark.read.format('tidelog') for the log")
    if read.payloads != AS_THEY_ARE:
        raise OptionError(
            "a table has only binary payloads, because Spark itself reads them: remove 'payloadFormat', and use "
            "cast('string') or from_json"
        )
    divided = divide(read, Pushdown())
    columns = StructType([*SCHEMA, *(ALL_COLUMNS[name] for name in read.more_columns)])
    frames = [_archived(spark, divided.archived, columns)] if divided.archived else []
    spark.dataSource.register(TidelogDataSource)
    kept = {name: value for name, value in texts.items() if name not in _REPLACED}
    frames += [
        spark.read.format("tidelog").options(**kept, **range_).load()
        for range_ in _ranges(divided.begins, divided.end_tick)
    ]
    return reduce(lambda one, other: one.union(other), frames) if frames else spark.createDataFrame([], columns)


def _archived(spark: SparkSession, parts: Sequence[ArchivePartition], columns: StructType) -> DataFrame:
    frame = spark.read.schema(columns).options(**_STRICT).parquet(*(part.path for part in parts))
    # All partitions of a plan have the same range and types.
    one = parts[0]
    frame = frame.where(f"tick >= {one.begin_tick} AND tick < {one.end_tick}")
    if one.types:
        types = ", ".join(str(kind - _UINT32 if kind >= _SIGN else kind) for kind in one.types)
        frame = frame.where(f"type IN ({types})")
    return frame


def _ranges(begins: Mapping[str, int], end_tick: int) -> list[dict[str, str]]:
    """Return options that read the log's part, one set for all vchannels that begin at the same tick."""
    return [
        {"vchannels": ",".join(names), "startingTick": str(begin_tick), "endingTick": str(end_tick)}
        for begin_tick, names in by_begin(begins, end_tick).items()
    ]
