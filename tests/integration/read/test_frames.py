"""Scans as tables of pyarrow, pandas, Polars and DuckDB.

Method: a real server, the libraries themselves, and the messages that were appended.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tidelog import (
    AsyncClient,
    At,
    Batch,
    Client,
    ClosedError,
    FrameTooLargeError,
    Message,
    Scan,
    arrow_from_batches,
    arrow_schema,
    columns_from_arrow,
)
from tidelog.read.frames import MAX_FRAME_BYTES
from tidelog.testing import start_server

NAMES = [
    "channel", "vchannel", "tick", "timestamp", "type", "key", "payload", "properties", "txn_id", "broadcast_id",
    "event_time",
]  # fmt: skip
MESSAGES: list[Message | bytes] = [
    Message(b"a", key=b"k", type=1, properties={"x": "y", "z": "ü"}, event_time=datetime(1960, 1, 1, tzinfo=UTC)),
    Message(b"\xff\x00", type=4_000_000_000),
    b"c",
]
EXPECTED = {
    "type": [1, 4_000_000_000 - (1 << 32), 0],
    "key": [b"k", None, None],
    "payload": [b"a", b"\xff\x00", b"c"],
    "event_time": [datetime(1960, 1, 1, tzinfo=UTC), None, None],
}


@pytest.fixture
def client() -> Iterator[Client]:
    with start_server() as server, Client(server.endpoint) as client:
        client.create_channel("orders", vchannels=2)
        yield client


@pytest.fixture
def scan(client: Client) -> Scan:
    client.append("orders/1", MESSAGES)
    return client.scan("orders")


def many(client: Client, count: int = 30_000) -> list[bytes]:
    """Append more messages than one record batch has, to both vchannels, in batches of odd sizes."""
    payloads = [b"%d" % i for i in range(count)]
    begin, size = 0, 1
    while begin < count:
        client.append(f"orders/{size % 2}", payloads[begin : begin + size])
        begin, size = begin + size, min(size * 2 + 1, 10_000)
    return payloads


def test_a_table_has_every_column_of_every_message(client: Client, scan: Scan) -> None:
    table = scan.to_arrow()

    assert table.schema == arrow_schema()
    assert table.schema.names == NAMES
    table.validate(full=True)
    [batch] = client.scan("orders")
    assert table.column("channel").to_pylist() == ["orders"] * 3
    assert table.column("vchannel").to_pylist() == [1] * 3
    assert table.column("tick").to_pylist() == list(batch.ticks)
    assert table.column("timestamp").to_pylist() == [message.tick.time for message in batch]
    assert {name: table.column(name).to_pylist() for name in EXPECTED} == EXPECTED
    assert table.column("properties").to_pylist() == [[("x", "y"), ("z", "ü")], [], []]
    assert columns_from_arrow(table.combine_chunks().to_batches()[0]).crc32c == batch.columns.crc32c


@pytest.mark.parametrize(
    "convert",
    [
        lambda scan: scan.to_arrow(),
        pa.table,
        lambda scan: scan.to_arrow_reader().read_all(),
        lambda scan: polars.DataFrame(scan).to_arrow(),
        lambda scan: scan.to_polars().to_arrow(),
        lambda scan: polars.from_arrow(scan.to_arrow_reader().read_all()).to_arrow(),
        lambda scan: pa.table(duckdb.sql("FROM scan ORDER BY tick")),
        lambda scan: pa.Table.from_pandas(scan.to_pandas()[["tick", "payload"]]),
    ],
    ids=["to_arrow", "pyarrow", "reader", "polars", "to_polars", "from_arrow", "duckdb", "to_pandas"],
)
def test_every_library_reads_the_same(client: Client, convert: Any) -> None:
    payloads = many(client)

    table = convert(client.scan("orders"))

    assert [bytes(each) for each in table.column("payload").to_pylist()] == payloads
    ticks = table.column("tick").to_pylist()
    assert ticks == sorted(ticks)
    assert ticks == [tick for batch in client.scan("orders") for tick in batch.ticks]


def test_polars_and_duckdb_have_the_fields(scan: Scan, client: Client) -> None:
    frame = polars.DataFrame(scan)
    assert {name: frame[name].to_list() for name in EXPECTED} == EXPECTED
    assert dict(frame["properties"].to_list()[0]) == {"x": "y", "z": "ü"}
    again = client.scan("orders")  # noqa: F841 - DuckDB finds it by its name
    assert duckdb.execute("SELECT properties['x'], payload FROM again WHERE key = 'k'::BLOB").fetchall() == [
        ("y", b"a")
    ]


def test_pandas_has_the_fields(scan: Scan) -> None:
    frame = scan.to_pandas()
    assert list(frame.columns) == NAMES
    assert list(frame["payload"]) == EXPECTED["payload"]
    assert str(frame["timestamp"].dtype) == "datetime64[us, UTC]"


def test_chosen_columns_come_in_their_order(client: Client) -> None:
    client.append("orders/0", MESSAGES)
    scan = client.scan("orders")

    table = scan.to_arrow(columns=["key", "tick"])

    assert table.schema.names == ["key", "tick"]
    assert table.column("key").to_pylist() == EXPECTED["key"]
    for wrong in (["nothing"], [], ["tick", "tick"]):
        with pytest.raises(ValueError, match="choose from channel, vchannel"):
            client.scan("orders").to_arrow(columns=wrong)


def test_a_requested_schema_selects_and_casts_columns(client: Client) -> None:
    client.append("orders/0", [b"a", Message(b"b", key=b"k")])
    wanted = pa.schema([("payload", pa.string()), ("key", pa.large_binary())])

    table = pa.table(client.scan("orders"), schema=wanted)

    assert table.schema == wanted
    assert table.to_pydict() == {"payload": ["a", "b"], "key": [None, b"k"]}
    [batch] = client.scan("orders")
    assert pa.record_batch(batch, schema=wanted).to_pydict() == table.to_pydict()
    with pytest.raises(ValueError, match="no column 'nothing'"):
        pa.table(client.scan("orders"), schema=pa.schema([("nothing", pa.string())]))


def test_an_empty_scan_is_an_empty_table_with_all_columns(client: Client) -> None:
    assert client.scan("orders").to_arrow().schema == arrow_schema()
    assert polars.DataFrame(client.scan("orders")).columns == NAMES
    assert len(client.scan("orders").to_pandas()) == 0


def test_a_batch_is_an_arrow_array(client: Client) -> None:
    client.append("orders/0", MESSAGES)
    [batch] = client.scan("orders")

    assert pa.record_batch(batch) == batch.to_arrow()
    assert batch.to_polars().to_dicts() == polars.DataFrame(batch.to_arrow()).to_dicts()
    assert list(batch.to_pandas()["payload"]) == EXPECTED["payload"]
    assert batch.to_arrow(["payload"]).schema.names == ["payload"]


def test_one_batch_is_not_copied(client: Client) -> None:
    client.append("orders/0", [Message(b"a", key=b"k"), b"bc"])
    [batch] = client.scan("orders")

    rows = batch.to_arrow()

    assert rows.column("payload").buffers()[2].address == pa.py_buffer(batch.columns.payloads).address
    assert rows.column("key").buffers()[2].address == pa.py_buffer(batch.columns.keys).address
    # The response would stay in memory for the keys alone.
    assert batch.to_arrow(["key"]).column("key").buffers()[2].address != pa.py_buffer(batch.columns.keys).address


def test_batches_of_all_kinds_are_joined(client: Client) -> None:
    with client.txn() as txn:
        txn.append("orders/0", [Message(b"t", key=b"k", type=3)])
        txn.append("orders/1", b"u")
    client.broadcast(["orders/0", "orders/1"], Message(b"b", properties={"p": "q"}))
    client.append("orders/0", Message(b"e", event_time=datetime(2020, 1, 1, tzinfo=UTC)))
    batches = list(client.scan("orders"))

    rows = arrow_from_batches(batches)

    rows.validate(full=True)
    assert rows.to_pylist() == [row for batch in batches for row in batch.to_arrow().to_pylist()]
    assert rows.column("vchannel").to_pylist() == [0, 1, 0, 1, 0]
    assert rows.column("txn_id").null_count == 3
    assert rows.column("broadcast_id").null_count == 3
    with pytest.raises(ValueError, match="no batches"):
        arrow_from_batches([])


def test_a_table_beyond_its_limit_is_refused_and_nothing_counts_as_delivered(client: Client) -> None:
    payloads = many(client)
    whole = client.scan("orders").to_arrow()
    scan = client.scan("orders")
    first = next(scan)
    before = dict(scan.positions)

    with pytest.raises(
        FrameTooLargeError, match=r"exceeds 10000 bytes at tick \d+ of orders/\d: read fewer"
    ) as refused:
        scan.to_arrow(max_bytes=10_000)

    assert refused.value.values["max_bytes"] == "10000"
    assert dict(scan.positions) == before
    with pytest.raises(ClosedError):
        scan.to_arrow()
    rest = client.scan("orders", start=before).to_arrow()
    assert [*first.payloads, *rest.column("payload").to_pylist()] == payloads
    assert client.scan("orders").to_arrow(max_bytes=whole.nbytes).num_rows == len(payloads)
    with pytest.raises(ValueError, match="max_bytes is 0"):
        client.scan("orders").to_arrow(max_bytes=0)


def test_a_stream_beyond_its_limit_says_what_to_do(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    many(client)
    monkeypatch.setattr("tidelog.sync.scan.MAX_FRAME_BYTES", 10_000)

    with pytest.raises(Exception, match=r"exceeds 10000 bytes.*to_arrow_reader"):
        pa.table(client.scan("orders"))
    with pytest.raises(Exception, match=r"exceeds 10000 bytes.*to_arrow_reader"):
        polars.DataFrame(client.scan("orders"))
    scan = client.scan("orders")
    with pytest.raises(Exception, match=r"exceeds 10000 bytes.*to_arrow_reader"):
        duckdb.execute("SELECT count(payload) FROM scan").fetchall()
    assert scan.positions
    reader = client.scan("orders").to_arrow_reader(["payload"])  # noqa: F841 - as above
    assert duckdb.execute("SELECT count(payload) FROM reader").fetchall() == [(30_000,)]
    assert MAX_FRAME_BYTES == 1 << 30


def test_a_scan_that_never_ends_is_no_table(client: Client) -> None:
    for convert in (pa.table, polars.DataFrame, Scan.to_arrow, Scan.to_pandas, Scan.to_polars, Scan.to_arrow_reader):
        with pytest.raises(ValueError, match=r"follows the log and never ends.*until=At\.watermark"):
            convert(client.scan("orders", until=At.follow()))


def test_a_scan_is_a_table_once(client: Client) -> None:
    many(client)
    read = client.scan("orders")
    assert read.to_arrow().num_rows == 30_000
    # The rest of a stream that was given up is not the whole.
    begun = client.scan("orders")
    assert duckdb.execute("SELECT payload FROM begun LIMIT 1").fetchall() == [(b"0",)]
    for scan in (read, begun):
        with pytest.raises(ClosedError, match="were read before: start another scan"):
            scan.to_arrow()
        with pytest.raises(ClosedError, match="were read before"):
            polars.DataFrame(scan)


def test_a_table_of_a_scan_that_was_iterated_has_the_rest(client: Client) -> None:
    client.append("orders/0", b"a")
    client.append("orders/0", b"b")
    with client.scan("orders") as scan:
        assert next(scan).payloads == [b"a"]
        assert scan.to_arrow().column("payload").to_pylist() == [b"b"]


def test_filters_by_key_apply_to_tables(client: Client) -> None:
    client.append("orders/0", [Message(b"%d" % i, key=b"%d" % (i % 10)) for i in range(5_000)])

    table = client.scan("orders", key=b"7").to_arrow()

    assert table.num_rows == 500
    assert pc.all(pc.equal(table.column("key"), b"7")).as_py()


async def test_an_asynchronous_scan_has_the_same_tables_and_no_stream() -> None:
    with start_server() as server:
        async with AsyncClient(server.endpoint) as client:
            await client.create_channel("orders")
            await client.append("orders", MESSAGES)

            table = await client.scan("orders").to_arrow()

            assert {name: table.column(name).to_pylist() for name in EXPECTED} == EXPECTED
            assert (await client.scan("orders").to_polars())["payload"].to_list() == EXPECTED["payload"]
            assert list((await client.scan("orders").to_pandas())["payload"]) == EXPECTED["payload"]
            for convert in (pa.table, polars.DataFrame):
                with pytest.raises(TypeError, match=r"block the event loop: use `await scan.to_arrow\(\)`"):
                    convert(client.scan("orders"))


async def test_a_table_that_was_cancelled_leaves_the_scan_closed_and_its_positions() -> None:
    with start_server() as server:
        async with AsyncClient(server.endpoint) as client:
            await client.create_channel("orders")
            ticks = [(await client.append("orders", b"%d" % i)).first_tick for i in range(3)]
            # An end in the future: the scan waits for it.
            scan = client.scan("orders", start=ticks[1], until=At.time(4_000_000_000_000))
            reading = asyncio.create_task(scan.to_arrow())
            await scan.caught_up.wait()

            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading

            with pytest.raises(ClosedError):
                await scan.to_arrow()
            assert scan.positions == {"orders/0": ticks[1] - 1}


def test_without_a_library_the_error_says_how_to_install_it() -> None:
    program = """
import sys
for name in ("pyarrow", "pandas", "polars"):
    sys.modules[name] = None
from tidelog import Batch, columns_from_arrow
from tidelog.wire.columns import encode_payloads
batch = Batch("orders/0", encode_payloads([b"a"]), range(1, 2))
calls = (batch.to_arrow, batch.to_pandas, batch.to_polars, batch.__arrow_c_array__, lambda: columns_from_arrow(None))
for call in calls:
    try:
        call()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    arrow = "this needs pyarrow: run `pip install '.[arrow]'` in a clone of Tidelog"
    assert done.stdout.splitlines() == [
        arrow, "this needs pandas: run `pip install pandas`", "this needs polars: run `pip install polars`",
        arrow, arrow,
    ]  # fmt: skip


def test_a_batch_of_gaps_has_its_ticks() -> None:
    batch = Batch("orders/3", columns_from_arrow(pa.record_batch({"payload": [b"a", b"b"]})), [5, 9])
    assert batch.to_arrow(["tick", "vchannel"]).to_pydict() == {"tick": [5, 9], "vchannel": [3, 3]}
