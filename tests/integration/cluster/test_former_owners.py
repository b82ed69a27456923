"""A reader at a former owner gets no watermark that the new owner does not keep.

Method: real servers on a real etcd. The lease of one node ends in etcd, and by its own clock much later, as after the
suspension of a virtual machine whose clock stood still. It is cut off from etcd, and serves on. Another process takes
the node over, with a copy of its data, at another address.

Promises of docs/reference/guarantees.md: G56.
"""

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, AsyncCluster, Retry, UnavailableError
from tidelog_server.channels.catalog import ROOT
from tidelog_server.metadata.etcd import EtcdMetadataStore
from tidelog_server.metadata.etcd_connection import EtcdAccess
from tidelog_server.metadata.store import Delete
from tidelog_server.runtime.clock import SystemClock
from tidelog_testing.faults.fault_proxy import FaultProxy
from tidelog_testing.servers.cluster import ClusterOfProcesses
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.processes import ServerProcess, lasting_port, pause

WITHIN_S = 40.0


async def test_a_reader_at_a_former_owner_gets_no_watermark_beyond_the_new_owner(
    tmp_path: Path, etcd: EtcdProcess
) -> None:
    moved, prefix = tmp_path / "moved", f"/{tmp_path.name}/"
    async with FaultProxy(etcd.endpoint) as to_etcd:
        with ClusterOfProcesses(tmp_path, etcd, lease_ttl_s=60, prefix=prefix) as cluster:
            leader = await asyncio.to_thread(cluster.start, "n1")
            former = await asyncio.to_thread(cluster.start, "n2", {"metadata.etcd_endpoints": to_etcd.endpoint})
            async with AsyncCluster(leader.grpc) as client:
                # On the node with the fewest channels, and then on the other one.
                names = [channel.name for channel in await client.create_channels(["one", "other"])]
                [name] = [name for name in names if (await client.owner_of(name)).node_id == "n2"]
                await (await client.vchannel(name)).append(b"before")

                to_etcd.cut()
                await asyncio.to_thread(pause, former.pid)
                await asyncio.to_thread(shutil.copytree, tmp_path / "n2", moved)
                os.kill(former.pid, signal.SIGCONT)
                await end_registration(etcd, prefix, "n2")

                # It serves on.
                async with AsyncClient(former.grpc, retry=Retry(give_up_s=2.0)) as direct:
                    following = direct.tail(name, start=tidelog.At.earliest())
                    assert (await anext(following)).payloads == [b"before"]
                    settings = {**cluster.settings, **lasting_port(), "cluster.node_id": "n2"}
                    with await asyncio.to_thread(ServerProcess, moved, settings) as successor:
                        async with AsyncClient(successor.grpc) as new:
                            after = await new.append(name, b"after")
                            watermark = await last_watermark(following, after.last_tick)
                    await following.aclose()
            assert watermark < after.last_tick
            assert "task_lost_its_lease" in former.errors


async def end_registration(etcd: EtcdProcess, prefix: str, node_id: str) -> None:
    """End the lease of a node in etcd, long before it ends by the clock of the process that holds it."""
    store = EtcdMetadataStore(EtcdAccess((etcd.endpoint,)), prefix, SystemClock())
    await store.commit([Delete(f"{ROOT}/node/{node_id}", None)])
    await store.close()


async def last_watermark(following: tidelog.AsyncScan, beyond: int) -> int:
    """Return the watermark of a scan once it has passed ``beyond`` or the scan has ended; it delivers nothing more."""

    async def read() -> None:
        batch = await anext(following)
        raise AssertionError(f"the former owner delivered {batch.payloads}")

    reading = asyncio.create_task(read())
    try:
        async with asyncio.timeout(WITHIN_S):
            while not reading.done() and following.watermark < beyond:
                await asyncio.sleep(0.01)
    finally:
        reading.cancel()
        with pytest.raises((UnavailableError, asyncio.CancelledError)):
            await reading
    return following.watermark
