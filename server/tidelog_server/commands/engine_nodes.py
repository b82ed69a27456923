"""Nodes of a cluster whose logs are in an engine: a node exists once etcd has the record of its log."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from tidelog_cli import event_loop
from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_server.core.errors.cluster import MetadataUnavailableError
from tidelog_server.core.limits import MAX_NODE_ID_CHARACTERS
from tidelog_server.core.nodes import is_node_id
from tidelog_server.recordlog.engine import LogExistsError

if TYPE_CHECKING:
    from tidelog_server.config import Config
    from tidelog_server.metadata.etcd import EtcdMetadataStore
    from tidelog_server.storage.engine.imports import Imported, ImportedFolder

_Answer = TypeVar("_Answer")
_WITHIN_S: Final = 10.0


class NodeExistsError(LogExistsError):
    """There is a node of this name, with a log."""


def create_node(config: "Config", name: str, create_log: Callable[[str], bytes]) -> str:
    """Create a node: its log by ``create_log``, which returns the identity of it, and its record. Return the topic.

    Raises:
        CommandError: The name is not allowed.
        NodeExistsError: There is such a node.
        MetadataUnavailableError: etcd does not answer, or refuses.
    """
    from tidelog_server.channels.catalog import ROOT
    from tidelog_server.cluster.log_records import LogRecord, log_key

    topic, key = topic_of_node(config, name), log_key(ROOT, name)
    exists = NodeExistsError(f"the node '{name}' exists: choose another name")

    async def create() -> None:
        from tidelog_server.metadata.store import Put, RevisionConflictError

        store = _store(config)
        try:
            if await _answered(store, store.get(key)) is not None:
                raise exists
            # Ordering: before the record, by which processes find the log.
            identity = await asyncio.to_thread(create_log, topic)
            await _answered(store, store.commit([Put(key, LogRecord(topic, identity).encode(), 0)]))
        except RevisionConflictError as error:
            raise exists from error
        finally:
            await store.close()

    event_loop.run(create())
    return topic


def import_node(
    config: "Config",
    name: str,
    folder: "ImportedFolder",
    create_log: Callable[[str, bytes | None], bytes],
    copy: Callable[[str], "Imported"],
) -> "Imported":
    """Make a data folder the first node of an empty cluster; return what was copied into its log.

    If it ends before, the cluster has no node, and this may be repeated.

    Args:
        config: All settings.
        name: Id of the node.
        folder: The folder.
        create_log: Creates the log in a topic, unless it has the identity that an earlier attempt gave it; returns its
            identity. Blocks.
        copy: Copies the folder into the log in a topic, in place of what it has. Blocks.

    Raises:
        CommandError: The name is not allowed.
        ClusterNotEmptyError, ImportOpenError: The cluster has something, or another import runs.
        DataLossError: The metadata of the folder is damaged.
        MetadataUnavailableError: etcd does not answer, or refuses.
        Exception: As ``create_log`` and ``copy`` do.
    """
    from tidelog_server.channels.catalog import ROOT
    from tidelog_server.cluster.log_records import LogRecord
    from tidelog_server.cluster.node_import import NodeImport
    from tidelog_server.metadata.embedded import stored_values
    from tidelog_server.node.cluster_values import cluster_values
    from tidelog_server.runtime.failpoints import Failpoint, hit

    topic = topic_of_node(config, name)
    stored = {key: found.value for key, found in stored_values(folder.metadata()).items()}
    values = cluster_values(stored, ROOT, name)

    async def run() -> "Imported":
        store = _store(config)
        importing = NodeImport(store, ROOT, name, folder.identity)
        try:
            known = await _answered(store, importing.look())
            identity = await asyncio.to_thread(create_log, topic, None if known is None else known.incarnation)
            hit(Failpoint.IMPORT_STEP)
            await _answered(store, importing.begin(LogRecord(topic, identity)))
            imported = await asyncio.to_thread(copy, topic)
            await _answered(store, importing.write(values))
            await _answered(store, importing.end())
        finally:
            await store.close()
        return imported

    return event_loop.run(run())


def topic_of_node(config: "Config", name: str) -> str:
    """Return the topic of a node. Raises CommandError if its id is not allowed, or the cluster has no name."""
    from tidelog_server.config import ANY_NODE

    if not is_node_id(name) or name == ANY_NODE:
        raise CommandError(
            f"'{name}' is not allowed as the id of a node: 1 to {MAX_NODE_ID_CHARACTERS} of a-z, 0-9 and -, and not "
            f"{ANY_NODE}",
            ExitCode.USAGE,
        )
    if not config.cluster.name:
        raise CommandError(
            "cluster.name is not set, which is a part of the names of the topics: give --cluster.name NAME",
            ExitCode.USAGE,
        )
    return config.engine.topic_of(name, config.cluster.name)


def _store(config: "Config") -> "EtcdMetadataStore":
    from tidelog_server.from_settings import etcd_access
    from tidelog_server.metadata.etcd import EtcdMetadataStore
    from tidelog_server.runtime.clock import SystemClock

    return EtcdMetadataStore(etcd_access(config), config.metadata.etcd_prefix, SystemClock())


async def _answered(store: "EtcdMetadataStore", answer: Awaitable[_Answer]) -> _Answer:
    """Return the answer of etcd. Raises MetadataUnavailableError without one."""
    try:
        async with asyncio.timeout(_WITHIN_S):
            return await answer
    except TimeoutError:
        raise MetadataUnavailableError(
            f"etcd did not answer within {_WITHIN_S:.0f} s; last error: {store.last_failure or 'none'}"
        ) from None
