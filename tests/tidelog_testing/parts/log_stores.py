"""A log store of each kind, for suites that run on all of them."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tidelog_server.recordlog.access import LogAccess
from tidelog_server.recordlog.engine import LogEngine
from tidelog_server.recordlog.kafka_access import KafkaAccess
from tidelog_server.storage.log_store import LogStore
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_testing.parts.engine_stores import create_log, on_engine
from tidelog_testing.parts.folder_engine import FolderEngine
from tidelog_testing.servers.kafka import KafkaProcesses

KINDS: Final = ("memory", "rocksdb", "engine", "kafka", "pulsar")
_topics = count()


def store_of_kind(request: pytest.FixtureRequest, folder: Path) -> Iterator[LogStore]:
    """Yield a store of the kind that is the parameter of ``request``, with its files in ``folder``."""
    match request.param:
        case "memory":
            yield from _closed_after(MemoryLogStore())
        case "rocksdb":
            yield from _closed_after(open_rocksdb_log_store(folder / "store"))
        case "engine":
            yield from _on_log(folder, lambda: FolderEngine(folder / "log"))
        case kind:
            broker = request.getfixturevalue(kind)
            is_kafka = isinstance(broker, KafkaProcesses)
            access = KafkaAccess(broker.servers) if is_kafka else broker.access()
            yield from _on_log(folder, _new_topic(access))


def _closed_after(store: LogStore) -> Iterator[LogStore]:
    yield store
    store.close()


def _on_log(folder: Path, open_log: Callable[[], LogEngine]) -> Iterator[LogStore]:
    create_log(open_log())
    yield from on_engine(folder, open_log)


def _new_topic(access: LogAccess) -> Callable[[], LogEngine]:
    """Return what opens a log in a new topic."""
    topic = f"store-{next(_topics)}"
    access.create(topic)
    return lambda: access.engine(topic)
