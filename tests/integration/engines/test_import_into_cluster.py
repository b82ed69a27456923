"""`tidelog engine import` into a cluster: a single server becomes its first node, with everything that it had.

Method: what a client reads of a server with rows in every table, before and after. The import is killed at each of its
steps, one after the other, and repeated.
"""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest

from compatibility.content import Json, dump
from compatibility.mailbox_content import dump_mailboxes
from tidelog import AsyncClient, Client
from tidelog_cli.child_environment import child_environment
from tidelog_cli.exit_codes import ExitCode
from tidelog_server.runtime.failpoints import VARIABLE, Failpoint
from tidelog_testing.loads.every_table import Facts, begin
from tidelog_testing.servers.brokers import Broker
from tidelog_testing.servers.commands import COMMAND, run_command
from tidelog_testing.servers.engine_cluster import EngineCluster
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess

_OWNED: Final = ("_audit", "_blobs")


class Importing(EngineCluster):
    """A cluster on an engine into which a folder is imported."""

    def __init__(self, folder: Path, etcd: EtcdProcess, broker: Broker) -> None:
        super().__init__(folder, etcd, engine=broker.settings(""))
        self.name = folder.parent.name.replace("_", "-")

    def arguments(self, command: str, *arguments: str) -> list[str]:
        flags = {**self.settings, "cluster.name": self.name}
        return [
            "engine",
            command,
            *arguments,
            *(text for key, value in flags.items() for text in (f"--{key}", f"{value}")),
        ]

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return run_command(self.arguments(command, *arguments))

    def stored(self, prefix: str = "") -> list[str]:
        """Return the keys of the cluster in etcd, without their prefix."""
        found = self.etcd.control("get", "--prefix", "--keys-only", f"{self.prefix}tidelog/{prefix}")
        return [key.removeprefix(f"{self.prefix}tidelog/") for key in found.split()]

    async def owner(self) -> str:
        """Start a process, and return its address once it serves the node."""
        process = await asyncio.to_thread(self.start, "p1")
        await self.until(lambda: process.state == "ready")
        return process.grpc


@pytest.fixture
def cluster(tmp_path: Path, etcd: EtcdProcess, broker: Broker) -> Iterator[Importing]:
    with Importing(tmp_path / "cluster", etcd, broker) as running:
        yield running


def read(address: str, facts: Facts) -> Json:
    with Client(address, client_id="imported", timeout_s=10) as client:
        return dump(client, facts.txn_ids) | dump_mailboxes(client, asdict(facts))


def on_one_server(found: Any) -> Any:
    """Return what was read of node ``n1`` as a single server has it: system channels have other names there."""
    text = json.dumps(found)
    for name in _OWNED:
        text = text.replace(f"{name}-n1", name)
    return json.loads(text)


def differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the places where two things that were read differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from differences(before.get(key), after.get(key), f"{path}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{path}/{number}")
    elif before != after:
        yield path, before, after


async def test_a_folder_becomes_the_first_node_with_everything_and_whatever_ends_the_import(
    cluster: Importing, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    facts = await asyncio.to_thread(begin, store)
    with await asyncio.to_thread(ServerProcess, store) as server:
        before = await asyncio.to_thread(read, server.grpc, facts)
        server.kill()
    command = [*COMMAND, *cluster.arguments("import", "n1", str(store))]
    step = 0
    while True:
        step += 1
        environment = {**child_environment(), VARIABLE: f"{Failpoint.IMPORT_STEP}:{step}"}
        done = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, check=False)
        if done.returncode >= 0:
            break
        assert "log/n1" not in cluster.stored()
        if cluster.stored("import") and step == 3:
            # Nothing comes in between: no other folder, and no node of another kind.
            other = cluster.run("import", "n2", str(store))
            assert (other.returncode, b"as node 'n1' of this cluster has not ended" in other.stderr) == (78, True)
            settings = {key: cluster.settings[key] for key in cluster.settings if key.startswith("metadata.")}
            with pytest.raises(ServerDiedError) as died:
                ServerProcess(tmp_path / "other", {**settings, "cluster.node_id": "n3"}).kill()
            assert died.value.code == ExitCode.BAD_CONFIG
            assert "repeat `tidelog engine import n1 FOLDER`" in died.value.errors
    assert done.returncode == ExitCode.OK, done.stderr
    # The log, the mark, at least two groups, the keys, the end.
    assert step > 6
    assert cluster.stored("import") == []
    assert cluster.stored("group") == cluster.stored("broadcast") == []
    assert cluster.stored("local/n1/group/")
    [record] = map(json.loads, done.stdout.splitlines())
    assert record["log"] == f"tidelog.{cluster.name}.n1"
    address = await cluster.owner()
    after = on_one_server(await asyncio.to_thread(read, address, facts))
    # Revisions of journals and mailboxes are those of etcd.
    assert [each for each in differences(before, after) if not each[0].endswith("/revision")] == []
    async with AsyncClient(address) as client:
        await client.create_channel("created-later")
        await client.append("orders/0", b"in the engine")
    again = await asyncio.to_thread(cluster.run, "import", "n2", str(store))
    assert again.returncode == ExitCode.BAD_CONFIG
    assert b"serves node 'n1' of this cluster" in again.stderr


async def test_a_cluster_that_has_something_takes_no_folder(cluster: Importing, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with await asyncio.to_thread(ServerProcess, store) as server, Client(server.grpc) as client:
        client.create_channel("orders")
        client.append("orders", b"1")
        server.kill()
    # A node that was created, and never served, becomes that of the folder.
    for node in ("n1", "n2"):
        assert (await asyncio.to_thread(cluster.run, "create", node)).returncode == ExitCode.OK
    refused = await asyncio.to_thread(cluster.run, "import", "n1", str(store))
    assert (refused.returncode, b"etcd has 'tidelog/log/n2'" in refused.stderr) == (ExitCode.BAD_CONFIG, True)
    cluster.etcd.control("del", f"{cluster.prefix}tidelog/log/n2")
    imported = await asyncio.to_thread(cluster.run, "import", "n1", str(store))
    assert imported.returncode == ExitCode.OK, imported.stderr
    assert b"the node 'n1' is ready" in imported.stderr
    address = await cluster.owner()
    async with AsyncClient(address) as client:
        assert [channel.name async for channel in client.list_channels()] == ["orders"]
    cluster.kill()
    await cluster.until(lambda: not cluster.stored("node/"))
    channels = await asyncio.to_thread(cluster.run, "import", "n1", str(store))
    assert (channels.returncode, b"etcd has 'tidelog/channel/orders'" in channels.stderr) == (ExitCode.BAD_CONFIG, True)
