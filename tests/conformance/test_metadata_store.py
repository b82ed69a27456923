"""Every metadata store fulfils the contract of ``metadata.store``.

Method: the same tests on each implementation; the embedded one on a real RocksDB store and its writer thread, the
shared one on a real etcd.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tidelog_server.core.errors import StorageFailedError
from tidelog_server.metadata.embedded import EmbeddedMetadataStore
from tidelog_server.metadata.etcd import EtcdMetadataStore
from tidelog_server.metadata.etcd_connection import EtcdAccess
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_server.metadata.store import Delete, MetadataStore, Put, RevisionConflictError, Versioned
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_testing.servers.etcd import EtcdProcess


async def at_once(call: Callable[[], int]) -> int:
    return call()


@pytest.fixture(params=["memory", "embedded", "etcd"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    if request.param == "etcd":
        etcd: EtcdProcess = request.getfixturevalue("etcd")
        shared = EtcdMetadataStore(EtcdAccess((etcd.endpoint,)), f"/{tmp_path.name}/", SystemClock())
        yield shared
        await shared.close()
        return
    if request.param == "memory":
        memory = MemoryMetadataStore()
        yield memory
        await memory.close()
        return
    log_store = open_rocksdb_log_store(tmp_path / "store")
    with ThreadPoolExecutor(1) as executor:
        embedded = await EmbeddedMetadataStore.open(log_store.metadata_rows(), executor, at_once)
        yield embedded
        await embedded.close()
    log_store.close()


async def test_an_absent_key_is_none(store: MetadataStore) -> None:
    assert await store.get("a") is None
    assert await store.list("") == {}


async def test_a_value_carries_the_revision_of_its_last_change(store: MetadataStore) -> None:
    first = await store.commit([Put("a", b"1", None), Put("b", b"2", None)])
    second = await store.commit([Put("a", b"3", None)])
    assert second > first > 0
    assert await store.get("a") == Versioned(b"3", second)
    assert await store.get("b") == Versioned(b"2", first)


async def test_a_list_is_in_order_and_only_of_its_prefix(store: MetadataStore) -> None:
    keys = ["c/b", "c/a", "c", "ca", "b", "d", "c/ä"]
    await store.commit([Put(key, key.encode(), None) for key in keys])
    listed = await store.list("c/")
    assert list(listed) == sorted(key for key in keys if key.startswith("c/"))
    assert all(listed[key].value == key.encode() for key in listed)
    assert len(await store.list("")) == len(keys)


async def test_put_if_absent_conflicts_with_a_value(store: MetadataStore) -> None:
    revision = await store.commit([Put("a", b"1", 0)])
    with pytest.raises(RevisionConflictError) as conflict:
        await store.commit([Put("a", b"2", 0)])
    assert (conflict.value.key, conflict.value.actual_revision) == ("a", revision)


async def test_a_change_expects_the_revision_it_read(store: MetadataStore) -> None:
    revision = await store.commit([Put("a", b"1", 0)])
    await store.commit([Put("a", b"2", revision)])
    with pytest.raises(RevisionConflictError):
        await store.commit([Put("a", b"3", revision)])
    with pytest.raises(RevisionConflictError):
        await store.commit([Delete("a", revision)])
    with pytest.raises(RevisionConflictError):
        await store.commit([Put("never", b"", revision)])
    value = await store.get("a")
    assert value is not None
    assert value.value == b"2"


async def test_one_conflict_leaves_everything_as_it_was(store: MetadataStore) -> None:
    await store.commit([Put("a", b"1", 0)])
    before = await store.list("")
    with pytest.raises(RevisionConflictError):
        await store.commit([Put("b", b"2", 0), Delete("a", None), Put("c", b"3", 99)])
    assert await store.list("") == before


async def test_a_deleted_key_is_gone_and_may_come_again(store: MetadataStore) -> None:
    revision = await store.commit([Put("a", b"1", 0)])
    await store.commit([Delete("a", revision)])
    assert await store.get("a") is None
    await store.commit([Delete("a", None)])
    again = await store.commit([Put("a", b"2", 0)])
    assert await store.get("a") == Versioned(b"2", again)


async def test_values_may_be_any_bytes(store: MetadataStore) -> None:
    values = {"empty": b"", "zeros": bytes(100), "large": bytes(range(256)) * 1_000}
    await store.commit([Put(key, value, None) for key, value in values.items()])
    assert {key: versioned.value for key, versioned in (await store.list("")).items()} == values


async def test_of_concurrent_changes_one_wins(store: MetadataStore) -> None:
    await store.commit([Put("n", b"0", 0)])

    async def increment() -> None:
        while True:
            current = await store.get("n")
            assert current is not None
            try:
                await store.commit([Put("n", str(int(current.value) + 1).encode(), current.revision)])
            except RevisionConflictError:
                continue
            return

    await asyncio.gather(*(increment() for _ in range(20)))
    value = await store.get("n")
    assert value is not None
    assert value.value == b"20"


async def test_too_many_changes_or_a_key_twice_is_a_bug(store: MetadataStore) -> None:
    with pytest.raises(AssertionError):
        await store.commit([Put(str(i), b"", None) for i in range(129)])
    with pytest.raises(AssertionError):
        await store.commit([Put("a", b"", None), Delete("a", None)])


async def test_a_closed_store_refuses_commits(store: MetadataStore) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StorageFailedError):
        await store.commit([Put("a", b"", None)])
