"""Goal: payloads are decoded as text or as fields of JSON objects, and the bytes of all others are available.

Method: a real server and Spark, with a few messages each, some of which cannot be decoded.
"""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import spark_partition_id

from tidelog import Client
from tidelog_testing.documents.examples import ENDPOINT, examples_of, page, run_example
from tidelog_testing.spark.rows import error_of

pytestmark = pytest.mark.spark

Read = Callable[..., DataFrame]
FIELDS = (
    "id BIGINT, name STRING, rate FLOAT, price DECIMAL(8, 2), day DATE, at TIMESTAMP, raw BINARY, tags ARRAY<STRING>, "
    "inner STRUCT<ok: BOOLEAN, small: TINYINT>, counts MAP<STRING, INT>"
)
JSON = (
    b'{"id":1,"name":"\\u00fc","rate":0.5,"price":12.5,"day":"2026-03-01","at":"2026-03-01T12:00:00.25+01:00",'
    b'"raw":"eHg=","tags":["a",null],"inner":{"ok":true,"small":-128,"more":1},"counts":{"x":1},"more":{}}'
)
# As Spark returns it: without an offset, in the session's zone, which is UTC.
AT = datetime(2026, 3, 1, 11, 0, 0, 250_000, UTC).replace(tzinfo=None)
ROW = Row(
    id=1, name="ü", rate=0.5, price=Decimal("12.50"), day=date(2026, 3, 1), at=AT,
    raw=bytearray(b"xx"), tags=["a", None], inner=Row(ok=True, small=-128), counts={"x": 1},
)  # fmt: skip


def found(frame: DataFrame, *columns: str) -> list[Any]:
    return [tuple(row) for row in frame.orderBy("tick").select(*columns).collect()]


def test_text_is_a_string_and_what_is_none_is_null_and_told(client: Client, read: Read, channel: str) -> None:
    first = client.append(f"{channel}/1", ["ü".encode(), b"", b"a\xff"]).first_tick

    plain = read(channel, payloadFormat="string")
    told = read(channel, valueFormat="STRING", moreColumns="_corrupt_record")

    assert plain.schema["payload"].dataType.simpleString() == "string"
    assert plain.schema["payload"].nullable
    assert found(plain, "payload") == [("ü",), ("",), (None,)]
    assert found(told, "payload", "_corrupt_record") == [("ü", None), ("", None), (None, bytearray(b"a\xff"))]
    # Spark would not evaluate a filter that the source has accepted.
    pushing = read(channel, payloadFormat="string", pushFilters="true")
    assert found(pushing.where("payload IS NOT NULL"), "payload") == [("ü",), ("",)]
    failed = error_of(read(channel, payloadFormat="string", mode="failfast").collect)
    assert f"{channel}/1: the payload at tick {first + 2} is invalid UTF-8 at byte 1" in failed


def test_json_becomes_a_struct_of_any_types(client: Client, read: Read, channel: str) -> None:
    client.append(f"{channel}/0", [JSON, b"{}", b'{"id":"1"}'])
    client.append(f"{channel}/1", [b'{"id":2,"name":null}'] * 1_000)

    frame = read(channel, payloadFormat="json", payloadSchema=FIELDS, moreColumns="_corrupt_record,txn_id")

    assert frame.schema.names[-2:] == ["txn_id", "_corrupt_record"]
    nothing = Row(**dict.fromkeys(ROW.asDict()))
    assert found(frame.where("vchannel = 0"), "payload", "_corrupt_record") == [
        (ROW, None), (nothing, None), (None, bytearray(b'{"id":"1"}')),
    ]  # fmt: skip
    assert frame.where("payload.id = 2 AND payload.name IS NULL").count() == 1_000


def test_json_by_columns_reaches_spark_as_the_same_values(client: Client, read: Read, channel: str) -> None:
    client.append(f"{channel}/0", [JSON] * 200)

    names = ("id", "name", "rate", "day", "at", "raw", "tags")
    fields = "id BIGINT, name STRING, rate FLOAT, day DATE, at TIMESTAMP, raw BINARY, tags ARRAY<STRING>"
    frame = read(channel, payloadFormat="json", payloadSchema=fields, mode="failfast")

    assert not frame.schema["payload"].nullable
    assert frame.select("payload.*").distinct().collect() == [Row(**{name: ROW[name] for name in names})]


def test_the_schema_may_say_the_fields(client: Client, spark: SparkSession, channel: str) -> None:
    client.append(f"{channel}/0", [b'{"id":7}', b"[]"])
    source = spark.read.format("tidelog").option("endpoint", client.endpoint).option("payloadFormat", "json")

    frame = source.schema("tick BIGINT NOT NULL, payload STRUCT<id INT>, _corrupt_record BINARY").load(channel)

    assert found(frame, "payload.id", "_corrupt_record") == [(7, None), (None, bytearray(b"[]"))]
    failed = error_of(
        source.schema("tick BIGINT, payload STRUCT<id INT>").option("mode", "failfast").load(channel).collect
    )
    assert "is [], not a JSON object" in failed


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (None, {"payloadFormat": "json"}, "its fields are not set: set the option 'payloadSchema'"),
        (None, {"payloadFormat": "json", "payloadSchema": "a INTEGRAL"}, "INTEGRAL"),
        (None, {"payloadFormat": "json", "payloadSchema": "a TIMESTAMP_NTZ"},
         "'payload.a' is timestamp_ntz, unsupported for JSON"),
        (None, {"payloadFormat": "json", "payloadSchema": "a MAP<INT, INT>"},
         "'payload.a' is map<int,int>, unsupported for JSON"),
        (None, {"payloadFormat": "json", "payloadSchema": "a INT NOT NULL"}, "is NULL: remove NOT NULL"),
        ("payload STRING", {"payloadFormat": "json"}, "'payload' is a STRUCT<...>, not string"),
        ("payload STRING NOT NULL", {"payloadFormat": "string"}, "remove NOT NULL, or set the option mode"),
        ("_corrupt_record BINARY", {"payloadFormat": "string"}, "without 'payload', whose type it depends on"),
        ("_corrupt_record BINARY, payload BINARY", {}, "requires payloadFormat string or json"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(
    client: Client, spark: SparkSession, channel: str, schema: str | None, options: dict[str, str], message: str
) -> None:
    source = spark.read.format("tidelog").option("endpoint", client.endpoint).options(**options)

    def read_it() -> None:
        (source.schema(schema) if schema else source).load(channel).collect()

    assert message in error_of(read_it)


def test_the_examples_of_the_page_print_what_the_page_says(
    client: Client, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark  # The examples take the session that runs.

    run_example("spark/payloads.md", {ENDPOINT: client.endpoint})

    assert capsys.readouterr().out == "".join(examples_of(page("spark/payloads.md"), "text"))


def test_partitions_follow_sizes(client: Client, read: Read, channel: str) -> None:
    for _ in range(8):
        client.append(f"{channel}/0", [b"x" * 10_000] * 10)
    client.append(f"{channel}/1", [b"x"] * 1_000)

    frame = read(channel, minPartitions=1, maxBytesPerPartition="200k")

    # Two batches of 100,000 bytes each fit into a partition.
    assert Counter(row.vchannel for row in frame.select("vchannel", spark_partition_id()).distinct().collect()) == {
        0: 4, 1: 1,
    }  # fmt: skip
    assert read(channel, minPartitions=1).rdd.getNumPartitions() == 2
    assert frame.count() == 1_080
