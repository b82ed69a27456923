"""Archive and log as one table, with the archive read by Spark's own reader of Parquet: ``read_table``.

The source's option ``archive`` reads archived files in Python, as it reads the log; Spark then takes rows out of Arrow
one by one. Its own reader decodes Parquet within generated code, at twice the speed and more.
"""

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructType

from tidelog.spark.archive_plan import ArchivePartition, by_begin, divide
from tidelog.spark.option_values import known_options
from tidelog.spark.options import ALL_NAMES, OptionError, parse_options
from tidelog.spark.payload_options import AS_THEY_ARE
from tidelog.spark.pipelines.tasks import ALL_COLUMNS, SourceOptions
from tidelog.spark.pushdown import Pushdown
from tidelog.spark.source import SCHEMA, TidelogDataSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

_SAID_ANEW: Final = frozenset(
    {"archive", "archiveOnly", "channel", "channels", "channelPattern", "vchannels", "path", "startingTick",
     "startingTimestamp", "endingTick", "endingTimestamp", "asOfTick", "timestampAsOf"}
)  # fmt: skip
# Whatever the session says: rows that cannot be read are an error.
_STRICT: Final = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
_SIGN: Final = 1 << 31
_UINT32: Final = 1 << 32


def read_table(spark: "SparkSession", options: SourceOptions) -> "DataFrame":
    """Return archive and log as one table, as of a cut that is taken now: the same rows whenever they are read.

    The rows are those of ``spark.read.format("tidelog").options(**options)``, in no order. What is archived is read by
    Spark's reader of Parquet, which leaves out columns and row groups that a query does not need; what is newer comes
    from the log.

    Args:
        spark: A classic session, or one of Spark Connect whose server reaches the archive under the same path.
        options: Those of the source, with ``archive``.

    Raises:
        OptionError: An option is wrong, ``archive`` is missing, or payloads are to be decoded.
        ArchiveError: There is no archive, or it is of another channel of the same name.
        TidelogError: The server cannot be reached, a channel does not exist, or what is asked for was lost. While the
            table is read: the log was trimmed after another run of ``archive``; take the table anew.
    """
    texts = known_options({name: str(value) for name, value in options.items()}, ALL_NAMES)
    read = parse_options(texts)
    if not read.archive:
        raise OptionError("'archive' is missing: without one, spark.read.format('tidelog') reads the log")
    if read.payloads != AS_THEY_ARE:
        raise OptionError(
            "a table has payloads as they are, for Spark itself reads them: leave out 'payloadFormat', and use "
            "cast('string') or from_json"
        )
    divided = divide(read, Pushdown())
    columns = StructType([*SCHEMA, *(ALL_COLUMNS[name] for name in read.more_columns)])
    frames = [_archived(spark, divided.archived, columns)] if divided.archived else []
    spark.dataSource.register(TidelogDataSource)
    kept = {name: value for name, value in texts.items() if name not in _SAID_ANEW}
    frames += [
        spark.read.format("tidelog").options(**kept, **range_).load()
        for range_ in _ranges(divided.begins, divided.end_tick)
    ]
    return reduce(lambda one, other: one.union(other), frames) if frames else spark.createDataFrame([], columns)


def _archived(spark: "SparkSession", parts: "Sequence[ArchivePartition]", columns: StructType) -> "DataFrame":
    frame = spark.read.schema(columns).options(**_STRICT).parquet(*(part.path for part in parts))
    # Those of a plan have one range and the same types.
    one = parts[0]
    frame = frame.where(f"tick >= {one.begin_tick} AND tick < {one.end_tick}")
    if one.types:
        types = ", ".join(str(kind - _UINT32 if kind >= _SIGN else kind) for kind in one.types)
        frame = frame.where(f"type IN ({types})")
    return frame


def _ranges(begins: Mapping[str, int], end_tick: int) -> "list[dict[str, str]]":
    """Return options that read the log's part: one of vchannels that begin at the same tick."""
    return [
        {"vchannels": ",".join(names), "startingTick": str(begin_tick), "endingTick": str(end_tick)}
        for begin_tick, names in by_begin(begins, end_tick).items()
    ]
