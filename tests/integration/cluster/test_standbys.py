"""Processes without a node: one of them serves a node as soon as its owner ends, and loses nothing acknowledged.

Method: real processes with short leases on a real etcd; the logs are in folders that all processes share.

Promises of docs/reference/guarantees.md: G1, G2, G43, G44.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog import AppendUnknownError, AsyncClient, AsyncCluster, DeadlineError, UnavailableError
from tidelog_cli.exit_codes import ExitCode
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.engine.open import LogName, open_engine_store
from tidelog_testing.parts.folder_engine import FolderEngine
from tidelog_testing.parts.waiting import eventually
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.engine_cluster import EngineCluster, EngineProcess, Load, refusal_of
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.on_folder import LOSE, silence

_TTL_S = 2


@pytest.fixture
def cluster(tmp_path: Path, etcd: EtcdProcess) -> Iterator[EngineCluster]:
    with EngineCluster(tmp_path / "cluster", etcd, lease_ttl_s=_TTL_S) as running:
        yield running


async def started(cluster: EngineCluster, nodes: int, processes: int) -> None:
    for number in range(nodes):
        await asyncio.to_thread(cluster.create_node, f"n{number + 1}")
    for number in range(processes):
        await asyncio.to_thread(cluster.start, f"p{number + 1}")
    await cluster.settled(nodes, processes - nodes)


async def with_channel(cluster: EngineCluster) -> Load:
    [owner] = cluster.in_state("ready")
    async with AsyncClient(owner.grpc) as client:
        await client.create_channel("orders")
    load = Load(cluster, "orders/0")
    await load.run_until(lambda: len(load.acknowledged) >= 20)
    return load


async def caught_up(cluster: EngineCluster, standby: EngineProcess) -> None:
    await cluster.until(lambda: '"log_caught_up"' in standby.errors)


async def test_a_standby_serves_the_node_of_a_process_that_was_killed(cluster: EngineCluster) -> None:
    await started(cluster, nodes=1, processes=3)
    for standby in cluster.in_state("standby"):
        assert standby.get("/livez") == (200, "ok\n")
        assert standby.get("/readyz") == (503, "not ready: standby\n")
        assert "tidelog_ready 0.0" in standby.get("/metrics")[1]
        await caught_up(cluster, standby)
    load = await with_channel(cluster)
    [owner] = cluster.in_state("ready")
    owner.kill()
    killed_s, before = time.monotonic(), len(load.acknowledged)
    await load.run_until(lambda: len(load.acknowledged) > before + 20)
    next_s = min(at_s for at_s in load.acknowledged.values() if at_s > killed_s) - killed_s
    # Not before the lease of the former owner ends: it could still have acknowledged.
    assert next_s < _TTL_S + 20
    await cluster.settled(1, 1)
    stored = await load.payloads()
    assert set(load.acknowledged) <= set(stored)
    assert len(stored) == len(set(stored))
    await load.close()


async def test_a_process_that_is_stopped_by_sigterm_hands_its_node_over(tmp_path: Path, etcd: EtcdProcess) -> None:
    # A lease that nothing here waits for.
    with EngineCluster(tmp_path / "cluster", etcd, lease_ttl_s=300) as cluster:
        await started(cluster, nodes=1, processes=2)
        load = await with_channel(cluster)
        [owner] = cluster.in_state("ready")
        owner.terminate()
        before = len(load.acknowledged)
        await load.run_until(lambda: len(load.acknowledged) > before + 20)
        assert await asyncio.to_thread(owner.wait) == ExitCode.OK
        assert "handed_over" in owner.errors
        # What ends behind the hand-over is no loss of the lease.
        assert "lease_lost" not in owner.errors
        await cluster.settled(1, 0)
        assert set(load.acknowledged) <= set(await load.payloads())
        [successor] = cluster.in_state("ready")
        assert successor.errors.count('"registered"') == 1
        await load.close()


def test_a_process_that_has_just_begun_is_killed(cluster: EngineCluster) -> None:
    # Before it has made itself the leader of a group.
    for name in ("p1", "p2", "p3"):
        process = cluster.start(name)
        process.kill()
        assert process.code == -signal.SIGKILL


async def test_a_standby_ends_at_once_when_it_is_asked_to(cluster: EngineCluster) -> None:
    await started(cluster, nodes=1, processes=2)
    [standby] = cluster.in_state("standby")
    standby.terminate()
    assert await asyncio.to_thread(standby.wait) == ExitCode.OK
    assert "standby" not in cluster.etcd.control("get", "--prefix", "--keys-only", f"{cluster.prefix}tidelog/standby/")


async def test_a_former_owner_that_was_stopped_becomes_a_standby(cluster: EngineCluster) -> None:
    await started(cluster, nodes=1, processes=2)
    load = await with_channel(cluster)
    [owner], [other] = cluster.in_state("ready"), cluster.in_state("standby")
    os.kill(owner.pid, signal.SIGSTOP)
    try:
        await cluster.until(lambda: other.state == "ready")
    finally:
        os.kill(owner.pid, signal.SIGCONT)
    async with AsyncClient(owner.grpc) as client:
        with pytest.raises((UnavailableError, DeadlineError, AppendUnknownError)):
            await client.append("orders/0", b"0", timeout_s=0.5)
    await cluster.until(lambda: owner.state == "standby")
    assert "lease_lost" in owner.errors
    before = len(load.acknowledged)
    await load.run_until(lambda: len(load.acknowledged) > before + 20)
    stored = await load.payloads()
    assert set(load.acknowledged) <= set(stored)
    assert 0 not in stored
    # And back: it serves again when the other one ends.
    other.terminate()
    await cluster.until(lambda: owner.state == "ready")
    await load.run_until(lambda: len(load.acknowledged) > before + 40)
    assert set(load.acknowledged) <= set(await load.payloads())
    await load.close()


async def test_an_owner_that_waits_for_a_silent_log_hands_its_node_over_and_ends(
    tmp_path: Path, etcd: EtcdProcess
) -> None:
    # A lease that nothing here waits for.
    with EngineCluster(tmp_path / "cluster", etcd, lease_ttl_s=300) as cluster:
        cluster.settings["server.shutdown_grace_s"] = 8
        await started(cluster, nodes=1, processes=2)
        load = await with_channel(cluster)
        [owner] = cluster.in_state("ready")
        silence(cluster.logs / "n1", owner.pid)
        assert not await load.append()
        owner.terminate()
        assert await asyncio.to_thread(owner.wait) == ExitCode.OK
        assert "log_given_up" in owner.errors
        before = len(load.acknowledged)
        await load.run_until(lambda: len(load.acknowledged) > before + 20)
        assert set(load.acknowledged) <= set(await load.payloads())
        await load.close()


async def test_an_owner_that_waits_for_a_silent_log_without_a_lease_becomes_a_standby(cluster: EngineCluster) -> None:
    await started(cluster, nodes=1, processes=2)
    load = await with_channel(cluster)
    [owner], [other] = cluster.in_state("ready"), cluster.in_state("standby")
    silence(cluster.logs / "n1", owner.pid)
    assert not await load.append()
    await asyncio.to_thread(cluster.revoke, "n1", owner)
    await cluster.until(lambda: other.state == "ready")
    await cluster.until(lambda: owner.state == "standby")
    assert "log_given_up" in owner.errors
    assert "storage_failed" not in owner.errors
    before = len(load.acknowledged)
    await load.run_until(lambda: len(load.acknowledged) > before + 20)
    assert set(load.acknowledged) <= set(await load.payloads())
    await load.close()


async def test_an_owner_whose_log_is_claimed_by_another_process_claims_it_in_a_new_term(
    cluster: EngineCluster, tmp_path: Path
) -> None:
    await started(cluster, nodes=1, processes=1)
    load = await with_channel(cluster)
    [owner] = cluster.in_state("ready")
    log = RecordLog(FolderEngine(cluster.logs / "n1"), SystemClock())
    claimed = await asyncio.to_thread(open_engine_store, tmp_path / "view", log, LogName("folder", "n1"))
    # The owner learns of it with its next record, which it does not acknowledge.
    before = len(load.acknowledged)
    await load.run_until(lambda: len(load.acknowledged) > before + 20)
    assert "lease_lost" in owner.errors
    # Again and again, if the machine holds it up for longer than its lease.
    assert owner.errors.count('"node_claimed"') >= 2
    stored = await load.payloads()
    assert set(load.acknowledged) <= set(stored)
    assert len(stored) == len(set(stored))
    await asyncio.to_thread(claimed.close)
    await load.close()


@pytest.mark.parametrize("node_id", ["auto", "n1"])
async def test_an_owner_that_loses_a_record_becomes_a_standby_and_the_node_is_claimed_again(
    cluster: EngineCluster, node_id: str
) -> None:
    await asyncio.to_thread(cluster.create_node, "n1")
    for name in ("p1", "p2"):
        await asyncio.to_thread(cluster.start, name, {"cluster.node_id": node_id})
    await cluster.settled(1, 1)
    load = await with_channel(cluster)
    [owner] = cluster.in_state("ready")
    (cluster.logs / "n1" / LOSE).touch()
    before = len(load.acknowledged)
    await load.run_until(lambda: len(load.acknowledged) > before + 20)
    assert "record of this process" in owner.errors
    assert owner.code is None
    await cluster.settled(1, 1)
    stored = await load.payloads()
    assert set(load.acknowledged) <= set(stored)
    # The record was stored, which its client did not learn, and so appended it again.
    assert len(stored) - len(set(stored)) <= 1
    await load.close()


async def test_processes_serve_a_node_each_and_channels_of_all(cluster: EngineCluster) -> None:
    await started(cluster, nodes=2, processes=3)
    owners = cluster.in_state("ready")
    async with AsyncClient(owners[0].grpc) as client:
        described = await client.describe_cluster()
        assert {node.node_id: node.address for node in described.nodes}.keys() == {"n1", "n2"}
        assert {node.address for node in described.nodes} == {each.grpc for each in owners}
    async with AsyncCluster([each.grpc for each in owners]) as client:
        for name in ("c0", "c1"):
            channel = await client.ensure_channel(name)
            await channel.vchannel(0).append(b"1")
        assert {(await client.owner_of(name)).node_id for name in ("c0", "c1")} == {"n1", "n2"}


async def test_standbys_are_listed_with_what_they_follow_and_how_far_they_are_behind(cluster: EngineCluster) -> None:
    await started(cluster, nodes=2, processes=3)
    [standby] = cluster.in_state("standby")
    owner = cluster.in_state("ready")[0]

    def listed(*options: str) -> str:
        return run_command(["cluster", "ls", "--endpoint", owner.grpc, *options]).stdout.decode()

    rows: list[dict[str, object]] = []

    def are_caught_up() -> bool:
        rows[:] = [json.loads(line) for line in listed().splitlines()]
        return [row["lag_seconds"] for row in rows] == [None, None, [0.0, 0.0]]

    await cluster.until(are_caught_up)
    first, second, last = rows
    assert [first["node"], second["node"], last["node"]] == ["n1", "n2", None]
    assert (first["standby"], first["follows"]) == (None, None)
    assert (last["address"], last["http"], last["follows"]) == (standby.grpc, standby.http, ["n1", "n2"])
    assert last["lag_positions"] == [0, 0]
    assert last["version"] == first["version"]
    table = await asyncio.to_thread(listed, "--output", "table")
    assert str(last["standby"]) in table
    assert "n1 n2" in table
    metrics = standby.get("/metrics")[1]
    for node in ("n1", "n2"):
        assert f'tidelog_standby_lag_positions{{node="{node}"}} 0.0' in metrics
        assert f'tidelog_standby_lag_seconds{{node="{node}"}} ' in metrics


async def test_processes_with_the_same_node_id_stand_by_for_it(cluster: EngineCluster) -> None:
    await asyncio.to_thread(cluster.create_node, "n1")
    for name in ("p1", "p2"):
        await asyncio.to_thread(cluster.start, name, {"cluster.node_id": "n1"})
    await cluster.settled(1, 1)
    load = await with_channel(cluster)
    [owner] = cluster.in_state("ready")
    owner.terminate()
    before = len(load.acknowledged)
    await load.run_until(lambda: len(load.acknowledged) > before + 5)
    assert set(load.acknowledged) <= set(await load.payloads())
    await load.close()


async def test_a_node_whose_log_is_damaged_is_left_and_others_are_served(cluster: EngineCluster) -> None:
    await asyncio.to_thread(cluster.create_node, "n1")
    await asyncio.to_thread(cluster.create_node, "n2")
    first = cluster.logs / "n1" / f"{0:020}"
    damaged = bytearray(first.read_bytes())
    damaged[-1] ^= 1
    first.write_bytes(damaged)
    for name in ("p1", "p2"):
        await asyncio.to_thread(cluster.start, name)
    await cluster.settled(1, 1)
    [owner], [standby] = cluster.in_state("ready"), cluster.in_state("standby")
    async with AsyncClient(owner.grpc) as client:
        # A process tries n1 again after a while, and is its owner for a moment.
        await eventually(client.describe_cluster, lambda found: [each.node_id for each in found.nodes] == ["n2"])
    await cluster.until(lambda: "node_not_opened" in standby.errors)
    assert '"left_s": 30.0' in standby.errors
    # The same node only, by its id: the process ends.
    died = await asyncio.to_thread(refusal_of, cluster, "p3", {"cluster.node_id": "n1"})
    assert died.code == ExitCode.DATA_LOSS


async def test_what_cannot_start_ends_with_a_reason(cluster: EngineCluster) -> None:
    died = await asyncio.to_thread(refusal_of, cluster, "p1")
    assert (died.code, "the cluster has no node" in died.errors) == (ExitCode.BAD_CONFIG, True)
    await asyncio.to_thread(cluster.create_node, "n1")
    died = await asyncio.to_thread(refusal_of, cluster, "p2", {"cluster.node_id": "n2"})
    assert (died.code, "node 'n2' has no log" in died.errors) == (ExitCode.BAD_CONFIG, True)
    taken = cluster.folder / "taken"
    taken.mkdir()
    (taken / "FORMAT").write_text("tidelog data format 1\n")
    died = await asyncio.to_thread(refusal_of, cluster, "p3", {"storage.data_dir": taken})
    assert (died.code, "is the folder of one log" in died.errors) == (ExitCode.DATA_DIR_UNUSABLE, True)
