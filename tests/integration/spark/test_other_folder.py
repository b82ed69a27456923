"""A job that was planned at one server continues at the next one, which has nothing but the log of both.

Method: a server on a log in a folder is killed while tasks are in the middle of their splits and others have not begun.
The next one, at the same address, starts in another data folder. Nothing is repeated by Spark: a task that fails fails
the job.

Promises of docs/reference/guarantees.md: G10, G11.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tidelog import Client
from tidelog_testing.servers.on_folder import Owners
from tidelog_testing.spark.rows import load

pytestmark = pytest.mark.spark
_WITHIN_S = 120.0
_BATCHES, _MESSAGES, _BYTES = 20, 25, 10_000


def test_a_read_goes_on_while_the_server_moves_to_another_folder(spark: SparkSession, tmp_path: Path) -> None:
    begun, moved = str(tmp_path / "begun"), str(tmp_path / "moved")

    def hold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            Path(begun).touch()
            while not Path(moved).exists():
                time.sleep(0.02)
            yield batch

    def move() -> None:
        end_s = time.monotonic() + _WITHIN_S
        while not Path(begun).exists() and time.monotonic() < end_s:
            time.sleep(0.02)
        owners.move()
        with Client(owners.server.grpc) as other:
            other.append("orders/0", b"behind the plan")
        Path(moved).touch()

    with Owners(tmp_path) as owners, Client(owners.server.grpc) as client:
        client.create_channel("orders", vchannels=2)
        sent = {(index, number) for index in range(2) for number in range(_BATCHES * _MESSAGES)}
        for index in range(2):
            for first in range(0, _BATCHES * _MESSAGES, _MESSAGES):
                batch = [b"%d " % number + bytes(_BYTES) for number in range(first, first + _MESSAGES)]
                client.append(f"orders/{index}", batch)
        frame = load(spark, {"endpoint": owners.server.grpc, "channel": "orders"}, minPartitions=6)
        before = owners.view
        moving = threading.Thread(target=move)
        moving.start()
        rows = frame.mapInArrow(hold, frame.schema).select("vchannel", "payload").collect()
        moving.join()
        assert owners.view != before
        assert frame.rdd.getNumPartitions() >= 6

    found = [(row.vchannel, int(bytes(row.payload).split()[0])) for row in rows]
    assert len(found) == len(sent)
    assert set(found) == sent
