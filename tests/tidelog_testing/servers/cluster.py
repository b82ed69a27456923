"""Several real servers on one etcd, one process each."""

from collections.abc import Mapping
from pathlib import Path

from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.held import Held
from tidelog_testing.servers.on_folder import LOG, NODE_SETTINGS, create_node, use_folders
from tidelog_testing.servers.processes import ServerProcess, lasting_port
from tidelog_testing.servers.tested_store import delete_view, is_on_engine


class ClusterOfProcesses(Held):
    """Nodes ``n1``, ``n2`` ... under their own prefix. ``with`` ends running ones by SIGKILL.

    Attributes:
        nodes: Started nodes, by node id.
        settings: What all nodes have in common.
        etcd: The shared etcd; its owner ends it.
    """

    def __init__(self, folder: Path, etcd: EtcdProcess, *, lease_ttl_s: int = 2, prefix: str | None = None) -> None:
        self.folder = folder
        self.nodes: dict[str, ServerProcess] = {}
        self.etcd = etcd
        self.settings: dict[str, object] = {
            "metadata.kind": "etcd",
            "metadata.etcd_endpoints": etcd.endpoint,
            "metadata.etcd_prefix": prefix or f"/{folder.name}/",
            "cluster.lease_ttl_s": lease_ttl_s,
        }
        self._ports: dict[str, dict[str, object]] = {}

    def start(
        self, node_id: str, settings: Mapping[str, object] | None = None, env: Mapping[str, str] | None = None
    ) -> ServerProcess:
        """Start a node, on its previous address and data if it ran before; returns once it accepts requests."""
        is_new = node_id not in self._ports
        port = self._ports.setdefault(node_id, lasting_port())
        settings = {**self.settings, **port, "cluster.node_id": node_id, **(settings or {})}
        folder = self.folder / node_id
        if is_on_engine():
            self.nodes[node_id] = self._on_engine(folder, settings, env or {}, is_new=is_new)
        else:
            self.nodes[node_id] = ServerProcess(folder, settings, env)
        return self.nodes[node_id]

    def _on_engine(
        self, folder: Path, settings: Mapping[str, object], env: Mapping[str, str], *, is_new: bool
    ) -> ServerProcess:
        """Start a node whose log is in a folder that its processes share; this one has a new view."""
        logs = self.folder / "logs"
        if is_new:
            create_node(self.etcd, str(self.settings["metadata.etcd_prefix"]), logs, folder.name)
        delete_view(folder)
        return ServerProcess(folder, {**settings, **NODE_SETTINGS}, {LOG: str(logs), **env}, prepare=use_folders)

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()
