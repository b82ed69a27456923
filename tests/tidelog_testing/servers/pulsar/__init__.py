"""A real Pulsar: broker, bookie and metadata in one Java process, from Maven's jars.

The jars (235 MB) are downloaded once, to ``.cache/pulsar``. Command line and settings: Pulsar's own ``bin/pulsar``.
"""

import json
import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tidelog_server.recordlog.pulsar_access import DEFAULT_NAMESPACE, PulsarAccess
from tidelog_server.recordlog.pulsar_connection import PulsarConnection
from tidelog_testing.servers.jars import jars
from tidelog_testing.servers.ports import free_ports
from tidelog_testing.servers.processes import pause

VERSION: Final = "4.0.7"
_HERE: Final = Path(__file__).resolve().parent
_START_WITHIN_S: Final = 240.0
_POLL_S: Final = 0.1
_OPENED: Final = (
    "java.base/jdk.internal.loader", "java.base/jdk.internal.platform", "java.base/sun.net", "java.base/java.nio",
    "java.base/jdk.internal.misc", "java.management/sun.management", "jdk.management/com.sun.management.internal",
)  # fmt: skip
_METADATA: Final = "org.apache.pulsar.metadata.bookkeeper.PulsarMetadata"
# A small broker. A full disk must not make the bookie read-only.
_SETTINGS: Final[Mapping[str, object]] = {
    "bindAddress": "127.0.0.1", "advertisedAddress": "127.0.0.1", "clusterName": "standalone",
    "managedLedgerDefaultEnsembleSize": 1, "managedLedgerDefaultWriteQuorum": 1, "managedLedgerDefaultAckQuorum": 1,
    "numIOThreads": 2, "numHttpServerThreads": 4, "allowLoopback": "true", "managedLedgerCacheSizeMB": 64,
    "brokerShutdownTimeoutMs": 1_000, "loadBalancerEnabled": "false", "dbStorage_writeCacheMaxSizeMb": 16,
    "dbStorage_readAheadCacheMaxSizeMb": 16, "dbStorage_rocksDB_blockCacheSize": 16 << 20, "journalMaxSizeMB": 256,
    "numJournalCallbackThreads": 1, "numAddWorkerThreads": 1, "numReadWorkerThreads": 1, "diskUsageThreshold": "0.99",
    "diskUsageWarnThreshold": "0.98", "brokerDeleteInactiveTopicsEnabled": "false", "allowAutoTopicCreation": "false",
}  # fmt: skip


