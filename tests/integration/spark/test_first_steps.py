"""A user's first steps in Spark work or fail with advice: SQL, and other sources' options.

Method: one Spark session for SQL and errors. ``test_programs`` has programs that make their own.
"""

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelog
from tidelog import Client
from tidelog_server.testing import RunningServer
from tidelog_testing.spark.rows import error_of

pytestmark = pytest.mark.spark


@pytest.mark.extended
def test_sql_reads_a_view_and_a_table_says_why_it_cannot_be_one(
    spark: SparkSession, server: RunningServer, client: Client, channel: str
) -> None:
    client.append(f"{channel}/0", [b"a", b"b"])
    options = f"OPTIONS (endpoint '{server.endpoint}', channel '{channel}')"

    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING tidelog {options}")
    assert spark.sql("SELECT count(*) AS n FROM seen").first().n == 2  # type: ignore[union-attr]  # a count has a row

    text = error_of(lambda: spark.sql(f"CREATE TABLE kept USING tidelog {options}"))
    assert "Use CREATE TEMPORARY VIEW ... USING tidelog OPTIONS (...)" in text


@pytest.mark.parametrize("is_large", ["true", "false"])
@pytest.mark.extended
def test_rows_with_properties_are_written_whatever_arrow_types_spark_uses(
    spark: SparkSession, server: RunningServer, client: Client, channel: str, is_large: str
) -> None:
    rows: DataFrame = spark.createDataFrame(
        [(b"a", {"x": "1", "y": "2"}), (b"b", {}), (b"c", None)], "payload binary, properties map<string,string>"
    )
    before = spark.conf.get("spark.sql.execution.arrow.useLargeVarTypes")
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", is_large)
    try:
        writer = rows.coalesce(1).write.format("tidelog").mode("append").option("endpoint", server.endpoint)
        writer.save(channel)
    finally:
        spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", str(before))

    with client.scan([f"{channel}/0", f"{channel}/1"], until=tidelog.At.watermark()) as scan:
        found = {bytes(message.payload): dict(message.properties) for batch in scan for message in batch}
    assert found == {b"a": {"x": "1", "y": "2"}, b"b": {}, b"c": {}}


def test_what_users_of_kafka_write_is_answered_with_what_to_write_here(
    spark: SparkSession, server: RunningServer, channel: str
) -> None:
    asked = error_of(lambda: spark.read.format("tidelog").option("subscribe", channel).load())
    assert "no option 'subscribe': use 'channels', or 'channel' for one" in asked
    asked = error_of(lambda: spark.read.format("tidelog").option("kafka.bootstrap.servers", server.endpoint).load())
    assert "no option 'kafka.bootstrap.servers': use 'endpoint'" in asked
    asked = error_of(lambda: spark.read.format("tidelog").option("startingoffsets", "").load(channel).collect())
    assert "the option 'startingOffsets' is ''" in asked
    source = spark.read.format("tidelog").option("endpoint", server.endpoint)
    assert "has no column 'value': use 'payload'" in error_of(source.schema("value binary").load(channel).collect)

    rows = spark.createDataFrame([(b"a",)], "value binary")
    writer = rows.write.format("tidelog").mode("append").option("endpoint", server.endpoint)
    assert "write df.withColumnRenamed('value', 'payload')" in error_of(lambda: writer.save(channel))


@pytest.mark.parametrize("where", ["options", "plan", "task", "write"])
def test_an_error_is_one_sentence_at_the_beginning_of_sparks_text(
    spark: SparkSession, server: RunningServer, client: Client, channel: str, where: str
) -> None:
    client.append(f"{channel}/0", b"\xff")
    source = spark.read.format("tidelog").option("endpoint", server.endpoint)
    rows = spark.createDataFrame([(b"a",)], "payload binary")
    writer = rows.write.format("tidelog").mode("append").option("endpoint", server.endpoint)
    run, sentence = {
        "options": (lambda: source.option("startingtick", "x").load(channel), "the option 'startingTick' is 'x'"),
        "plan": (source.load("nowhere").collect, "channel 'nowhere' does not exist"),
        "task": (
            source.options(payloadFormat="string", mode="failfast").load(channel).collect,
            f"{channel}/0: the payload at tick",
        ),
        "write": (lambda: writer.save("nowhere"), "channel 'nowhere' does not exist"),
    }[where]
    text = error_of(run)
    assert sentence in text[:400]
    assert "Traceback" not in text


def test_several_paths_are_answered_with_the_option_for_several_channels(
    spark: SparkSession, server: RunningServer
) -> None:
    source = spark.read.format("tidelog").option("endpoint", server.endpoint)
    assert "use the option 'channels' for several" in error_of(lambda: source.load(["a", "b"]))


def test_a_message_of_a_large_map_is_the_one_of_a_small_map() -> None:
    import pyarrow as pa

    def columns(text: pa.DataType) -> object:
        kind = pa.map_(text, text)
        return tidelog.columns_from_arrow(
            pa.RecordBatch.from_arrays(
                [pa.array([b"a", b"b"]), pa.array([[("k", "v")], None], kind)], names=["payload", "properties"]
            )
        )

    assert columns(pa.large_string()) == columns(pa.string())
