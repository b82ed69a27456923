"""Goal: the rows that Spark receives are the appended messages, for all combinations of columns in their batches.

Method: hypothesis draws messages, the client's codec packs them into entries, and their record batch is compared with
the messages, row by row. Arrow validates the whole batch.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tidelog import Batch, Message
from tidelog.spark import SCHEMA
from tidelog.spark.payload_options import PayloadFormat
from tidelog.spark.read.arrow import to_record_batch
from tidelog.spark.read.payloads import Payloads
from tidelog.spark.source import MORE
from tidelog.wire.columns import encode_messages

ARROW_SCHEMA = to_arrow_schema(SCHEMA, timezone="UTC")
BASE_TICK = 1_700_000_000_000 << 18
EPOCH = datetime.fromtimestamp(0, UTC)


def a_batch(messages: list[Message], base_tick: int = BASE_TICK) -> Batch:
    return Batch("orders/3", encode_messages(messages), range(base_tick, base_tick + len(messages)))


def messages() -> st.SearchStrategy[Message]:
    texts = st.text(max_size=3)
    return st.builds(
        Message,
        payload=st.binary(max_size=4),
        key=st.none() | st.binary(max_size=3),
        type=st.sampled_from([0, 1, 7, (1 << 31) - 1]),
        properties=st.dictionaries(texts, texts, max_size=2),
    )


def test_columns_on_request_tell_transaction_and_broadcast_or_nothing() -> None:
    plain = a_batch([Message(b"a"), Message(b"b")])
    columns = encode_messages([Message(b"c")])
    of_txn = Batch("orders/3", columns, range(BASE_TICK + 2, BASE_TICK + 3), txn_id=(1 << 63) - 1)
    of_broadcast = Batch("orders/3", columns, range(BASE_TICK + 3, BASE_TICK + 4), broadcast_id=7)

    rows = rows_of([plain, of_txn, of_broadcast], to_arrow_schema(StructType(MORE.fields[:2]), timezone="UTC"))

    assert [(row["txn_id"], row["broadcast_id"]) for row in rows] == [
        (None, None), (None, None), ((1 << 63) - 1, None), (None, 7),
    ]  # fmt: skip


def expected_row(message: Message, tick: int) -> dict[str, Any]:
    return {
        "channel": "orders",
        "vchannel": 3,
        "tick": tick,
        "timestamp": EPOCH + timedelta(milliseconds=tick >> 18),
        "type": message.type,
        "key": message.key,
        "payload": message.payload,
        "properties": list(message.properties.items()),
    }


def rows_of(batches: Sequence[Batch], schema: pa.Schema = ARROW_SCHEMA) -> list[dict[str, Any]]:
    rows = to_record_batch(batches, schema, Payloads(PayloadFormat(), schema))
    rows.validate(full=True)
    assert rows.schema == schema
    listed: list[dict[str, Any]] = rows.to_pylist()
    return listed


@given(st.lists(st.lists(messages(), min_size=1, max_size=20), min_size=1, max_size=4))
def test_rows_are_the_messages_in_tick_order(appended: list[list[Message]]) -> None:
    batches = [a_batch(several, BASE_TICK + 1_000_000 * i) for i, several in enumerate(appended)]

    rows = rows_of(batches)

    assert rows == [
        expected_row(message, tick)
        for batch, several in zip(batches, appended, strict=True)
        for tick, message in zip(batch.ticks, several, strict=True)
    ]
    assert all(before["tick"] < after["tick"] for before, after in pairwise(rows))


def test_ticks_of_a_filtered_batch_are_taken_as_they_are() -> None:
    ticks = [BASE_TICK, BASE_TICK + 5, BASE_TICK + (1 << 32) - 1]
    batch = Batch("orders/3", encode_messages([Message(b"x")] * 3), ticks)

    assert [row["tick"] for row in rows_of([batch])] == ticks


def test_types_of_two_to_the_31_and_above_are_negative() -> None:
    uniform = a_batch([Message(b"", type=(1 << 32) - 1)])
    mixed = a_batch([Message(b"", type=1 << 31), Message(b"", type=1)], BASE_TICK + 9)

    assert [row["type"] for row in rows_of([uniform, mixed])] == [-1, -(1 << 31), 1]


def test_only_the_columns_asked_for_are_made() -> None:
    schema = pa.schema([ARROW_SCHEMA.field("payload"), ARROW_SCHEMA.field("tick")])

    assert rows_of([a_batch([Message(b"x")])], schema) == [{"payload": b"x", "tick": BASE_TICK}]
