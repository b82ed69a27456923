"""Goal: one query reads channels of several nodes as one cut, from any endpoint, and a write finds the owner.

Method: two real nodes on a real etcd, each of which owns some channels, and the Spark session of the other tests.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tidelog import Client, Cluster
from tidelog.spark import SCHEMA
from tidelog.spark.options import parse_options
from tidelog.spark.payload_options import PayloadFormat
from tidelog.spark.read.partition import ReadPartition
from tidelog.spark.read.plan import plan
from tidelog.spark.read.pushdown import Pushdown
from tidelog.spark.read.reader import read_partition
from tidelog.spark.stream.options import parse_stream_options
from tidelog.spark.stream.reader import TidelogStreamReader
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.spark.rows import payloads

pytestmark = pytest.mark.spark

NAMES = ("shop.a", "shop.b", "shop.c", "shop.d")


@pytest.fixture(scope="module")
def cluster(nodes: ClusterOfProcesses) -> Iterator[Cluster]:
    with Cluster([node.grpc for node in nodes.nodes.values()]) as opened:
        opened.create_channels(NAMES, vchannels=2)
        assert {opened.owner_of(name).node_id for name in NAMES} == {"n1", "n2"}
        yield opened


def append_everywhere(cluster: Cluster, text: str) -> list[int]:
    """Append one message to each channel, and return the ticks."""
    return [cluster.vchannel(f"{name}/1").append(f"{text}{name}".encode()).last_tick for name in NAMES]


def read(spark: SparkSession, endpoint: str, **options: object) -> DataFrame:
    return spark.read.format("tidelog").option("endpoint", endpoint).options(**options).load()  # type: ignore[arg-type]  # numbers work, too


def of(text: str) -> list[str]:
    return [f"{text}{name}" for name in NAMES]


def test_a_write_finds_the_node_that_has_its_channel(
    nodes: ClusterOfProcesses, cluster: Cluster, spark: SparkSession
) -> None:
    endpoints = ",".join(node.grpc for node in nodes.nodes.values())
    names = ("written.a", "written.b", "written.c")
    cluster.create_channels(names)
    assert len({cluster.owner_of(name).node_id for name in names}) == 2
    rows = spark.sql("SELECT 'x' AS payload")
    for name in names:
        for _ in range(2):
            write = rows.write.format("tidelog").mode("append").option("endpoint", endpoints)
            write.options(txnAppId=f"app-{name}", txnVersion="1").save(name)

    assert payloads(read(spark, endpoints, channels=",".join(names))) == ["x", "x", "x"]


def test_one_cut_over_all_nodes(nodes: ClusterOfProcesses, cluster: Cluster, spark: SparkSession) -> None:
    for node in nodes.nodes.values():
        text = node.grpc.rpartition(":")[2]
        first = append_everywhere(cluster, f"{text}-1-")
        # Every acknowledged message of every node is read at once, from any endpoint.
        whole = read(spark, node.grpc, channelPattern="shop.*", startingTick=min(first))
        assert payloads(whole) == of(f"{text}-1-")
        second = append_everywhere(cluster, f"{text}-2-")
        # A tick of any node is a cut of all nodes, even if the queried node has not seen it yet.
        cut = read(spark, node.grpc, channels=",".join(NAMES), startingTick=min(first), asOfTick=second[0])
        expected = [
            f"{text}-{number}-{name}"
            for number, ticks in ((1, first), (2, second))
            for name, tick in zip(NAMES, ticks, strict=True)
            if tick <= second[0]
        ]
        assert payloads(cut) == sorted(expected)
        with pytest.raises(PySparkException, match="lies in the future"):
            read(spark, node.grpc, channelPattern="shop.*", asOfTick=second[0] + (1 << 40)).collect()
        end = read(spark, node.grpc, channelPattern="*", startingTick=min(first), endingTick=max(second) + 1)
        assert payloads(end) == [*of(f"{text}-1-"), *of(f"{text}-2-")]


def test_a_task_finds_an_owner_that_has_moved(nodes: ClusterOfProcesses, cluster: Cluster) -> None:
    ticks = append_everywhere(cluster, "moved-")
    n1, n2 = (node.grpc for node in nodes.nodes.values())
    options = parse_options({"channels": ",".join(NAMES), "endpoint": f"{n1},{n2}", "startingTick": str(min(ticks))})

    found = []
    partitions = plan(options, Pushdown())
    endpoints = set()
    for partition in partitions:
        assert isinstance(partition, ReadPartition)
        endpoints.add(partition.connection.endpoint)
        other = n2 if partition.connection.endpoint == n1 else n1
        astray = replace(partition, connection=replace(partition.connection, endpoints=(other,)))
        for rows in read_partition(astray, to_arrow_schema(SCHEMA, timezone="UTC"), PayloadFormat()):
            found += [payload.decode() for payload in rows.column("payload").to_pylist()]

    assert endpoints == {n1, n2}
    assert sorted(found) == of("moved-")


def test_batches_of_a_stream_end_on_all_nodes_at_one_tick(nodes: ClusterOfProcesses, cluster: Cluster) -> None:
    options = {"channelPattern": "shop.*", "maxMessagesPerTrigger": "3", "commitGroup": "shop-lag"}
    reader = TidelogStreamReader(parse_stream_options(options | {"endpoint": nodes.nodes["n2"].grpc}), SCHEMA)
    limit = reader.getDefaultReadLimit()
    start = reader.latestOffset(reader.initialOffset(), limit)
    expected = [text for turn in range(3) for text in of(f"streamed-{turn}-")]
    for turn in range(3):
        append_everywhere(cluster, f"streamed-{turn}-")

    found: list[list[str]] = []
    while (end := reader.latestOffset(start, limit)) != start:
        assert {tick for indexes in end["channels"].values() for tick in indexes.values()} == {end["tick"]}
        rows = [rows for partition in reader.partitions(start, end) for rows in reader.read(partition)]
        found.append([payload.decode() for part in rows for payload in part.column("payload").to_pylist()])
        start = end
        # Batches may be empty if messages are far apart, but each makes progress.
        assert len(found) < 50
    reader.stop()

    assert sorted(text for batch in found for text in batch) == expected
    for node in nodes.nodes.values():
        with Client(node.grpc) as client:
            assert client.describe_group("shop-lag").lag_messages == 0


def test_a_node_that_is_down_is_named(nodes: ClusterOfProcesses, cluster: Cluster, spark: SparkSession) -> None:
    append_everywhere(cluster, "down-")
    n1, n2 = nodes.nodes["n1"], nodes.nodes["n2"]
    theirs = {name: cluster.owner_of(name).node_id for name in NAMES}
    n2.kill()

    # The first seed does not respond, the other one does.
    mine = ",".join(name for name in NAMES if theirs[name] == "n1")
    frame = read(spark, f"{n2.grpc},{n1.grpc}", channels=mine)
    assert frame.where("CAST(payload AS STRING) LIKE 'down-%'").count() == 2
    with pytest.raises(PySparkException) as raised:
        read(spark, n1.grpc, channelPattern="shop.*", serverTimeout="5").collect()

    assert n2.grpc in str(raised.value) or "is owned by node 'n2', which is not running" in str(raised.value)
