"""Every metadata store that nodes share fulfils the contract of ``SharedMetadataStore``: leases, watches, fences.

Method: the same tests on each implementation. Two stores are two nodes. Events that only etcd has, such as a restart or
a compaction while no client is connected, are tested on an etcd that the test starts.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from tidelog_server.core.errors.cluster import MetadataUnavailableError, OwnershipLostError
from tidelog_server.metadata.etcd import EtcdMetadataStore
from tidelog_server.metadata.etcd_connection import EtcdAccess
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_server.metadata.store import (
    Delete,
    Fence,
    Put,
    RevisionConflictError,
    SharedMetadataStore,
    Versioned,
    Watched,
)
from tidelog_server.runtime.clock import SystemClock
from tidelog_testing.parts.waiting import eventually, until
from tidelog_testing.servers.certificates import Authority, make_pair
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.ports import free_port

NewStore = Callable[[], SharedMetadataStore]


@pytest.fixture(params=["memory", "etcd"])
async def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NewStore]:
    opened: list[SharedMetadataStore] = []
    memory = SharedMemory()

    def in_memory() -> SharedMetadataStore:
        opened.append(MemoryMetadataStore(memory))
        return opened[-1]

    def on_etcd() -> SharedMetadataStore:
        etcd: EtcdProcess = request.getfixturevalue("etcd")
        opened.append(EtcdMetadataStore(EtcdAccess((etcd.endpoint,)), f"/{tmp_path.name}/", SystemClock()))
        return opened[-1]

    yield in_memory if request.param == "memory" else on_etcd
    for store in opened:
        await store.close()


async def next_of(changes: AsyncIterator[Watched]) -> Watched:
    async with asyncio.timeout(60):
        return await anext(changes)


# -- Watches -----------------------------------------------------------------------------------------------


async def test_a_watch_begins_with_what_there_is_and_goes_on_with_changes(new_store: NewStore) -> None:
    store, other = new_store(), new_store()
    first = await store.commit([Put("a/1", b"1", 0), Put("b", b"", 0)])
    async with aclosing(store.watch("a/")) as changes:
        assert await next_of(changes) == Watched(first, {"a/1": Versioned(b"1", first)}, is_snapshot=True)
        second = await other.commit([Put("a/1", b"2", first), Put("a/2", b"", 0)])
        told = await next_of(changes)
        assert told.values == {"a/1": Versioned(b"2", second), "a/2": Versioned(b"", second)}
        assert (told.deleted, told.is_snapshot, told.revision) == (frozenset(), False, second)
        await other.commit([Put("b", b"not of the prefix", None)])
        await other.commit([Delete("a/1", second)])
        told = await next_of(changes)
        assert (told.values, told.deleted) == ({}, frozenset({"a/1"}))


async def test_two_watches_do_not_disturb_each_other(new_store: NewStore) -> None:
    store = new_store()
    async with aclosing(store.watch("a/")) as first, aclosing(store.watch("")) as second:
        assert (await next_of(first)).is_snapshot
        assert (await next_of(second)).is_snapshot
        revision = await store.commit([Put("a/1", b"1", 0)])
        for told in (await next_of(first), await next_of(second)):
            assert told.values == {"a/1": Versioned(b"1", revision)}


# -- Leases ------------------------------------------------------------------------------------------------


async def test_a_key_ends_with_its_lease(new_store: NewStore) -> None:
    store = new_store()
    lease_id, ttl_s = await store.grant_lease(2)
    assert ttl_s >= 2
    await store.commit([Put("a", b"", 0, lease_id=lease_id), Put("stays", b"", 0)])
    await eventually(lambda: store.get("a"), lambda found: found is None)
    assert await store.get("stays") is not None
    assert await store.renew_lease(lease_id) == 0
    await store.revoke_lease(lease_id)


async def test_a_lease_that_is_renewed_lasts(new_store: NewStore) -> None:
    store = new_store()
    lease_id, ttl_s = await store.grant_lease(1)
    await store.commit([Put("a", b"", 0, lease_id=lease_id)])
    loop = asyncio.get_running_loop()
    end_s = loop.time() + 1.5 * ttl_s
    while loop.time() < end_s:
        assert await store.renew_lease(lease_id) == ttl_s
        await asyncio.sleep(0.1)
    assert await store.get("a") is not None


async def test_a_revoked_lease_takes_its_keys_along_at_once(new_store: NewStore) -> None:
    store = new_store()
    lease_id, _ = await store.grant_lease(60)
    await store.commit([Put("a/1", b"", 0, lease_id=lease_id), Put("a/2", b"", 0, lease_id=lease_id)])
    async with aclosing(store.watch("a/")) as changes:
        assert len((await next_of(changes)).values) == 2
        await store.revoke_lease(lease_id)
        assert (await next_of(changes)).deleted == {"a/1", "a/2"}
    with pytest.raises(MetadataUnavailableError):
        await store.commit([Put("a/3", b"", 0, lease_id=lease_id)])


# -- Fences ------------------------------------------------------------------------------------------------


async def test_a_fence_that_stands_lets_changes_through_and_a_gone_one_none(new_store: NewStore) -> None:
    store, other = new_store(), new_store()
    created = await store.commit([Put("fence", b"", 0)])
    store.set_fence(Fence("fence", created, "n1"))
    await store.commit([Put("a", b"1", 0)])
    # A change of the fence's value does not matter: the fence compares the creation revision.
    await store.commit([Put("fence", b"2", created)])
    await store.commit([Put("a", b"2", None)])

    await other.commit([Delete("fence", None)])
    with pytest.raises(OwnershipLostError):
        await store.commit([Put("a", b"3", None)])
    await other.commit([Put("fence", b"somebody else's", 0)])
    with pytest.raises(OwnershipLostError):
        await store.commit([Put("a", b"3", None)])
    found = await other.get("a")
    assert found is not None
    assert found.value == b"2"


async def test_within_the_fence_conflicts_are_told_as_ever(new_store: NewStore) -> None:
    store = new_store()
    created = await store.commit([Put("fence", b"", 0)])
    store.set_fence(Fence("fence", created, "n1"))
    with pytest.raises(RevisionConflictError):
        await store.commit([Put("fence", b"", 0)])
    await store.commit([Put(f"many/{number}", b"", 0) for number in range(127)])
    assert len(await store.list("many/")) == 127


# -- Events that only etcd has -----------------------------------------------------------------------------


def an_etcd_store(etcd: EtcdProcess, **access: object) -> EtcdMetadataStore:
    return EtcdMetadataStore(EtcdAccess((etcd.endpoint,), **access), "/test/", SystemClock())  # type: ignore[arg-type]  # Of the test.


async def test_a_watch_goes_on_after_a_restart_without_a_gap(tmp_path: Path) -> None:
    with EtcdProcess(tmp_path / "etcd") as etcd:
        store = an_etcd_store(etcd)
        async with aclosing(store.watch("a/")) as changes:
            await next_of(changes)
            revision = await store.commit([Put("a/1", b"", 0)])
            assert (await next_of(changes)).values == {"a/1": Versioned(b"", revision)}
            waiting = asyncio.ensure_future(anext(changes))
            await asyncio.to_thread(etcd.kill)
            await asyncio.to_thread(etcd.start)
            revision = await store.commit([Put("a/2", b"", 0)])
            async with asyncio.timeout(60):
                assert await waiting == Watched(revision, {"a/2": Versioned(b"", revision)})
        await store.close()


async def test_a_watch_that_missed_a_compaction_tells_everything_anew(tmp_path: Path) -> None:
    with EtcdProcess(tmp_path / "etcd") as etcd:
        store, other = an_etcd_store(etcd), an_etcd_store(etcd)
        first = await store.commit([Put("a/1", b"", 0), Put("a/2", b"", 0)])
        async with aclosing(store.watch("a/")) as changes:
            assert (await next_of(changes)).revision == first
            # The watch is not read while etcd compacts the changes that it would receive next.
            await other.commit([Delete("a/1", first)])
            revision = await other.commit([Put("a/3", b"", 0)])
            await asyncio.to_thread(etcd.control, "compact", str(revision))
            await asyncio.to_thread(etcd.kill)
            await asyncio.to_thread(etcd.start)
            told = await next_of(changes)
            while not told.is_snapshot:
                told = await next_of(changes)
            assert set(told.values) == {"a/2", "a/3"}
        for each in (store, other):
            await each.close()


async def test_a_commit_waits_for_an_etcd_that_is_away_and_is_made_once(tmp_path: Path) -> None:
    with EtcdProcess(tmp_path / "etcd") as etcd:
        store = an_etcd_store(etcd)
        before = await store.commit([Put("n", b"0", 0)])
        etcd.kill()
        waiting = asyncio.ensure_future(store.commit([Put("n", b"1", before)]))
        await until(lambda: store.silent_s > 0)
        assert not waiting.done()
        await asyncio.to_thread(etcd.start)
        async with asyncio.timeout(60):
            revision = await waiting
        assert await store.get("n") == Versioned(b"1", revision)
        assert store.silent_s == 0
        await store.close()


async def test_a_member_that_is_away_is_passed_over(etcd: EtcdProcess, tmp_path: Path) -> None:
    access = EtcdAccess((f"127.0.0.1:{free_port()}", etcd.endpoint))
    store = EtcdMetadataStore(access, f"/{tmp_path.name}/", SystemClock())
    async with asyncio.timeout(60):
        await store.commit([Put("a", b"", 0)])
    await store.close()


async def test_a_closed_store_lets_nobody_wait(tmp_path: Path) -> None:
    with EtcdProcess(tmp_path / "etcd") as etcd:
        store = an_etcd_store(etcd)
        await store.commit([Put("a", b"", 0)])
        etcd.kill()
        waiting = asyncio.gather(store.get("a"), store.commit([Put("b", b"", 0)]), return_exceptions=True)
        await until(lambda: store.silent_s > 0)
        await store.close()
        async with asyncio.timeout(60):
            assert all(isinstance(each, Exception) for each in await waiting)


async def test_a_user_with_a_password_may_and_another_may_not(tmp_path: Path) -> None:
    with EtcdProcess(tmp_path / "etcd", options=("--auth-token-ttl", "1")) as etcd:
        for command in (
            "user add root:secret", "role add tidelog", "role grant-permission tidelog --prefix=true readwrite /test/",
            "user add tidelog:also", "user grant-role tidelog tidelog", "auth enable",
        ):  # fmt: skip
            await asyncio.to_thread(etcd.control, *command.split())
        password, wrong = tmp_path / "password", tmp_path / "wrong"
        password.write_text("also\n")
        wrong.write_text("guess\n")
        store = an_etcd_store(etcd, username="tidelog", password_file=password)
        await store.commit([Put("a", b"1", 0)])
        # The token expires after a second; the store gets a new one by itself.
        revision = (await store.get("a") or Versioned(b"", 0)).revision
        async with asyncio.timeout(60):
            for _ in range(3):
                await asyncio.sleep(0.7)
                revision = await store.commit([Put("a", b"2", revision)])
        await store.close()
        for refused in (
            an_etcd_store(etcd, username="tidelog", password_file=wrong),
            EtcdMetadataStore(
                EtcdAccess((etcd.endpoint,), username="tidelog", password_file=password), "/other/", SystemClock()
            ),
            an_etcd_store(etcd),
        ):
            with pytest.raises(MetadataUnavailableError, match=etcd.endpoint):
                await refused.get("a")
            await refused.close()


async def test_tls_with_a_certificate_of_our_own(tmp_path: Path) -> None:
    authority, stranger = Authority.make(tmp_path), Authority.make(tmp_path, "stranger")
    server = make_pair("etcd", authority.pair, has_loopback=True).write(tmp_path, "etcd")
    client = make_pair("node", authority.pair, dns=("node",)).write(tmp_path, "node")
    unknown = make_pair("node", stranger.pair, dns=("node",)).write(tmp_path, "unknown")
    with EtcdProcess(tmp_path / "etcd", tls=(authority.ca, *server)) as etcd:
        store = an_etcd_store(etcd, ca_file=authority.ca, cert_file=client[0], key_file=client[1])
        async with asyncio.timeout(60):
            await store.commit([Put("a", b"", 0)])
        await store.close()

        refused = an_etcd_store(etcd, ca_file=authority.ca, cert_file=unknown[0], key_file=unknown[1])
        waiting = asyncio.ensure_future(refused.get("a"))
        await until(lambda: refused.silent_s > 0)
        await refused.close()
        with pytest.raises(Exception, match="closed"):
            await waiting
