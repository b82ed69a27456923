"""A Kafka for a benchmark, and topics in it that are deleted afterwards."""

import os
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple, Self

from tidelog_cli.metrics_text import samples
from tidelog_server.commands.engine import create_log, told
from tidelog_server.recordlog.kafka_access import KafkaAccess

if TYPE_CHECKING:
    from tidelog_server.commands.bench.server_process import ServerProcess


class BenchTopics(NamedTuple):
    """A log in a topic, and an empty topic with the same settings.

    Attributes:
        access: Kafka.
        log: Name of the topic with the log.
        plain: Name of the empty topic.
    """

    access: KafkaAccess
    log: str
    plain: str

    @property
    def settings(self) -> dict[str, str]:
        """Settings of a server on the log."""
        return {"storage.kind": "kafka", "engine.servers": self.access.servers, "engine.topic": self.log}

    @classmethod
    @contextmanager
    def created(cls, servers: str) -> Iterator[Self]:
        """Yield new topics; they are deleted at the end."""
        access = KafkaAccess(servers)
        name = f"tidelog-bench-{os.getpid()}-{token_hex(4)}"
        with ExitStack() as stack, told():
            create_log(access, name)
            stack.callback(access.delete, name)
            access.create(f"{name}-plain")
            stack.callback(access.delete, f"{name}-plain")
            access.check_created(f"{name}-plain")
            yield cls(access, name, f"{name}-plain")


@contextmanager
def running_kafka(servers: str | None, folder: Path) -> Iterator[str]:
    """Yield the addresses of a Kafka: ``servers``, or those of one that is started with its files in ``folder``."""
    if servers is not None:
        yield servers
        return
    # Imported late: it looks for Java.
    from tidelog_testing.servers.kafka import KafkaProcesses

    with KafkaProcesses(folder.absolute() / "broker") as kafka:
        yield kafka.servers


def engine_figures(process: "ServerProcess") -> dict[str, float]:
    """Return the figures of the storage engine of a server."""
    with urllib.request.urlopen(f"http://{process.http}/metrics", timeout=10) as response:
        text = response.read().decode()
    return {
        name.removeprefix("tidelog_engine_"): value
        for name, labels, value in samples(text)
        if name.startswith("tidelog_engine_") and not labels
    }
