"""The steps in which the metadata of a server becomes that of a node: all or nothing, and one import at a time."""

from collections.abc import Sequence

import pytest

from tidelog_server.cluster.log_records import LogRecord, StandbyRecord, log_key, standby_key
from tidelog_server.cluster.node_import import ClusterNotEmptyError, ImportOpenError, NodeImport, import_key
from tidelog_server.cluster.session import node_key
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.nodes import NodeRecord
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_server.metadata.store import Change, Put
from tidelog_server.node.cluster_values import cluster_values

_ROOT = "root"
_LOG = LogRecord("topic", bytes(16))
_NODE = NodeRecord("n9", "127.0.0.1:1", "127.0.0.1:2", "process", "1")


def values(count: int) -> dict[str, bytes]:
    return {f"{_ROOT}/token/{number:04}": b"%d" % number for number in range(count)}


async def put(store: MemoryMetadataStore, key: str, value: bytes = b"x") -> None:
    await store.commit([Put(key, value, None)])


async def stored(store: MemoryMetadataStore) -> dict[str, bytes]:
    return {key: found.value for key, found in (await store.list(f"{_ROOT}/")).items()}


async def test_the_node_appears_with_the_last_change_and_what_an_empty_cluster_has_stays() -> None:
    store = MemoryMetadataStore()
    own = {
        f"{_ROOT}/cluster": b"id", f"{_ROOT}/leader": b"leader", f"{_ROOT}/timestamp": b"\0\5",
        standby_key(_ROOT, "p1"): StandbyRecord(frozenset()).encode(),
    }  # fmt: skip
    for key, value in own.items():
        await put(store, key, value)
    # More than one commit takes, by number and by size.
    wanted = {**values(300), f"{_ROOT}/local/n1/big": bytes(900_000), f"{_ROOT}/local/n1/large": bytes(900_000)}
    importing = NodeImport(store, _ROOT, "n1", "folder")
    assert await importing.look() is None
    await importing.begin(_LOG)
    await importing.write({**wanted, f"{_ROOT}/timestamp": b"\0\7"})
    found = await stored(store)
    assert log_key(_ROOT, "n1") not in found
    assert import_key(_ROOT) in found
    await importing.end()
    expected = {**own, **wanted, f"{_ROOT}/timestamp": b"\0\7", log_key(_ROOT, "n1"): _LOG.encode()}
    assert await stored(store) == expected


async def test_the_greater_bound_of_ticks_is_kept() -> None:
    store = MemoryMetadataStore()
    await put(store, f"{_ROOT}/timestamp", b"\0\7")
    importing = NodeImport(store, _ROOT, "n1", "folder")
    await importing.begin(_LOG)
    await importing.write({f"{_ROOT}/timestamp": b"\0\5"})
    assert (await stored(store))[f"{_ROOT}/timestamp"] == b"\0\7"


async def test_an_import_that_did_not_end_is_repeated_and_what_it_left_is_deleted() -> None:
    store = MemoryMetadataStore()
    first = NodeImport(store, _ROOT, "n1", "folder")
    await first.begin(_LOG)
    await first.write(values(200))
    # The folder has other values now.
    second = NodeImport(store, _ROOT, "n1", "folder")
    assert await second.look() == _LOG
    other = LogRecord("topic", bytes(range(16)))
    await second.begin(other)
    # The first one still runs.
    with pytest.raises(ImportOpenError, match="another process has changed"):
        await first.write(values(201))
    with pytest.raises(ImportOpenError):
        await first.end()
    await second.write(values(3))
    await second.end()
    assert await stored(store) == {**values(3), log_key(_ROOT, "n1"): other.encode()}


@pytest.mark.parametrize(("node", "folder"), [("n2", "folder"), ("n1", "other")])
async def test_another_import_does_not_continue_one_that_did_not_end(node: str, folder: str) -> None:
    store = MemoryMetadataStore()
    await NodeImport(store, _ROOT, "n1", "folder").begin(_LOG)
    with pytest.raises(
        ImportOpenError, match="repeat `tidelog engine import n1 FOLDER`, with the folder whose store is"
    ):
        await NodeImport(store, _ROOT, node, folder).look()


@pytest.mark.parametrize("key", ["channel/orders", "token/t", "log/n2", "next_vchannel_id"])
async def test_a_cluster_that_has_something_is_refused_and_not_changed(key: str) -> None:
    store = MemoryMetadataStore()
    await put(store, f"{_ROOT}/{key}")
    before = await stored(store)
    importing = NodeImport(store, _ROOT, "n1", "folder")
    for attempt in (importing.look, lambda: importing.begin(_LOG)):
        with pytest.raises(ClusterNotEmptyError, match=f"etcd has '{_ROOT}/{key}'"):
            await attempt()
    assert await stored(store) == before


class RegisteringStore(MemoryMetadataStore):
    """A store in which a process registers right after the first change of an import."""

    registers = True

    async def commit(self, changes: Sequence[Change], *, is_before_log: bool = False) -> int:
        revision = await super().commit(changes, is_before_log=is_before_log)
        if self.registers:
            self.registers = False
            await put(self, node_key(_ROOT, "n9"), _NODE.encode())
        return revision


async def test_a_process_that_registers_meanwhile_ends_the_import_without_a_trace() -> None:
    shared = SharedMemory()
    before = MemoryMetadataStore(shared)
    # A node that was created and never served: its record comes back.
    await put(before, log_key(_ROOT, "n1"), b"record")
    importing = NodeImport(RegisteringStore(shared), _ROOT, "n1", "folder")
    with pytest.raises(ClusterNotEmptyError, match=r"the process at 127\.0\.0\.1:1 serves node 'n9' of this cluster"):
        await importing.begin(_LOG)
    assert await stored(before) == {log_key(_ROOT, "n1"): b"record", node_key(_ROOT, "n9"): _NODE.encode()}


def test_a_record_that_is_not_known_is_refused() -> None:
    assert cluster_values({"root/timestamp": b"1", "root/broadcast_floor": b"2"}, "root", "n1") == {
        "root/timestamp": b"1", "root/local/n1/broadcast_floor": b"2",
    }  # fmt: skip
    with pytest.raises(DataLossError, match="the record root/later/x, which this server does not know"):
        cluster_values({"root/later/x": b"1"}, "root", "n1")
