"""Nodes of a cluster on hosts of their own: clients reach them at one address, other nodes at another.

Method: real servers and a real etcd, each in a network namespace of its own. Nodes and etcd share one network. A
separate cable leads from the client's host to each node, and nothing is forwarded: no node can reach another one at
the address that clients use, as in containers whose ports are published on the host.

Promises of docs/reference/guarantees.md: G43.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.servers.etcd import needs_etcd
from tidelog_testing.servers.hosts import Hosts, hosts_or_why_not
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess

pytestmark = needs_etcd

NODES = ("node-1", "node-2", "node-3")
CHANNELS = [f"channel-{number}" for number in range(6)]
ETCD = "10.77.0.100:2379"
AT_PEERS = {node: f"10.77.0.{number}:7420" for number, node in enumerate(NODES, 1)}
AT_CLIENTS = {node: f"10.77.{number}.1:7420" for number, node in enumerate(NODES, 1)}


class ClusterOfHosts:
    """Three hosts for nodes, one for etcd, one for clients; ``close`` ends what runs on them."""

    def __init__(self, folder: Path, hosts: Hosts) -> None:
        self._folder = folder
        self._hosts = hosts
        self._etcd: subprocess.Popen[bytes] | None = None
        self.nodes: dict[str, ServerProcess] = {}

    def open(self) -> None:
        hosts = self._hosts
        for name in (*NODES, "switch", "etcd", "client"):
            hosts.add(name)
        hosts.bridge("switch")
        hosts.plug("etcd", "switch", "10.77.0.100/24")
        for number, node in enumerate(NODES, 1):
            hosts.plug(node, "switch", f"10.77.0.{number}/24")
            hosts.connect(node, f"10.77.{number}.1/24", "client", f"10.77.{number}.2/24")
        with (self._folder / "etcd.log").open("wb") as log:
            self._etcd = subprocess.Popen(
                [
                    *hosts.wrapper("etcd"), "etcd", "--data-dir", str(self._folder / "etcd"),
                    "--listen-client-urls", f"http://{ETCD}", "--advertise-client-urls", f"http://{ETCD}",
                ],
                stdout=log, stderr=log,
            )  # fmt: skip
        self._wait_for_etcd()

    def start(self, node: str, **cluster: str) -> ServerProcess:
        """Start a node with settings of the section ``cluster``; returns once it takes requests."""
        settings = {
            "server.host": "0.0.0.0", "server.http_host": "0.0.0.0", "server.insecure": "true",
            "server.grpc_port": 7420, "server.http_port": 7421,
            "metadata.kind": "etcd", "metadata.etcd_endpoints": ETCD,
            "cluster.node_id": node, "cluster.lease_ttl_s": 5,
            **{f"cluster.{name}": value for name, value in cluster.items()},
        }  # fmt: skip
        self.nodes[node] = ServerProcess(self._folder / node, settings, wrapper=self._hosts.wrapper(node))
        return self.nodes[node]

    def start_at_both(self, node: str) -> ServerProcess:
        """Start a node that clients and other nodes reach at different addresses."""
        return self.start(node, advertise=AT_CLIENTS[node], peer_address=AT_PEERS[node])

    def client(self, *arguments: str) -> dict[str, object]:
        """Run the client of ``tidelog_testing`` on its host."""
        program = [sys.executable, "-m", "tidelog_testing.loads.cluster_client", *arguments]
        loaded: dict[str, object] = json.loads(self._hosts.run("client", program))
        return loaded

    def command(self, *arguments: str) -> str:
        """Run the command line on the client's host."""
        return self._hosts.run("client", [str(Path(sys.executable).with_name("tidelog")), *arguments])

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()
        if self._etcd is not None:
            self._etcd.kill()
            self._etcd.wait()

    def _wait_for_etcd(self) -> None:
        health = ["etcdctl", "--endpoints", f"http://{ETCD}", "--command-timeout", "30s", "endpoint", "health"]
        self._hosts.run("etcd", ["env", "ETCDCTL_API=3", *health])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterOfHosts]:
    with hosts_or_why_not() as hosts:
        running = ClusterOfHosts(tmp_path, hosts)
        try:
            running.open()
            yield running
        finally:
            running.close()


def test_nodes_on_hosts_of_their_own_have_an_address_for_clients_and_one_for_each_other(
    cluster: ClusterOfHosts,
) -> None:
    for node in NODES:
        cluster.start_at_both(node)
    # Two for each node: a channel goes where there are fewest.
    owners = cluster.client("append", AT_CLIENTS["node-1"], "first", *CHANNELS)
    counts = Counter(owners.values())
    assert counts == Counter(dict.fromkeys(AT_CLIENTS.values(), 2))
    for node in NODES:
        assert cluster.client("read", AT_CLIENTS[node], *CHANNELS) == {name: ["first"] for name in CHANNELS}

    # The leader, whose ticks the others need.
    cluster.nodes["node-1"].kill()
    others = [name for name in CHANNELS if owners[name] != AT_CLIENTS["node-1"]]
    cluster.client("append", AT_CLIENTS["node-2"], "second", *others)
    cluster.start_at_both("node-1")
    cluster.client("append", AT_CLIENTS["node-2"], "third", *CHANNELS)
    expected = {name: ["first", "second", "third"] if name in others else ["first", "third"] for name in CHANNELS}
    for node in NODES:
        assert cluster.client("read", AT_CLIENTS[node], *CHANNELS) == expected


def test_the_list_of_nodes_has_only_addresses_to_connect_to(cluster: ClusterOfHosts) -> None:
    cluster.start_at_both("node-1")
    [listed] = json.loads(cluster.command("cluster", "ls", "--endpoint", AT_CLIENTS["node-1"], "--output", "json"))
    assert (listed["address"], listed["http"]) == (AT_CLIENTS["node-1"], "10.77.0.1:7421")


def test_a_leader_that_cannot_be_reached_is_named_with_the_address_that_was_tried(cluster: ClusterOfHosts) -> None:
    cluster.start("node-1", advertise="127.0.0.1:7420")
    with pytest.raises(ServerDiedError) as died:
        cluster.start("node-2", advertise="127.0.0.1:7420")
    assert died.value.code == ExitCode.UNAVAILABLE
    assert "the leader, node 'node-1', was called at 127.0.0.1:7420" in died.value.errors
    assert "cluster.peer_address" in died.value.errors
