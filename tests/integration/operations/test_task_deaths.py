"""The death of any background task ends the node, also during its start; a lost lease restarts it.

Method: each task of a server is ended in turn, as if a future that it awaits had been cancelled, while the server runs
and as soon as the task exists during a start. The tasks of a node of a cluster run on a real etcd.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tidelog_server.app import Server
from tidelog_server.config import Config, load_config
from tidelog_server.core.nodes import NodeRecord
from tidelog_server.runtime.tasks import TaskFailedError
from tidelog_testing.servers.etcd import EtcdProcess, needs_etcd

WITHIN_S: Final = 60.0
OF_ANY: Final = (
    "audit", "blobs", "broadcasts", "discarded transactions", "disk", "groups", "guard", "http_sweep", "lag",
    "mailbox-clock", "mailbox-dead-letters", "mailbox-housekeeping", "mailbox-watch", "oracle", "reclaim", "retention",
    "security", "signing keys", "transactions", "watchdog",
)  # fmt: skip
OF_A_CLUSTER: Final = (
    "channels", "journal-channels", "journals", "leader", "lease", "mailbox-channels", "mailboxes", "nodes",
    "standbys",
)  # fmt: skip


def config_of(folder: Path, etcd: EtcdProcess | None = None) -> Config:
    flags = {
        "server.grpc_port": "0", "server.http_port": "0", "server.shutdown_grace_s": "2", "log.level": "error",
        "limits.min_free_disk_bytes": "0", "storage.data_dir": str(folder / "data"), "auth.kind": "on",
    }  # fmt: skip
    if etcd is not None:
        flags |= {
            "metadata.kind": "etcd", "metadata.etcd_endpoints": etcd.endpoint, "cluster.node_id": "n1",
            "metadata.etcd_prefix": f"/{folder.name}/", "cluster.lease_ttl_s": "5", "auth.kind": "off",
        }  # fmt: skip
    return load_config(None, {}, flags)


async def end_when_it_exists(name: str) -> None:
    while not (found := [task for task in asyncio.all_tasks() if task.get_name() == name]):
        await asyncio.sleep(0)
    found[0].cancel()


async def cause_of_the_end(start: Awaitable[Server], ends: Callable[[Server], Awaitable[None]]) -> str:
    """Start a server, let ``ends`` end a task of it, and return why the start failed or the server stopped."""
    async with asyncio.timeout(WITHIN_S):
        try:
            server = await start
        except TaskFailedError as error:
            return str(error)
        try:
            await ends(server)
            return await server.wait_stopped()
        finally:
            await server.stop()


@pytest.mark.parametrize("name", OF_ANY)
async def test_a_server_ends_with_any_of_its_tasks(tmp_path: Path, name: str) -> None:
    cause = await cause_of_the_end(Server.start(config_of(tmp_path)), lambda _: end_when_it_exists(name))
    assert cause == f"the background task '{name}' failed: it was cancelled"


@pytest.mark.parametrize("name", OF_ANY)
async def test_a_start_ends_with_any_of_its_tasks(tmp_path: Path, name: str) -> None:
    ending = asyncio.create_task(end_when_it_exists(name))
    cause = await cause_of_the_end(Server.start(config_of(tmp_path)), lambda _: ending)
    assert cause == f"the background task '{name}' failed: it was cancelled"
    await ending


@needs_etcd
@pytest.mark.parametrize("name", OF_A_CLUSTER)
async def test_a_node_of_a_cluster_ends_with_any_of_its_tasks(tmp_path: Path, etcd: EtcdProcess, name: str) -> None:
    cause = await cause_of_the_end(Server.start(config_of(tmp_path, etcd)), lambda _: end_when_it_exists(name))
    assert cause == f"the background task '{name}' failed: it was cancelled"


@needs_etcd
@pytest.mark.parametrize("name", OF_A_CLUSTER)
async def test_a_start_in_a_cluster_without_a_limit_ends_too(tmp_path: Path, etcd: EtcdProcess, name: str) -> None:
    ending = asyncio.create_task(end_when_it_exists(name))
    cause = await cause_of_the_end(Server.start_again(config_of(tmp_path, etcd)), lambda _: ending)
    assert cause == f"the background task '{name}' failed: it was cancelled"
    await ending


@needs_etcd
async def test_the_tasks_above_are_all_that_never_return(tmp_path: Path, etcd: EtcdProcess) -> None:
    (tmp_path / "alone").mkdir()
    found: set[str] = set()
    for config in (config_of(tmp_path / "alone"), config_of(tmp_path, etcd)):
        server = await Server.start(config)
        found |= {task.get_name() for task in server._tasks._endless | server._http._tasks._endless}
        await server.stop()
    assert found == {*OF_ANY, *OF_A_CLUSTER}


@needs_etcd
async def test_a_node_that_loses_its_lease_while_no_leader_answers_starts_again(tmp_path: Path) -> None:
    with EtcdProcess(tmp_path / "etcd") as etcd:
        # A leader that has died for good, so that the start waits for ticks.
        leader = NodeRecord("gone", "127.0.0.1:1", "127.0.0.1:1", "00", "1", "")
        await asyncio.to_thread(etcd.control, "put", f"/{tmp_path.name}/tidelog/leader", leader.encode().decode())
        starting = asyncio.create_task(Server.start(config_of(tmp_path, etcd)))
        try:
            terms = [await registered(etcd, tmp_path, after=0)]
            await revoke_leases(etcd)
            terms.append(await registered(etcd, tmp_path, after=terms[0]))
            assert not starting.done()
            await asyncio.to_thread(etcd.control, "del", f"/{tmp_path.name}/tidelog/leader")
            async with asyncio.timeout(WITHIN_S):
                server = await starting
            assert not any(server._readiness().values())
            await server.stop()
        finally:
            starting.cancel()
            with suppress(asyncio.CancelledError):
                await starting


async def registered(etcd: EtcdProcess, folder: Path, *, after: int) -> int:
    """Wait until n1 is registered in a term after ``after``, and return it."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            told = await asyncio.to_thread(etcd.control, "get", f"/{folder.name}/tidelog/node/n1", "-w", "fields")
            terms = [int(line.split(":")[1]) for line in told.splitlines() if line.startswith('"CreateRevision"')]
            if terms and terms[0] > after:
                return terms[0]


async def revoke_leases(etcd: EtcdProcess) -> None:
    for line in (await asyncio.to_thread(etcd.control, "lease", "list")).splitlines()[1:]:
        await asyncio.to_thread(etcd.control, "lease", "revoke", line.strip())
