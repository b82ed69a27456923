"""A server that dies while retention removes data retains everything above the cut.

Method: servers that check retention every few milliseconds and die at a failpoint within a trim, or once more after it,
while a client appends. After each start everything is read: the remaining messages must be the end of the appended
ones, and no less than the channel must retain.

Promises of docs/reference/guarantees.md: G41.
"""

import asyncio
from pathlib import Path

import pytest

import tidelog
from tidelog_server.runtime.failpoints import VARIABLE, Failpoint
from tidelog_testing.loads.storm import KILLED
from tidelog_testing.servers.processes import ServerProcess

pytestmark = pytest.mark.crash

SETTINGS = {"storage.retention_check_interval_ms": 5}
KEPT_BYTES = 1 << 20
PAYLOAD = bytes(1_000)
APPENDS_AT_ONCE = 64


async def read(client: tidelog.AsyncClient) -> tuple[list[tidelog.Tick], tidelog.VchannelDescription]:
    """Return the ticks of all messages that are left, and the vchannel, both as of one trim.

    Once something is trimmed, and again if more is trimmed in between: the trim of a killed server may not be durable,
    and then the first check after the start, which cannot be turned off, removes the same.
    """
    while True:
        [channel] = await client.describe_channels(["a"])
        [before] = channel.vchannels
        if not before.trim_tick:
            await asyncio.sleep(0.01)
            continue
        try:
            start = tidelog.At.tick(before.trim_tick)
            ticks = [row.tick async for batch in client.scan("a", start=start) for row in batch]
        except tidelog.PositionTrimmedError:
            continue
        [vchannel] = (await client.channel("a").describe()).vchannels
        if vchannel.trim_tick == before.trim_tick:
            return ticks, vchannel


async def append_until_killed(client: tidelog.AsyncClient) -> list[int]:
    """Append until the server has ended; return the acknowledged ticks."""
    ticks: list[int] = []
    while True:
        try:
            result = await client.append("a", [PAYLOAD] * APPENDS_AT_ONCE)
        except (tidelog.AppendUnknownError, tidelog.UnavailableError, tidelog.DeadlineError):
            return ticks
        ticks += range(result.first_tick, result.last_tick + 1)


async def test_a_server_that_dies_while_it_removes_keeps_all_above_the_cut(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    acknowledged: list[int] = []
    with ServerProcess(folder) as server:
        async with tidelog.AsyncClient(server.grpc) as client:
            await client.create_channel("a", retention=tidelog.Retention(bytes=KEPT_BYTES))
    for hits in (1, 4):
        with ServerProcess(folder, SETTINGS, env={VARIABLE: f"{Failpoint.MID_TRIM}:{hits}"}) as server:
            async with tidelog.AsyncClient(server.grpc) as client:
                acknowledged += await append_until_killed(client)
            assert server.wait() == KILLED
        with ServerProcess(folder, {"storage.retention_check_interval_ms": 3_600_000}) as server:
            async with tidelog.AsyncClient(server.grpc) as client:
                left, vchannel = await read(client)
        assert vchannel.messages == len(left)
        assert KEPT_BYTES <= vchannel.bytes
        known = set(acknowledged)
        left_known = [tick for tick in left if tick in known]
        assert left_known == acknowledged[len(acknowledged) - len(left_known) :]
        # Not void: something was removed, and more than retention must retain was appended since the previous start.
        assert 0 < len(left_known) < len(acknowledged)
        assert 0 < vchannel.trim_tick
