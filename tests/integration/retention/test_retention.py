"""Retention over real gRPC: bounds by age and size, groups that hold, a hard cap that tells, and settings that last.

Method: servers that look every few milliseconds, and a clock that the test moves; what groups hold is a table of the
test. Waiting is for a state of the server that must come, never for a time.

Promises of docs/reference/guarantees.md: G40, G41, G42.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

import tidelog
from tidelog import Retention
from tidelog_cli.metrics_text import without_labels
from tidelog_server.app import Server
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import CHUNK_BYTES
from tidelog_server.storage.format.codec import ChunkRow
from tidelog_server.storage.log_store import VchannelTail
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_testing.parts.clocks import SetClock
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.parts.waiting import eventually, until
from tidelog_testing.servers.disk import disk_bytes

# Four of them make a chunk, which is larger than CHUNK_BYTES by what their columns take beside.
PAYLOAD = bytes(CHUNK_BYTES // 4)
HOUR_MS = 3_600_000
SOON: dict[str, Any] = {"storage__retention_check_interval_ms": 5}


def client_of(server: Server) -> tidelog.AsyncClient:
    return tidelog.AsyncClient(server.grpc_endpoint)


async def chunks_of(channel: tidelog.AsyncChannel, count: int, index: int = 0) -> list[tidelog.Tick]:
    """Append ``count`` chunks of four messages; return the last tick of each."""
    vchannel = channel.vchannel(index)
    return [[await vchannel.append(PAYLOAD) for _ in range(4)][-1].last_tick for _ in range(count)]


def messages_in(described: tidelog.ChannelDescription) -> int:
    return sum(vchannel.messages for vchannel in described.vchannels)


@pytest.mark.parametrize("is_on_disk", [False, True])
async def test_the_newest_bytes_stay_and_what_is_older_goes(is_on_disk: bool, tmp_path: Path) -> None:
    async with running_server(tmp_path / "data" if is_on_disk else None, **SOON) as server, client_of(server) as client:
        channel = await client.ensure_channel("a", vchannels=2, retention=Retention(bytes=3 * CHUNK_BYTES))
        first = await chunks_of(channel, 2, index=0)
        second = await chunks_of(channel, 4, index=1)

        # Of six chunks the three oldest go, over both vchannels.
        await eventually(channel.describe, lambda described: messages_in(described) == 12)
        left = (await channel.describe()).vchannels
        assert [vchannel.messages for vchannel in left] == [0, 12]
        assert [vchannel.trim_tick for vchannel in left] == [first[1] + 1, second[0] + 1]
        with pytest.raises(tidelog.PositionTrimmedError) as refused:
            _ = [batch async for batch in client.scan("a/1", start=tidelog.At.tick(second[0]))]
        assert refused.value.first_available_tick == second[0] + 1
        # Nothing goes in place of what is gone.
        await chunks_of(channel, 1, index=1)
        await eventually(channel.describe, lambda described: described.vchannels[1].trim_tick == second[1] + 1)
        assert messages_in(await channel.describe()) == 12


async def test_messages_go_by_age_with_the_last_of_their_chunk(tmp_path: Path) -> None:
    clock = SetClock()
    async with (
        running_server(tmp_path / "data", clock=clock, **SOON) as server,
        client_of(server) as client,
    ):
        channel = await client.ensure_channel("a", retention=Retention(age=timedelta(seconds=60)))
        ticks = await chunks_of(channel, 1)
        clock.now_ms += 50_000
        ticks += await chunks_of(channel, 1)
        ticks.append((await channel.append(b"in the open chunk")).last_tick)
        clock.now_ms += 20_000
        await eventually(channel.describe, lambda described: described.vchannels[0].trim_tick == ticks[0] + 1)
        assert messages_in(await channel.describe()) == 5

        clock.now_ms += 100_000
        await eventually(channel.describe, lambda described: messages_in(described) == 0)
        # The open chunk went, and is used again.
        assert (await channel.describe()).vchannels[0].trim_tick == ticks[-1] + 1
        later = await channel.append(b"later")
        assert [row.tick for batch in [b async for b in channel.scan()] for row in batch] == [later.first_tick]


async def test_what_a_clock_that_ran_ahead_dated_goes_by_the_time_since_its_correction() -> None:
    clock = SetClock()
    async with running_server(clock=clock, log__level="warning", **SOON) as server, client_of(server) as client:
        channel = await client.ensure_channel("a", retention=Retention(age=timedelta(hours=1)))
        other = await client.ensure_channel("kept")
        clock.now_ms += 48 * HOUR_MS
        with capture_logs() as lines:
            ahead = await chunks_of(channel, 1)
            await other.append(b"x")
            clock.now_ms -= 48 * HOUR_MS
            ahead += await chunks_of(channel, 1)
            async with asyncio.timeout(60):
                while not (told := [line for line in lines if line["event"] == "retention_ticks_ahead"]):
                    await asyncio.sleep(0.005)
        assert (told[0]["channels"], told[0]["count"], told[0]["ahead_s"]) == (["a"], 1, 48 * 3_600)
        values = parsed_metrics(await server._render_metrics())
        assert values == {"a": pytest.approx(48 * 3_600, abs=1)}

        await sampled(server, ahead[-1])
        # Most of an hour later nothing has gone, and what comes now is younger.
        clock.now_ms += HOUR_MS * 9 // 10
        ahead += await chunks_of(channel, 1)
        await sampled(server, ahead[-1])
        assert messages_in(await channel.describe()) == 12
        clock.now_ms += HOUR_MS * 2 // 10
        await eventually(channel.describe, lambda described: described.vchannels[0].trim_tick == ahead[1] + 1)
        assert messages_in(await channel.describe()) == 4
        clock.now_ms += HOUR_MS
        await eventually(channel.describe, lambda described: messages_in(described) == 0)


async def test_ages_count_from_a_start_after_the_correction(tmp_path: Path) -> None:
    clock = SetClock()
    clock.now_ms += 48 * HOUR_MS
    async with running_server(tmp_path / "data", clock=clock, **SOON) as server, client_of(server) as client:
        channel = await client.ensure_channel("a", retention=Retention(age=timedelta(hours=1)))
        ahead = await chunks_of(channel, 1)
    clock.now_ms -= 48 * HOUR_MS
    async with running_server(tmp_path / "data", clock=clock, **SOON) as server, client_of(server) as client:
        channel = client.channel("a")
        await sampled(server, ahead[-1])
        clock.now_ms += HOUR_MS + 1
        await eventually(channel.describe, lambda described: messages_in(described) == 0)


async def sampled(server: Server, tick: int) -> None:
    """Wait until retention has noted when ``tick`` was the last one."""
    await until(lambda: server._node._retainer._times.newest_tick >= tick)


def parsed_metrics(text: bytes) -> dict[str, float]:
    return {
        sample.labels["channel"]: sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name == "tidelog_retention_ahead_seconds"
    }


async def test_what_a_group_has_not_committed_stays(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data", **SOON) as server, client_of(server) as client:
        channel = await client.ensure_channel("a", vchannels=2)
        ticks = await chunks_of(channel, 4)
        await client.create_group("slow", "a/0", start=tidelog.At.tick(ticks[1] + 1))
        await channel.alter(retention={"bytes": 1, "age": timedelta(milliseconds=1)})

        await eventually(channel.describe, lambda described: described.vchannels[0].trim_tick == ticks[1] + 1)
        other = await chunks_of(channel, 3, index=1)
        await eventually(channel.describe, lambda described: described.vchannels[1].trim_tick == other[-1] + 1)
        assert (await channel.describe()).vchannels[0].messages == 8
        await client.commit_positions([tidelog.PositionCommit("slow", "a/0", ticks[3] + 1)])
        await eventually(channel.describe, lambda described: messages_in(described) == 0)
        assert all(vchannel.cut is None for vchannel in (await channel.describe()).vchannels)


async def test_a_hard_cap_cuts_past_a_group_and_tells_for_good(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data", **SOON) as server, client_of(server) as client:
        channel = await client.ensure_channel("a", vchannels=2)
        ticks = await chunks_of(channel, 4)
        all_bytes = (await channel.describe()).vchannels[0].bytes
        await client.create_group("slow", "a/0")
        await channel.alter(retention=Retention.of(bytes="4MiB", hard_bytes="9MiB"))

        await eventually(channel.describe, lambda described: described.vchannels[0].trim_tick == ticks[1] + 1)
        cut = tidelog.RetentionCut(8, all_bytes // 2, tidelog.Tick(ticks[1] + 1), ("slow",))
        described = await channel.describe()
        assert [vchannel.cut for vchannel in described.vchannels] == [cut, None]
        metrics = without_labels((await server._render_metrics()).decode())
        assert metrics["tidelog_retention_lost_messages_total"] == cut.messages
        assert metrics["tidelog_retention_lost_bytes_total"] == cut.bytes
    async with running_server(tmp_path / "data", **SOON) as server, client_of(server) as client:
        channel = client.channel("a")
        described = await channel.describe()
        assert described.retention == Retention(bytes=4 << 20, hard_bytes=9 << 20)
        assert described.vchannels[0].cut == cut
        more = await chunks_of(channel, 1, index=1)
        # Messages that no group holds are deleted first.
        await eventually(channel.describe, lambda described: described.vchannels[1].trim_tick == more[-1] + 1)
        assert (await channel.describe()).vchannels[0].cut == cut


async def test_settings_are_altered_all_or_none_and_last(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data") as server, client_of(server) as client:
        await client.create_channels(["a", "b"], retention=Retention(bytes=10, hard_bytes=20))
        altered = await client.alter_channels(["b", "a"], retention={"bytes": 15, "age": timedelta(days=3)})
        expected = Retention(timedelta(days=3), 15, 20)
        assert [(channel.name, channel.retention) for channel in altered] == [("b", expected), ("a", expected)]
        await client.alter_channels(["a"], retention={"hard_bytes": None})
        with pytest.raises(tidelog.ChannelNotFoundError) as missing:
            await client.alter_channels(["b", "no", "a", "none"], retention=Retention())
        assert missing.value.names == ("no", "none")
        with pytest.raises(tidelog.InvalidRequestError) as contradictory:
            await client.alter_channels(["a", "b"], retention={"bytes": 21})
        assert contradictory.value.values == {"field": "retention.hard_bytes", "name": "b"}
    async with running_server(tmp_path / "data") as server, client_of(server) as client:
        listed = {channel.name: channel.retention async for channel in client.list_channels()}
        assert listed == {"a": Retention(timedelta(days=3), 15), "b": expected}
        assert (await client.channel("b").alter(retention=Retention())).retention == Retention()
        await client.create_channel("a", if_not_exists=True, retention=Retention(bytes=1))
        assert (await client.channel("a").describe()).retention == listed["a"]


async def test_a_channel_that_is_destroyed_or_altered_is_left_alone(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data", **SOON) as server, client_of(server) as client:
        for _ in range(20):
            channel = await client.ensure_channel("a", retention=Retention(bytes=1))
            await channel.append([b"x" * 100] * 10)
            await asyncio.gather(channel.append(b"y"), channel.alter(retention={"hard_bytes": 1}))
            await channel.destroy()
        channel = await client.ensure_channel("b", retention=Retention(hard_bytes=1))
        await eventually(channel.describe, lambda described: messages_in(described) == 0)
        await channel.alter(retention=Retention())
        await channel.append(b"stays")
        # Another channel shows that retention has looked since.
        other = await client.ensure_channel("c", retention=Retention(hard_bytes=1))
        await other.append(b"goes")
        await eventually(other.describe, lambda described: messages_in(described) == 0)
        assert messages_in(await channel.describe()) == 1


class CountingStore(MemoryLogStore):
    """A store that notes how many vchannels are trimmed at once."""

    def __init__(self) -> None:
        super().__init__()
        self.trims: list[int] = []

    def trim_all(self, before_ticks: Mapping[int, int]) -> Mapping[int, VchannelTail]:
        self.trims.append(len(before_ticks))
        return super().trim_all(before_ticks)


async def test_trims_of_a_pass_share_a_write() -> None:
    store = CountingStore()
    async with running_server(store=store, **SOON) as server, client_of(server) as client:
        retention = Retention(hard_bytes=1)
        channels = [await client.ensure_channel(name, vchannels=8, retention=retention) for name in ("a", "b")]
        async with asyncio.timeout(60):
            # A check may come between two appends of a transaction that is not atomic for it.
            while max(store.trims, default=0) < 16:
                async with client.txn() as txn:
                    for channel in channels:
                        for index in range(8):
                            await txn.append(f"{channel.name}/{index}", b"goes")
                for channel in channels:
                    await eventually(channel.describe, lambda described: messages_in(described) == 0)


class UnreadableStore(MemoryLogStore):
    """A store whose first vchannel cannot be trimmed."""

    def trim_all(self, before_ticks: Mapping[int, int]) -> Mapping[int, VchannelTail]:
        if 1 in before_ticks:
            raise DataLossError("an entry is missing", vchannel_id=1)
        return super().trim_all(before_ticks)


async def test_a_channel_that_cannot_be_trimmed_does_not_stop_others_of_the_pass() -> None:
    async with running_server(store=UnreadableStore(), **SOON) as server, client_of(server) as client:
        damaged = await client.ensure_channel("a", retention=Retention(hard_bytes=1))
        sound = await client.ensure_channel("b", retention=Retention(hard_bytes=1))
        with capture_logs() as logs:
            async with client.txn() as txn:
                await txn.append("a", b"stays")
                await txn.append("b", b"goes")
            await eventually(sound.describe, lambda described: messages_in(described) == 0)
            while not (met := [event for event in logs if event["event"] == "retention_met_damage"]):
                await asyncio.sleep(0.005)
        assert [event["channel"] for event in met] == ["a"]
        assert messages_in(await damaged.describe()) == 1
        assert not server._stopped_by.done()


class DamagedStore(MemoryLogStore):
    """A store whose first vchannel has a damaged row in its sparse index."""

    def oldest_chunks(self, vchannel_id: int, end_tick: int, min_bytes: int) -> list[ChunkRow]:
        if vchannel_id == 1:
            raise DataLossError("a chunk row is missing", vchannel_id=vchannel_id)
        return super().oldest_chunks(vchannel_id, end_tick, min_bytes)


async def test_a_damaged_channel_is_left_alone_and_others_go_on() -> None:
    async with running_server(store=DamagedStore(), **SOON) as server, client_of(server) as client:
        damaged = await client.ensure_channel("a", retention=Retention(hard_bytes=1))
        sound = await client.ensure_channel("b", retention=Retention(hard_bytes=1))
        await damaged.append(b"stays")
        for _ in range(2):
            await sound.append(b"goes")
            await eventually(sound.describe, lambda described: messages_in(described) == 0)
        assert messages_in(await damaged.describe()) == 1
        assert not server._stopped_by.done()


async def test_retention_frees_the_disk(tmp_path: Path) -> None:
    async with running_server(tmp_path / "data", **SOON) as server, client_of(server) as client:
        cap_bytes = 4 * CHUNK_BYTES
        channel = await client.ensure_channel("a", retention=Retention(bytes=cap_bytes))
        await chunks_of(channel, 30)
        # Below this no chunk more can go, so what is scanned is what is described.
        await eventually(channel.describe, lambda described: described.vchannels[0].bytes < cap_bytes + CHUNK_BYTES)
        await until(lambda: disk_bytes(tmp_path / "data" / "db", ".blob") <= 2 * cap_bytes)
        left = [row.tick async for batch in channel.scan() for row in batch]
        assert len(left) == (await channel.describe()).vchannels[0].messages == 16
