"""Processes of a cluster whose nodes have their logs in an engine: a real one, or a folder, which no setting offers."""

import asyncio
import json
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Final

from tidelog import AppendUnknownError, AsyncClient, DeadlineError, UnavailableError
from tidelog_server.channels.catalog import ROOT
from tidelog_server.cluster.session import node_key
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.held import Held
from tidelog_testing.servers.on_folder import LOG, NODE_SETTINGS, create_node, use_folders
from tidelog_testing.servers.ports import free_ports
from tidelog_testing.servers.processes import ServerDiedError, ServerProcess

WITHIN_S: Final = 60.0


class EngineProcess(ServerProcess):
    """A process that serves a node or stands by. The constructor does not wait for either."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object],
        env: Mapping[str, str],
        prepare: Callable[[], None] | None,
    ) -> None:
        chosen = dict(zip(("server.grpc_port", "server.http_port"), free_ports(2), strict=True))
        self._ports = {name: settings.get(name, port) for name, port in chosen.items()}
        super().__init__(folder, {**settings, **self._ports}, env, prepare=prepare)

    @property
    def state(self) -> str:
        """``ready``, ``standby``, why it is not ready, or empty if it does not answer."""
        try:
            status, text = self.get("/readyz")
        except OSError:
            return ""
        return "ready" if status == 200 else text.strip().removeprefix("not ready: ")

    def _wait_ready(self) -> dict[str, object]:
        ports = {name.removeprefix("server.").removesuffix("_port"): port for name, port in self._ports.items()}
        return {**{name: f"127.0.0.1:{port}" for name, port in ports.items()}, "pid": self._process.pid}


class EngineCluster(Held):
    """Processes ``p1``, ``p2`` ... and logs of nodes. ``with`` ends running ones by SIGKILL.

    Attributes:
        folder: Folder of logs and views.
        processes: Started processes, by name.
        prefix: Prefix of all keys in etcd.
    """

    def __init__(
        self,
        folder: Path,
        etcd: EtcdProcess,
        *,
        lease_ttl_s: int = 2,
        engine: Mapping[str, object] | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """Prepare; with the settings of a real engine the logs are there, and each process calls ``prepare`` first."""
        self.folder = folder
        self.processes: dict[str, EngineProcess] = {}
        self.etcd = etcd
        self.prefix = f"/{folder.parent.name}-{folder.name}/"
        self._prepare = prepare if engine else use_folders
        self.settings: dict[str, object] = {
            "metadata.kind": "etcd", "metadata.etcd_endpoints": etcd.endpoint, "metadata.etcd_prefix": self.prefix,
            "cluster.lease_ttl_s": lease_ttl_s, "cluster.node_id": "auto", "log.level": "info", **NODE_SETTINGS,
            **(engine or {}),
        }  # fmt: skip

    @property
    def logs(self) -> Path:
        """The folder of the logs."""
        return self.folder / "logs"

    def create_node(self, node_id: str) -> None:
        """Create a node with an empty log in a folder."""
        create_node(self.etcd, self.prefix, self.logs, node_id)

    def create_in_engine(self, node_id: str, name: str = "", *options: str) -> CompletedProcess[bytes]:
        """Create a node with an empty log in the engine, in a cluster of this name; return how the command ended."""
        flags = {**self.settings, **({"cluster.name": name} if name else {})}
        settings = [text for key, value in flags.items() for text in (f"--{key}", f"{value}")]
        return run_command(["engine", "create", node_id, *options, *settings])

    def start(
        self, name: str, settings: Mapping[str, object] | None = None, env: Mapping[str, str] | None = None
    ) -> EngineProcess:
        """Start a process, with further variables; it serves a node, or stands by, some time later."""
        self.folder.mkdir(exist_ok=True)
        self.processes[name] = EngineProcess(
            self.folder / name, {**self.settings, **(settings or {})}, {LOG: str(self.logs), **(env or {})},
            self._prepare,
        )  # fmt: skip
        return self.processes[name]

    def in_state(self, state: str) -> list[EngineProcess]:
        """Return the running processes in a state; see ``EngineProcess.state``."""
        return [each for each in self.processes.values() if each.code is None and each.state == state]

    async def until(self, holds: Callable[[], object], within_s: float = WITHIN_S) -> None:
        """Wait until ``holds`` returns something true, on a thread. Raises TimeoutError, or how a process ended."""
        end_s = time.monotonic() + within_s
        while not await asyncio.to_thread(holds):
            if time.monotonic() > end_s:
                raise TimeoutError({name: (each.code, each.errors[-2_000:]) for name, each in self.processes.items()})
            await asyncio.sleep(0.02)

    async def settled(self, ready: int, standby: int) -> None:
        """Wait until these numbers of processes serve and stand by."""
        await self.until(lambda: (len(self.in_state("ready")), len(self.in_state("standby"))) == (ready, standby))

    def revoke(self, node_id: str, owner: ServerProcess) -> None:
        """End the registration of a node if it is that of ``owner``, which does not know."""
        key = f"{self.prefix}{node_key(ROOT, node_id)}"
        for registration in json.loads(self.etcd.control("get", key, "--write-out=json")).get("kvs", ()):
            if owner.grpc.encode() in b64decode(registration["value"]):
                self.etcd.control("lease", "revoke", f"{registration['lease']:x}")

    def kill(self) -> None:
        """End all of them with SIGKILL."""
        for each in self.processes.values():
            each.kill()


class Load:
    """Appends numbers to a vchannel, one after the other, at whichever process takes them.

    Attributes:
        acknowledged: The numbers that were acknowledged, with the time of each on the monotonic clock.
    """

    def __init__(self, cluster: EngineCluster, vchannel: str) -> None:
        self._cluster = cluster
        self._vchannel = vchannel
        self._clients: dict[str, AsyncClient] = {}
        self._next = 0
        self._owner = ""
        self.acknowledged: dict[int, float] = {}

    async def append(self) -> bool:
        """Append the next number at the last owner, else at any process; return whether it was acknowledged."""
        self._next += 1
        running = [each.grpc for each in self._cluster.processes.values() if each.code is None]
        for address in sorted(running, key=lambda address: address != self._owner):
            client = self._clients.setdefault(address, AsyncClient(address, timeout_s=1.0))
            try:
                await client.append(self._vchannel, b"%d" % self._next, timeout_s=0.5)
            except (UnavailableError, DeadlineError, AppendUnknownError):
                continue
            self._owner = address
            self.acknowledged[self._next] = time.monotonic()
            return True
        return False

    async def run_until(self, holds: Callable[[], bool]) -> None:
        """Append until ``holds``."""
        async with asyncio.timeout(WITHIN_S):
            while not holds():
                await self.append()

    async def payloads(self) -> list[int]:
        """Return what the vchannel has, from its owner."""
        batches = [batch async for batch in self._clients[self._owner].scan(self._vchannel)]
        return [int(row.payload) for batch in batches for row in batch]

    async def close(self) -> None:
        """Close the clients."""
        for client in self._clients.values():
            await client.aclose()


def refusal_of(cluster: EngineCluster, name: str, settings: Mapping[str, object] | None = None) -> ServerDiedError:
    """Return how a process ended that did not start (asserted)."""
    process = cluster.start(name, settings)
    return ServerDiedError(process.wait(), process.errors)
