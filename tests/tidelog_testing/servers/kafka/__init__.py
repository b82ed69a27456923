"""A real Kafka in KRaft mode: combined nodes, each a broker and a controller in one Java process, from Maven's jars.

The jars (54 MB) are downloaded once, to ``.cache/kafka``.
"""

import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from tidelog_testing.servers.jars import jars
from tidelog_testing.servers.ports import free_ports
from tidelog_testing.servers.processes import pause

VERSION: Final = "4.1.0"
_POM: Final = Path(__file__).resolve().parent / "pom.xml"
_CLUSTER_ID: Final = "dGlkZWxvZy10ZXN0cy0wMQ"
_START_WITHIN_S: Final = 120.0
_POLL_S: Final = 0.05


class KafkaProcesses:
    """A cluster of combined nodes. The constructor returns once all answer; ``with`` ends them.

    Attributes:
        servers: Addresses of the brokers.
    """

    system: Final = "Kafka"

    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        settings: Mapping[str, object] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Start ``nodes`` nodes with their files in ``folder``.

        Args:
            folder: The folder.
            nodes: Number of nodes.
            settings: Further settings of the nodes.
            options: Options of the client with which this object makes its own calls.
        """
        self._folder = folder
        self._options = dict(options or {})
        self._jars = jars("kafka", VERSION, _POM)
        ports = free_ports(2 * nodes)
        self._brokers, self._controllers = ports[:nodes], ports[nodes:]
        self.servers = ",".join(f"127.0.0.1:{port}" for port in self._brokers)
        self._settings = settings or {}
        self._nodes: list[subprocess.Popen[bytes] | None] = [None] * nodes
        for number in range(nodes):
            self._format(number)
        for number in range(nodes):
            self.start(number)
        self.wait_ready()

    def settings(self, topic: str) -> dict[str, object]:
        """Return the settings of a server whose log is in ``topic``."""
        return {"storage.kind": "kafka", "engine.servers": self.servers, "engine.topic": topic}

    @property
    def flags(self) -> list[str]:
        """The flags of commands that are for logs here."""
        return ["--engine.servers", self.servers]

    @property
    def bench_flags(self) -> list[str]:
        """The flags of benchmarks of a log here."""
        return ["--kafka", self.servers]

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        found: Any = self._admin().list_topics(timeout=_START_WITHIN_S)
        return sorted(found.topics)

    def start(self, number: int) -> None:
        """Start a node, again after ``kill``; it may not answer yet."""
        folder = self._home(number)
        with (folder / "log").open("ab") as log:
            self._nodes[number] = subprocess.Popen(
                self._java("kafka.Kafka", str(folder / "server.properties"), heap="384m"), stdout=log,
                stderr=subprocess.STDOUT, cwd=folder, start_new_session=True,
            )  # fmt: skip

    def kill(self, number: int) -> None:
        """End a node by SIGKILL."""
        node = self._nodes[number]
        if node is not None:
            node.kill()
            node.wait()

    def pause(self, number: int = 0) -> None:
        """Stop a node by SIGSTOP."""
        pause(self._node(number).pid)

    def resume(self, number: int = 0) -> None:
        """Continue a paused node."""
        self._node(number).send_signal(signal.SIGCONT)

    def copies(self, topic: str) -> tuple[int | None, int]:
        """Return which node leads a topic of one partition, None without one, and how many nodes have all of it.

        A node that does not know the topic yet answers without partitions: no leader, no node.
        """
        partitions = self._admin().list_topics(topic, timeout=_START_WITHIN_S).topics[topic].partitions
        if not partitions:
            return None, 0
        return (partitions[0].leader - 1 if partitions[0].leader > 0 else None), len(partitions[0].isrs)

    def create_topic(self, name: str, settings: Mapping[str, str] | None = None, partitions: int = 1) -> None:
        """Create a topic on all nodes."""
        topic = NewTopic(name, partitions, min(3, len(self._nodes)), config=dict(settings or {}))
        # It ends its calls when it is collected.
        admin = self._admin()
        for future in admin.create_topics([topic]).values():
            future.result(60)

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        admin = self._admin()
        for future in admin.delete_topics([name]).values():
            future.result(60)

    def permit(self, user: str, topic: str, *operations: AclOperation, is_prefix: bool = False) -> None:
        """Permit operations on a topic to a user; with ``is_prefix`` on all topics that begin with ``topic``."""
        admin = self._admin()
        pattern = ResourcePatternType.PREFIXED if is_prefix else ResourcePatternType.LITERAL
        bindings = [
            AclBinding(
                ResourceType.TOPIC, topic, pattern, f"User:{user}", "*", operation,
                AclPermissionType.ALLOW,
            )
            for operation in operations
        ]  # fmt: skip
        for future in admin.create_acls(bindings).values():
            future.result(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, node in enumerate(self._nodes):
            if node is not None and node.poll() is None:
                self.resume(number)
            self.kill(number)

    def _node(self, number: int) -> subprocess.Popen[bytes]:
        node = self._nodes[number]
        assert node is not None
        return node

    def _home(self, number: int) -> Path:
        return self._folder / str(number)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0, **self._options})

    def _java(self, main: str, *arguments: str, heap: str) -> list[str]:
        return [
            "java", f"-Xmx{heap}", "-Xms128m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{self._jars}/*", main, *arguments,
        ]  # fmt: skip

    def _format(self, number: int) -> None:
        folder = self._home(number)
        folder.mkdir(parents=True)
        lines = {**self._properties(number), **self._settings}
        properties = folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        command = self._java(
            "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties), heap="128m"
        )  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder)

    def _properties(self, number: int) -> Mapping[str, object]:
        copies = min(3, len(self._nodes))
        voters = ",".join(f"{each + 1}@127.0.0.1:{port}" for each, port in enumerate(self._controllers))
        return {
            "process.roles": "broker,controller", "node.id": number + 1,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._brokers[number]},"
            f"CONTROLLER://127.0.0.1:{self._controllers[number]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._brokers[number]}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.listener.names": "CONTROLLER", "inter.broker.listener.name": "PLAINTEXT",
            "controller.quorum.voters": voters, "log.dirs": self._home(number) / "data",
            "offsets.topic.replication.factor": copies, "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": copies, "transaction.state.log.min.isr": min(2, copies),
            "transaction.state.log.num.partitions": 4, "share.coordinator.state.topic.num.partitions": 1,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": 1, "min.insync.replicas": min(2, copies),
            "auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": 0,
            "log.cleaner.dedupe.buffer.size": 8 << 20, "log.cleaner.threads": 1, "num.network.threads": 2,
            "num.io.threads": 4, "background.threads": 2,
        }  # fmt: skip

    def wait_ready(self) -> None:
        """Wait until all nodes answer, and each knows the others: a new topic has a copy on each then."""
        ends_s = time.monotonic() + _START_WITHIN_S
        for number, port in enumerate(self._brokers):
            while not _answers(port):
                node = self._nodes[number]
                assert node is not None
                if node.poll() is not None or time.monotonic() > ends_s:
                    log = (self._home(number) / "log").read_text(errors="replace")[-3_000:]
                    raise AssertionError(f"Kafka did not start:\n{log}")
                time.sleep(_POLL_S)
        admin: Any = self._admin()
        # A broker learns of the others a moment after they listen.
        while len(admin.list_topics(timeout=_START_WITHIN_S).brokers) < len(self._nodes):
            assert time.monotonic() < ends_s, "Kafka did not start: a broker does not know all others"
            time.sleep(_POLL_S)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
