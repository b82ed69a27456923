"""A client belongs to its process: one that is handed to another process is refused with what to do."""

import copy
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog import AsyncClient, AsyncCluster, Client, Cluster

MADE: dict[str, Callable[[AsyncClient, Client], Any]] = {
    "AsyncClient": lambda client, _: client,
    "Client": lambda _, sync: sync,
    "AsyncCluster": lambda *_: AsyncCluster("127.0.0.1:1"),
    "Cluster": lambda *_: Cluster("127.0.0.1:1"),
    "channel": lambda client, _: client.channel("orders"),
    "synchronous channel": lambda _, sync: sync.channel("orders"),
    "vchannel": lambda _, sync: sync.vchannel("orders/0"),
    "producer": lambda client, _: client.producer("orders"),
    "synchronous producer": lambda _, sync: sync.producer("orders"),
    "transaction": lambda client, _: client.txn(),
    "synchronous transaction": lambda _, sync: sync.txn(),
    "scan": lambda client, _: client.scan("orders"),
    "synchronous scan": lambda _, sync: sync.scan("orders"),
    "consumer": lambda client, _: client.consumer("g", "orders"),
    "synchronous consumer": lambda _, sync: sync.consumer("g", "orders"),
    "mailbox": lambda client, _: client.mailbox("jobs"),
    "synchronous mailbox": lambda _, sync: sync.mailbox("jobs"),
    "worker": lambda client, _: client.mailbox("jobs").worker(),
    "synchronous worker": lambda _, sync: sync.mailbox("jobs").worker(),
    "log": lambda client, _: client.wal(),
    "blobs": lambda client, _: client.blobs,
    "journals": lambda _, sync: sync.journals,
}
WHAT_TO_DO = "cannot be handed to another process, nor copied: pass the endpoint and the options"


@pytest.mark.parametrize("name", MADE)
async def test_what_belongs_to_a_process_is_not_pickled(name: str) -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        with Client("127.0.0.1:1") as sync:
            made = MADE[name](client, sync)

            with pytest.raises(TypeError, match=WHAT_TO_DO):
                pickle.dumps(made)
            with pytest.raises(TypeError, match=WHAT_TO_DO):
                copy.deepcopy(made)


def work(_: Client) -> None:
    raise AssertionError("reached")


def test_a_spawned_process_is_refused_a_client() -> None:
    with Client("127.0.0.1:1") as client:
        process = multiprocessing.get_context("spawn").Process(target=work, args=(client,))

        with pytest.raises(TypeError, match="Client " + WHAT_TO_DO):
            process.start()


def test_spark_without_pyspark_names_the_extra(tmp_path: Path) -> None:
    hidden = tmp_path / "pyspark"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("raise ImportError('not installed')")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import tidelog.spark"

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert "ImportError: tidelog.spark needs pyspark: run `pip install '.[spark]'`" in ended.stderr
