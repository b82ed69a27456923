"""Tasks and streams follow a node to the process that serves it after they were planned.

Method: two real nodes on a real etcd. One of them is killed and started again on its data at another port. Partitions
are read as in a task, in this process, after pickling.

Promises of docs/reference/guarantees.md: G11.
"""

import pickle
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from tidelog import Cluster
from tidelog.spark import SCHEMA
from tidelog.spark.options import parse_options
from tidelog.spark.payload_options import PayloadFormat
from tidelog.spark.read.plan import plan
from tidelog.spark.read.pushdown import Pushdown
from tidelog.spark.stream.options import parse_stream_options
from tidelog.spark.stream.reader import TidelogStreamReader
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.processes import lasting_port

pytestmark = pytest.mark.spark


def read(partitions: Iterable[InputPartition]) -> list[str]:
    schema = to_arrow_schema(SCHEMA, timezone="UTC")
    return [
        payload.decode()
        for partition in partitions
        for rows in pickle.loads(pickle.dumps(partition)).read(schema, PayloadFormat())
        for payload in rows.column("payload").to_pylist()
    ]


def append(endpoints: list[str], payload: bytes) -> None:
    with Cluster(endpoints) as cluster:
        cluster.vchannel("orders/0").append(payload)


def test_a_planned_read_and_a_stream_go_on_at_another_address(tmp_path: Path, etcd: EtcdProcess) -> None:
    with ClusterOfProcesses(tmp_path, etcd, lease_ttl_s=3, prefix=f"/{tmp_path.name}/") as nodes:
        nodes.start("n1", lasting_port())
        with Cluster(nodes.nodes["n1"].grpc) as cluster:
            cluster.create_channel("orders")
            cluster.vchannel("orders/0").append(b"before")
        nodes.start("n2")
        endpoints = [node.grpc for node in nodes.nodes.values()]
        options = {"channels": "orders", "endpoint": ",".join(endpoints)}
        partitions = plan(parse_options(options), Pushdown())
        stream = TidelogStreamReader(parse_stream_options(options), SCHEMA)
        start = stream.latestOffset(stream.initialOffset(), stream.getDefaultReadLimit())
        append(endpoints, b"later")
        middle = stream.latestOffset(start, stream.getDefaultReadLimit())

        nodes.nodes["n1"].kill()
        nodes.start("n1", lasting_port())

        assert nodes.nodes["n1"].grpc not in endpoints
        assert read(partitions) == ["before"]
        append(endpoints, b"after")
        end = stream.latestOffset(middle, stream.getDefaultReadLimit())
        assert read(stream.partitions(start, middle)) == ["later"]
        assert read(stream.partitions(middle, end)) == ["after"]
        stream.stop()
