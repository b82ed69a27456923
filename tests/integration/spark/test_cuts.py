"""Goal: a cut in Spark never has a part of a transaction while many transactions are written.

Method: producers move amounts between channels, one transaction per move. Meanwhile the channels are read as of
current and earlier ticks. The sum of each cut is zero, each transaction is complete, and a later read of the same cut
returns the same rows.

Promises of docs/reference/guarantees.md: G11, G22.
"""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import Row, SparkSession

from tidelog import Client
from tidelog_server.testing import RunningServer

pytestmark = pytest.mark.spark

PRODUCERS = 4
LARGE_EVERY = 40


class Bank:
    """Accounts, one per channel, and producers that move amounts between them."""

    def __init__(self, server: RunningServer, name: str) -> None:
        self._endpoint = server.endpoint
        self.channels = [f"{name}.{number}" for number in range(4)]
        self._stopped = threading.Event()
        self.moves = [0] * PRODUCERS
        self.failures: list[Exception] = []

    @contextmanager
    def open(self) -> Iterator[None]:
        with Client(self._endpoint) as client:
            for channel in self.channels:
                client.create_channel(channel, vchannels=2)
        threads = [threading.Thread(target=self._produce, args=(number,)) for number in range(PRODUCERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            for thread in threads:
                thread.join()

    def _produce(self, number: int) -> None:
        chance = random.Random(number)
        try:
            with Client(self._endpoint) as client:
                # A pause limits the amount of data to read.
                while not self._stopped.wait(0.005):
                    self._move(client, chance, is_large=self.moves[number] % LARGE_EVERY == 0)
                    self.moves[number] += 1
        except Exception as error:  # noqa: BLE001 - the test shows it
            self.failures.append(error)

    def _move(self, client: Client, chance: random.Random, *, is_large: bool) -> None:
        source, target = (f"{channel}/{chance.randrange(2)}" for channel in chance.sample(self.channels, 2))
        amount = chance.randrange(1, 1_000)
        with client.txn() as txn:
            txn.append(source, b"%d" % -amount)
            if is_large:
                # Large enough to be staged and to span many batches.
                txn.append(target, [b"0" + b" " * 50_000] * 30)
            txn.append(target, b"%d" % amount)


def read_cuts(spark: SparkSession, server: RunningServer, bank: Bank, reads: int) -> None:
    chance = random.Random(reads)
    source = spark.read.format("tidelog").option("endpoint", server.endpoint)
    source = source.option("channelPattern", bank.channels[0].rpartition(".")[0] + ".*").option("moreColumns", "txn_id")
    earlier: dict[int, Row] = {}
    with bank.open(), Client(server.endpoint) as client:
        last = 0
        for number in range(reads):
            is_old = bool(earlier) and number % 4 == 3
            tick = chance.choice(list(earlier)) if is_old else int(client.latest_mvcc_tick(f"{bank.channels[0]}/0"))
            frame = source.option("asOfTick", tick).load().selectExpr(
                "txn_id", "CAST(trim(CAST(payload AS STRING)) AS BIGINT) AS amount"
            )  # fmt: skip
            by_txn = frame.groupBy("txn_id").agg({"amount": "sum", "*": "count"}).toDF("txn_id", "sum", "messages")
            [row] = by_txn.selectExpr(
                "count(*) AS txns", "count_if(sum <> 0) AS torn", "count_if(messages NOT IN (2, 32)) AS parts",
                "coalesce(sum(messages), 0) AS messages", "coalesce(sum(hash(txn_id, sum)), 0) AS digest",
            ).collect()  # fmt: skip
            assert (row.torn, row.parts) == (0, 0), f"as of tick {tick}: {row}"
            if is_old:
                assert row == earlier[tick]
            else:
                assert row.txns >= last
                last = row.txns
            earlier[tick] = row
    assert bank.failures == []
    assert last > 0
    assert last <= sum(bank.moves)


def test_no_cut_tears_a_transaction(spark: SparkSession, server: RunningServer) -> None:
    read_cuts(spark, server, Bank(server, "bank-of-a-few"), 4)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
def test_fifty_cuts_tear_no_transaction(spark: SparkSession, server: RunningServer) -> None:
    read_cuts(spark, server, Bank(server, "bank-of-many"), 50)
