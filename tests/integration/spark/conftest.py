"""Fixtures of all Spark tests: one session on two cores, and one server."""

import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelog
from tidelog import Client
from tidelog.spark import TidelogDataSource
from tidelog_server.testing import RunningServer, start
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.servers.etcd import EtcdProcess

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
Read = Callable[..., DataFrame]
_numbers = count()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    running = start(str(tmp_path_factory.mktemp("spark-server")))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Spark's workers are separate processes and must find the same packages.
    path = str(Path(tidelog.__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join([path, os.environ.get("PYTHONPATH", "")]))
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .config(PUSHDOWN, "true")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        session.dataSource.register(TidelogDataSource)
        yield session
        session.stop()


@pytest.fixture(scope="session")
def client(server: RunningServer) -> Iterator[Client]:
    with Client(server.endpoint) as opened:
        yield opened


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, etcd: EtcdProcess) -> Iterator[ClusterOfProcesses]:
    """Provide two nodes on a real etcd."""
    folder = tmp_path_factory.mktemp("spark-nodes")
    with ClusterOfProcesses(folder, etcd, lease_ttl_s=5, prefix=f"/{folder.name}/") as running:
        for node_id in ("n1", "n2"):
            running.start(node_id)
        yield running


@pytest.fixture
def read(spark: SparkSession, server: RunningServer) -> Read:
    def load(path: str | None = None, **options: Any) -> DataFrame:
        source = spark.read.format("tidelog").option("endpoint", server.endpoint).options(**options)
        return source.load(path)

    return load


@pytest.fixture
def channel(client: Client) -> str:
    """Return the name of a new channel with two vchannels."""
    name = f"channel-of-test-{next(_numbers)}"
    client.create_channel(name, vchannels=2)
    return name


@pytest.fixture
def options(server: RunningServer, channel: str) -> dict[str, Any]:
    """Return the options of a job on the channel."""
    return {"endpoint": server.endpoint, "channel": channel}
