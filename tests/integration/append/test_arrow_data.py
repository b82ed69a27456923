"""Appends of tables: of pyarrow, pandas, Polars, DuckDB, and of what a scan delivers.

Method: append in every way, then scan and compare, of servers in this process.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest

from tidelog import AsyncClient, Client, InvalidRequestError, LastTickMismatchError, Message, ProducerStoppedError
from tidelog.testing import start_server
from tidelog.wire.columns import encode_messages
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import client_with
from tidelog_testing.parts.grpc_calls import running_server

client = client_with(orders=1, copy=1)

MESSAGES = [
    Message(b"a", key=b"k", type=1, properties={"x": "y", "z": "ü"}, event_time=datetime(1960, 1, 1, tzinfo=UTC)),
    Message(b"\xff\x00", type=4_000_000_000),
    Message(b"c", key=b""),
]
ROWS = pa.table({"payload": ["a", "b"], "key": ["k", None]})


@pytest.fixture
def blocking() -> Iterator[Client]:
    with start_server() as server, Client(server.endpoint) as client:
        for name in ("orders", "copy"):
            client.create_channel(name)
        yield client


def fields_of(batch: Any) -> list[tuple[object, ...]]:
    return [
        (each.payload, each.key, each.type, dict(each.properties), each.event_time and each.event_time)
        for each in batch
    ]


EXPECTED = fields_of(MESSAGES)


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        ROWS.to_batches()[0],
        ROWS.to_reader(),
        polars.DataFrame(ROWS),
        polars.DataFrame(ROWS).with_columns(polars.col("key").cast(polars.Categorical)),
        ROWS.to_pandas(),
        pandas.DataFrame({"payload": [b"a", b"b"], "key": [b"k", None]}),
        duckdb.sql("SELECT 'a'::BLOB AS payload, 'k' AS key UNION ALL SELECT 'b'::BLOB, NULL"),
        pa.concat_tables([ROWS.slice(0, 1), ROWS.slice(1)]),
    ],
    ids=["table", "batch", "reader", "polars", "categorical", "pandas", "objects", "duckdb", "chunks"],
)
async def test_what_every_library_makes_is_appended_as_one_batch(client: AsyncClient, data: Any) -> None:
    result = await client.append("orders", data)

    [batch] = [batch async for batch in client.scan("orders")]
    assert (batch.first_tick, batch.last_tick) == (result.first_tick, result.last_tick)
    assert [(message.payload, message.key) for message in batch] == [(b"a", b"k"), (b"b", None)]


@pytest.mark.parametrize(
    "convert",
    [
        lambda batch: batch,
        lambda batch: batch.columns,
        lambda batch: batch.to_arrow(),
        lambda batch: batch.to_polars(),
        lambda batch: pa.table(batch.to_arrow().to_pandas(), schema=batch.to_arrow().schema),
    ],
    ids=["batch", "columns", "arrow", "polars", "pandas"],
)
async def test_what_a_scan_delivers_is_appended_as_it_was(client: AsyncClient, convert: Any) -> None:
    await client.append("orders", MESSAGES)
    [batch] = [batch async for batch in client.scan("orders")]

    await client.append("copy", convert(batch))
    async with client.producer("copy") as producer:
        await producer.send_many(convert(batch))
    async with client.txn() as txn:
        await txn.append("copy", convert(batch))

    copies = [fields_of(each) async for each in client.scan("copy")]
    assert copies == [EXPECTED] * 3


async def test_conditions_and_numbers_apply_to_a_table(client: AsyncClient) -> None:
    first = await client.append("orders", ROWS, expected_last_tick=0)
    with pytest.raises(LastTickMismatchError):
        await client.append("orders", ROWS, expected_last_tick=0)
    await client.append("orders", encode_messages(MESSAGES), expected_last_tick=first.last_tick)

    batches = [fields_of(each) async for each in client.scan("orders")]
    assert [payload for payload, *_ in batches[0]] == [b"a", b"b"]
    assert batches[1:] == [EXPECTED]


async def test_a_producer_divides_a_table_of_any_size_and_keeps_the_order(client: AsyncClient) -> None:
    rows = [b"%d" % i for i in range(60_000)]
    table = pa.table({"payload": pa.chunked_array([rows[:7], rows[7:10_000], rows[10_000:]], pa.binary())})

    async with client.producer("orders", max_batch_bytes=100_000, max_in_flight_bytes=200_000) as producer:
        ticket = await producer.send(b"before")
        await producer.send_many(table)
        await producer.send_many(table.slice(0, 0))
        await producer.send(b"after")
        assert (await ticket).first_tick

    assert await payloads(client, "orders") == [b"before", *rows, b"after"]
    sizes = [(len(batch), batch.columns.size_bytes) async for batch in client.scan("orders")]
    assert max(size for _, size in sizes) <= 100_000
    assert len(sizes) < 20


async def test_a_transaction_takes_a_table_of_any_size_atomically(client: AsyncClient) -> None:
    rows = [b"%d" % i for i in range(25_000)]
    async with client.txn() as txn:
        await txn.append("orders", b"before")
        await txn.append("orders", pa.table({"payload": rows}))
        await txn.append("orders", b"after")
        assert await payloads(client, "orders") == []

    assert await payloads(client, "orders") == [b"before", *rows, b"after"]
    assert len({batch.txn_id async for batch in client.scan("orders")}) == 1


async def test_conditions_of_a_transaction_apply_to_a_table(client: AsyncClient) -> None:
    await client.append("orders", b"first")
    with pytest.raises(LastTickMismatchError):
        async with client.txn() as txn:
            await txn.append("orders", ROWS, expected_last_tick=0)
    assert await payloads(client, "orders") == [b"first"]


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (pa.table({"value": ["a"]}), "no column 'payload', only"),
        (pa.table({"payload": [1]}), "'payload' is int64, expected binary or string"),
        (pa.table({"payload": ["a", None]}), "1 NULLs in 2 rows"),
        (pa.table({"payload": pa.array([], pa.binary())}), "the table has no rows"),
        (pa.table({"payload": ["a"], "properties": [[1]]}), "'properties' is list.*expected map<string, string>"),
        (pa.table({"payload": ["a"], "event_time": pa.array([0], pa.timestamp("us"))}), "timestamp with a time zone"),
        (pa.array([b"a"]), "the table cannot be appended"),
    ],
    ids=["no payload", "numbers", "nulls", "empty", "properties", "naive", "array"],
)
async def test_what_is_no_message_is_refused_and_nothing_is_appended(
    client: AsyncClient, data: Any, match: str
) -> None:
    with pytest.raises(InvalidRequestError, match=match):
        await client.append("orders", data)
    txn = client.txn()
    with pytest.raises(InvalidRequestError, match=match):
        await txn.append("orders", data)
    await txn.rollback()
    assert await payloads(client, "orders") == []


async def test_an_append_of_more_than_a_batch_says_what_takes_it(client: AsyncClient) -> None:
    table = pa.table({"payload": [b""] * 10_001})
    with pytest.raises(InvalidRequestError, match=r"more than 10000 rows.*producer.send_many\(table\).*txn.append"):
        await client.append("orders", table)
    with pytest.raises(
        TypeError, match="append expects bytes, a Message, a list of them or an object of Arrow, got int"
    ):
        await client.append("orders", 1)  # type: ignore[arg-type]  # The error is tested.


async def test_an_error_names_the_row_of_the_whole_table(client: AsyncClient) -> None:
    table = pa.table({"payload": [b""] * 30_000, "type": pa.array([0] * 29_999 + [1 << 40])})
    async with client.producer("orders") as producer:
        with pytest.raises(InvalidRequestError, match=f"the type of row 29999 is {1 << 40}"):
            await producer.send_many(table)
        await producer.send(b"the producer continues")


async def test_a_payload_that_the_server_refuses_for_its_size_is_left_out() -> None:
    async with (
        running_server(limits__max_message_bytes=1_000) as server,
        AsyncClient(server.grpc_endpoint) as client,
    ):
        await client.create_channel("orders")
        async with client.producer("orders") as producer:
            await producer.send_many(pa.table({"payload": [b"a", b"x" * 1_001, b"b"], "key": [b"1", b"2", None]}))
            await producer.send(b"c")
            with pytest.raises(InvalidRequestError, match="has 1001 bytes, the server takes at most 1000"):
                await producer.flush()
        assert await payloads(client, "orders") == [b"a", b"b", b"c"]


async def test_a_row_beyond_another_limit_stops_the_producer(client: AsyncClient) -> None:
    producer = client.producer("orders")
    await producer.send_many(pa.table({"payload": [b"a"], "key": [b"k" * 2_000]}))
    with pytest.raises(InvalidRequestError, match="key"):
        await producer.flush()
    with pytest.raises(ProducerStoppedError):
        await producer.send(b"b")


def test_the_synchronous_client_takes_tables_and_its_own_scans(blocking: Client) -> None:
    rows = [b"%d" % i for i in range(30_000)]
    with blocking.producer("orders") as producer:
        producer.send_many(pa.table({"payload": rows}))
    # A scan is read in the event loop that appends: none waits for the other.
    with blocking.producer("copy") as producer:
        producer.send_many(blocking.scan("orders"))
    with blocking.txn() as txn:
        txn.append("copy", blocking.scan("orders"))
        txn.append("copy", polars.DataFrame({"payload": ["last"]}))
    blocking.channel("copy").append(next(blocking.scan("orders")))

    found = [payload for batch in blocking.scan("copy") for payload in batch.payloads]
    assert found[:60_001] == [*rows, *rows, b"last"]
    assert found[60_001:] == rows[: len(found) - 60_001]


async def test_an_asynchronous_client_appends_the_scan_of_a_synchronous_one() -> None:
    with start_server() as server, Client(server.endpoint) as other:
        async with AsyncClient(server.endpoint) as client:
            for name in ("orders", "copy"):
                await client.create_channel(name)
            await client.append("orders", MESSAGES)

            await client.append("copy", other.scan("orders"))

            assert [fields_of(each) async for each in client.scan("copy")] == [EXPECTED]


async def test_a_table_is_divided_among_vchannels_by_key(client: AsyncClient) -> None:
    await client.create_channel("wide", vchannels=4)
    keys = [b"%d" % (i % 50) for i in range(5_000)]
    table = pa.table({"payload": [b"%d" % i for i in range(5_000)], "key": keys})

    await client.append("wide", table)
    async with client.producer("wide") as producer:
        await producer.send_many(table)
    async with client.txn() as txn:
        await txn.append("wide", table)
    await client.append("wide", [Message(b"m", key=key) for key in keys[:50]])

    homes: dict[bytes | None, set[str]] = {}
    count = 0
    async for batch in client.scan("wide"):
        count += len(batch)
        for key in batch.keys:
            homes.setdefault(key, set()).add(batch.vchannel)
    assert count == 15_050
    assert {len(each) for each in homes.values()} == {1}


async def test_each_piece_of_a_table_has_the_partitioner_of_the_call(client: AsyncClient) -> None:
    await client.create_channel("wide", vchannels=3)
    async with client.txn() as txn:
        table = pa.table({"payload": [b""] * 30_000, "key": [b"k"] * 30_000})
        await txn.append("wide", table, partitioner=lambda _, vchannels: vchannels - 1)

    assert {batch.vchannel async for batch in client.scan("wide")} == {"wide/2"}
