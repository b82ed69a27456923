"""Several real servers on one etcd, one process each."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.processes import ServerProcess, lasting_port


class ClusterOfProcesses:
    """Nodes ``n1``, ``n2`` ... under their own prefix. ``with`` ends running ones by SIGKILL.

    Attributes:
        nodes: Started nodes, by node id.
        etcd: The shared etcd; its owner ends it.
    """

    def __init__(self, folder: Path, etcd: EtcdProcess, *, lease_ttl_s: int = 2, prefix: str | None = None) -> None:
        self.folder = folder
        self.nodes: dict[str, ServerProcess] = {}
        self.etcd = etcd
        self._settings = {
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
        port = self._ports.setdefault(node_id, lasting_port())
        settings = {**self._settings, **port, "cluster.node_id": node_id, **(settings or {})}
        self.nodes[node_id] = ServerProcess(self.folder / node_id, settings, env)
        return self.nodes[node_id]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        for node in self.nodes.values():
            node.kill()
