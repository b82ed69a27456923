"""A server stopped under load answers what it accepted, loses nothing, and ends in time whatever clients do.

Method: SIGTERM to a real process under the raw load of the crash tests, several times on one data folder; and clients
that hold calls open and never read.
"""

import asyncio
import random
import time
from contextlib import closing
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tidelog.v1 import wal_service_pb2, wal_service_pb2_grpc
from tidelog_testing.loads.storm import Storm
from tidelog_testing.loads.workload import Load, columns_of, connect, create_channel, until
from tidelog_testing.oracles.history import Outcome
from tidelog_testing.parts.soaks import Recorder
from tidelog_testing.servers.processes import ServerProcess

pytestmark = pytest.mark.crash

ROUNDS = 4
# The grace period is a maximum. Of a short one, a process that has to wait for a core leaves calls unanswered.
GRACE_S = 30.0


async def probe(server: ServerProcess, statuses: list[int]) -> None:
    """Append the status of readiness until the server is gone.

    In the event loop of the load, because a thread that probes without a pause keeps it from running.
    """
    host, _, port = server.http.rpartition(":")
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, int(port))
            with closing(writer):
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n")
                answer = await reader.readline()
        except OSError:
            return
        if not answer:
            return
        statuses.append(int(answer.split()[1]))


async def stop_under_load(storm: Storm, server: ServerProcess) -> float:
    """Return how long the stop took."""
    load = Load(storm.history, storm.vchannels, storm.random, followed=storm.followed)
    running = asyncio.ensure_future(load.run(server.grpc))
    await asyncio.wait_for(load.acknowledged.wait(), 60)
    wanted = storm.history.count(Outcome.OK) + storm.random.randint(50, 400)
    await until(lambda: storm.history.count(Outcome.OK) >= wanted, 30, "the load flows")
    statuses: list[int] = []
    probing = asyncio.create_task(probe(server, statuses))
    await until(lambda: bool(statuses), 30, "the first probe")
    begin_s = time.monotonic()
    server.terminate()
    await running
    await probing
    assert await asyncio.to_thread(server.wait) == 0, server.errors
    assert statuses == sorted(statuses), "readiness went red and stayed so"
    assert statuses[-1:] == [503], "readiness was red before the server was gone"
    return time.monotonic() - begin_s


async def test_a_stop_under_load_loses_nothing_and_leaves_nothing_unknown(
    tmp_path: Path, record_property: Recorder
) -> None:
    storm = Storm(tmp_path / "log", seed=random.randrange(1 << 32))
    settings = {"server.shutdown_grace_s": GRACE_S}
    with ServerProcess(storm.folder, settings) as server:
        await storm.prepare(server)
    took_s = []
    for _ in range(ROUNDS):
        with ServerProcess(storm.folder, settings) as server:
            await storm.judge(server)
            took_s.append(await stop_under_load(storm, server))
    with ServerProcess(storm.folder) as server:
        await storm.judge(server)
    unknown = [append.producer for append in storm.history.appends if append.outcome is Outcome.UNKNOWN]
    assert unknown == []
    acknowledged = storm.history.count(Outcome.OK)
    assert acknowledged > 100 * ROUNDS
    assert max(took_s) < GRACE_S
    record_property("measured", f"{ROUNDS} stops, {acknowledged} acknowledged, 0 unknown, {max(took_s):.2f} s at most")


@pytest.mark.parametrize("grace_s", [0.0, 3.0])
async def test_a_client_that_never_lets_go_does_not_hold_the_stop(tmp_path: Path, grace_s: float) -> None:
    with ServerProcess(tmp_path / "log", {"server.shutdown_grace_s": grace_s}) as server:
        [vchannel] = await create_channel(server.grpc, "c", 1)
        async with connect(server.grpc) as channel:
            stub = wal_service_pb2_grpc.WalServiceStub(channel)  # type: ignore[no-untyped-call]  # Generated.
            stream = stub.AppendStream()
            for number in range(1, 33):
                columns = columns_of([bytes(1 << 18)] * 4)
                await stream.write(
                    wal_service_pb2.AppendStreamRequest(request_id=number, vchannel=vchannel, columns=columns)
                )
                assert (await stream.read()).HasField("result")
            # It reads only one page, so the server waits for it with the next ones.
            scan = stub.Scan(wal_service_pb2.ScanRequest(sources=[wal_service_pb2.ScanSource(vchannel=vchannel)]))
            await scan.read()
            begin_s = time.monotonic()
            server.terminate()

            assert await asyncio.to_thread(server.wait) == 0, server.errors

            assert time.monotonic() - begin_s < max(2.0, grace_s)
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                while await stream.read() is not grpc.aio.EOF:
                    pass
                raise AssertionError(await stream.code())
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