class PulsarProcess:
    """A broker. The constructor returns once it is healthy; ``with`` ends it.

    Attributes:
        url: Address of the broker.
        admin_url: Address of the administration API.
    """

    system: Final = "Pulsar"

    def __init__(self, folder: Path, settings: Mapping[str, object] | None = None, token: str | None = None) -> None:
        """Start a broker with its files in ``folder``; ``token`` is that of an administrator."""
        self._folder = folder
        self._headers = {"Content-Type": "application/json"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        folder.mkdir(parents=True, exist_ok=True)
        broker, web, self._bookie = free_ports(3)
        self.url = f"pulsar://127.0.0.1:{broker}"
        self.admin_url = f"http://127.0.0.1:{web}"
        self._jars = jars("pulsar", VERSION, _HERE / "pom.xml")
        lines = {**_SETTINGS, "brokerServicePort": broker, "webServicePort": web, **(settings or {})}
        (folder / "standalone.conf").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it again after ``kill``."""
        folder = self._folder
        command = [
            "java", "-Xmx512m", "-XX:MaxDirectMemorySize=512m",
            *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED),
            "-Djava.net.preferIPv4Stack=true", f"-Dlog4j.configurationFile={_HERE / 'log4j2.xml'}",
            "-Dio.netty.tryReflectionSetAccessible=true", "-Dpulsar.allocator.exit_on_oom=true",
            f"-Dbookkeeper.metadata.bookie.drivers={_METADATA}BookieDriver",
            f"-Dbookkeeper.metadata.client.drivers={_METADATA}ClientDriver", "-cp", f"{self._jars}/*",
            "org.apache.pulsar.PulsarStandaloneStarter", "-c", str(folder / "standalone.conf"), "-nss", "-nfw", "-a",
            "127.0.0.1", f"--bookkeeper-dir={folder / 'bk'}", f"--bookkeeper-port={self._bookie}", "--num-bookies=1",
            f"--metadata-dir={folder / 'metadata'}",
        ]  # fmt: skip
        environment = {**os.environ, "PULSAR_STANDALONE_USE_ZOOKEEPER": "0"}
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, env=environment, start_new_session=True
            )
        self._wait_healthy()

    def settings(self, topic: str) -> dict[str, object]:
        """Return the settings of a server whose log is in ``topic``."""
        return {
            "storage.kind": "pulsar", "engine.service_url": self.url, "engine.admin_url": self.admin_url,
            "engine.topic": topic,
        }  # fmt: skip

    @property
    def flags(self) -> list[str]:
        """The flags of commands that are for logs here."""
        return ["--pulsar", self.url, "--engine.admin_url", self.admin_url]

    @property
    def bench_flags(self) -> list[str]:
        """The flags of benchmarks of a log here."""
        return ["--pulsar", self.url, "--pulsar-admin", self.admin_url]

    def topics(self, namespace: str = DEFAULT_NAMESPACE) -> list[str]:
        """Return the names of the topics of a namespace."""
        request = urllib.request.Request(f"{self.admin_url}/admin/v2/persistent/{namespace}", headers=self._headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return sorted(name.rpartition("/")[2] for name in json.load(answer))

    def pause(self) -> None:
        """Stop it by SIGSTOP."""
        assert self._process is not None
        pause(self._process.pid)

    def resume(self) -> None:
        """Continue it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def access(self, namespace: str = DEFAULT_NAMESPACE) -> PulsarAccess:
        """Return what logs in topics of a namespace are made and opened with."""
        return PulsarAccess(PulsarConnection(self.url, self.admin_url), namespace)

    def create_namespace(self, name: str) -> None:
        """Create a namespace, such as ``public/tests``."""
        self._put(f"/admin/v2/namespaces/{name}")

    def create_topic(self, topic: str) -> None:
        """Create a topic from its full name."""
        self._put(f"/admin/v2/{topic.replace('://', '/')}")

    def set_policy(self, namespace: str, name: str, value: object) -> None:
        """Set a policy of a namespace, by its name in the administration API."""
        self._put(f"/admin/v2/namespaces/{namespace}/{name}", "POST", json.dumps(value).encode())

    def unsubscribe(self, topic: str, subscription: str) -> None:
        """Delete a subscription of a topic."""
        self._put(f"/admin/v2/{topic.replace('://', '/')}/subscription/{subscription}?force=true", "DELETE")

    def close_ledger(self, topic: str) -> None:
        """Let the next message of a topic begin a new file: unloading the topic closes the last one."""
        self._put(f"/admin/v2/{topic.replace('://', '/')}/unload")

    def first_ledger(self, topic: str) -> int:
        """Return the id of the oldest file of a topic."""
        return int(self._get(topic, "internalStats")["ledgers"][0]["ledgerId"])

    def clients(self, topic: str) -> int:
        """Return the number of producers and consumers of a topic, 0 if it does not exist."""
        try:
            found = self._get(topic, "stats")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return 0
        return len(found["publishers"]) + sum(len(each["consumers"]) for each in found["subscriptions"].values())

    def trim(self, topic: str) -> None:
        """Delete the files of a topic that no subscription needs."""
        self._put(f"/admin/v2/{topic.replace('://', '/')}/trim", method="POST")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _get(self, topic: str, what: str) -> Any:
        path = f"/admin/v2/{topic.replace('://', '/')}/{what}"
        request = urllib.request.Request(f"{self.admin_url}{path}", headers=self._headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def _put(self, path: str, method: str = "PUT", body: bytes = b"") -> None:
        request = urllib.request.Request(f"{self.admin_url}{path}", data=body, headers=self._headers, method=method)
        urllib.request.urlopen(request, timeout=30).close()

    def _wait_healthy(self) -> None:
        """Wait until a message can be sent and received; the ports are open before."""
        assert self._process is not None
        ends_s = time.monotonic() + _START_WITHIN_S
        while True:
            try:
                request = urllib.request.Request(f"{self.admin_url}/admin/v2/brokers/health", headers=self._headers)
                with urllib.request.urlopen(request, timeout=10) as answer:
                    if answer.read() == b"ok":
                        return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > ends_s:
                    log = (self._folder / "log").read_text(errors="replace")[-3_000:]
                    raise AssertionError(f"Pulsar did not become healthy:\n{log}") from error
            time.sleep(_POLL_S)
