"""A key has one vchannel, however it is appended: by the command line, a producer, a transaction or Spark.

Method: the numbers of ``seq``, with and without keys, to a channel with four vchannels on a real server.
"""

from collections import Counter
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from tidelog import Client, Message, partition_keys
from tidelog_server.testing import RunningServer
from tidelog_testing.parts.soaks import soak
from tidelog_testing.servers.commands import Commands, records

pytestmark = pytest.mark.spark

VCHANNELS = 4
# Of messages: what a batch of the client and of Spark has at most.
_BATCH = 10_000
succeeds = Commands().succeeds
Append = Callable[[str, int, bool], None]


def messages(count: int, *, has_keys: bool) -> list[Message | bytes]:
    numbers = [b"%d" % number for number in range(1, count + 1)]
    return [Message(number, key=number) for number in numbers] if has_keys else [*numbers]


@pytest.fixture
def ways(server: RunningServer, client: Client, spark: SparkSession) -> dict[str, Append]:
    def by_command(channel: str, count: int, has_keys: bool) -> None:
        lines = b"".join(b"%d:%d\n" % (n, n) if has_keys else b"%d\n" % n for n in range(1, count + 1))
        options = ("--partition-key-delim", ":") if has_keys else ()
        appended = records(succeeds(server.endpoint, "append", channel, *options, stdin=lines))
        assert [record["vchannel"] for record in appended] == [f"{channel}/{index}" for index in range(VCHANNELS)]
        assert sum(record["messages"] for record in appended) == count

    def by_client(channel: str, count: int, has_keys: bool) -> None:
        with client.channel(channel).producer() as producer:
            producer.send_many(messages(count, has_keys=has_keys))

    def by_transaction(channel: str, count: int, has_keys: bool) -> None:
        with client.txn() as txn:
            txn.append(channel, messages(count, has_keys=has_keys))

    def by_spark(channel: str, count: int, has_keys: bool) -> None:
        frame = spark.range(1, count + 1, 1, 2).selectExpr("CAST(id AS STRING) AS payload")
        frame = frame.selectExpr("payload", "payload AS key") if has_keys else frame
        writer = frame.write.format("tidelog").mode("append").option("endpoint", server.endpoint)
        writer.save(channel)

    return {"command": by_command, "client": by_client, "transaction": by_transaction, "Spark": by_spark}


@pytest.mark.parametrize("count", [100_000, soak(1_000_000, timeout_s=1_800)])
@pytest.mark.parametrize("has_keys", [True, False])
def test_seq_is_balanced_and_a_key_has_one_vchannel(
    client: Client, ways: dict[str, Append], channel: str, count: int, has_keys: bool
) -> None:
    share = count // VCHANNELS
    numbers = [b"%d" % number for number in range(1, count + 1)]
    homes = dict(zip(numbers, partition_keys(numbers, VCHANNELS), strict=True))
    for way, append in ways.items():
        name = f"{channel}.{way.lower()}"
        client.create_channel(name, vchannels=VCHANNELS)
        append(name, count, has_keys)

        counts: Counter[str] = Counter()
        found: set[bytes] = set()
        for batch in client.scan(name):
            counts[batch.vchannel] += len(batch)
            found.update(batch.payloads)
            if has_keys:
                index = int(batch.vchannel.rpartition("/")[2])
                assert all(homes[payload] == index for payload in batch.payloads), way
        assert found == set(numbers), way
        assert sum(counts.values()) == count, way
        # Without keys, vchannels differ by a batch of each writer at most: two tasks of Spark, one of the others.
        tolerance = 0.05 * share if has_keys or share >= 20 * _BATCH else 2 * _BATCH
        assert all(abs(counts[f"{name}/{index}"] - share) <= tolerance for index in range(VCHANNELS)), (way, counts)
        client.destroy_channels([name])
