"""Backups of a server at work: what is restored is the log up to a stated tick, whole; what is damaged is refused.

Method: every kind of write at once on a server in this process (see tidelog_testing.loads.mixed_load), backups through
the functions behind `tidelog backup`, restored folders under servers of their own, whose logs are compared with its
log.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, BroadcastState, Client, ProducerSequence
from tidelog_cli.connection import refused
from tidelog_cli.exit_codes import ExitCode
from tidelog_server.app import Server
from tidelog_server.backup.folder import check_recovers, open_backup_folder
from tidelog_server.backup.manifest import BackupDamagedError, BackupError
from tidelog_server.backup.restore import restore_copy
from tidelog_server.core.errors import RateLimitRejectedError
from tidelog_testing.loads.every_table import broadcast_until_killed
from tidelog_testing.loads.mixed_load import CHANNELS, LANES, Log, Record, prepare, read_log, run_load
from tidelog_testing.loads.workload import until
from tidelog_testing.oracles.store_rows import rows_of
from tidelog_testing.parts.backups import COUNT, restore_until, take
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.servers.processes import ServerProcess


async def log_and_trims_of(folder: Path) -> tuple[Log, dict[str, int]]:
    """Return the log of a folder, and the tick below which each vchannel is trimmed after that reading."""
    async with running_server(folder) as server, AsyncClient(server.grpc_endpoint) as client:
        return await read_what_is_left(client), await trims_of(client)


async def trims_of(client: AsyncClient) -> dict[str, int]:
    descriptions = await client.describe_channels(list(CHANNELS))
    return {vchannel.name: vchannel.trim_tick for each in descriptions for vchannel in each.vchannels}


async def read_what_is_left(client: AsyncClient) -> Log:
    """Return the log of a server that receives no appends; retention may trim it meanwhile, but has an end."""
    while True:
        try:
            return await read_log(client)
        except tidelog.PositionTrimmedError:
            continue


async def left_by_retention(client: AsyncClient) -> tuple[Log, dict[str, int]]:
    """Return the log and the trims of a server that receives no appends, once they have ended.

    A read may see a trim before the description of its channel does.
    """
    found = None
    while found != (now := (await read_what_is_left(client), await trims_of(client))):
        found = now
    return now


def until_tick(log: Log, end_tick: int) -> Log:
    return {lane: [row for row in rows if row[0] < end_tick] for lane, rows in log.items()}


async def ends_of_batches(client: AsyncClient) -> dict[str, int]:
    """Return the last tick of the batches with messages of each operation: appends that wait share a batch."""
    ends: dict[str, int] = {}
    async for batch in client.scan(LANES):
        for payload in batch.payloads:
            name = payload.decode().split(":")[0]
            ends[name] = max(ends.get(name, 0), batch.ticks[-1])
    return ends


@asynccontextmanager
async def under_load(server: Server, seed: int) -> AsyncIterator[tuple[AsyncClient, Record]]:
    record = Record(random.Random(seed))
    async with AsyncClient(server.grpc_endpoint) as client:
        await prepare(client)
        load = asyncio.create_task(run_load(record, client))
        try:
            await record.acknowledged.wait()
            yield client, record
        finally:
            record.is_over.set()
            await load


async def more(record: Record, operations: int) -> None:
    wanted = len(record.operations) + operations
    await until(lambda: len(record.operations) >= wanted, 30.0, "more was written")


async def test_a_backup_under_load_is_the_log_up_to_its_tick(tmp_path: Path) -> None:
    backups = open_backup_folder(tmp_path / "backups", create=True)
    taken = []
    async with running_server(tmp_path / "log", storage__retention_check_interval_ms=50) as server:
        async with under_load(server, seed=1) as (client, record):
            for _ in range(2):
                await more(record, 60)
                taken.append(await take(server, backups))
            # What is trimmed and dropped later stays in the backups.
            before = await read_log(client)
            await client.trim(LANES[0], tidelog.Tick(before[LANES[0]][-1][0]))
            await client.alter_channels(["right"], retention=tidelog.RetentionChange(bytes=1))
            taken.append(await take(server, backups))
        async with AsyncClient(server.grpc_endpoint) as reader:
            log, trims = await left_by_retention(reader)
    assert server._checkpoints.states() == []
    for number, manifest in enumerate(taken):
        backups.check_files(manifest, COUNT)
        check_recovers(backups.data_path(manifest.backup_id), manifest)
        target = tmp_path / f"restored{number}"
        incarnation = restore_copy(backups, manifest, target, COUNT)

        # Behind it there may be broadcasts that were accepted and not in the log yet: they reach every vchannel.
        whole, restored_trims = await log_and_trims_of(target)
        restored = until_tick(whole, manifest.facts.tick + 1)
        later = {row[1] for rows in whole.values() for row in rows if row[0] > manifest.facts.tick}
        assert all(record.operations[name].kind == "broadcast" for name in later)

        assert incarnation != manifest.facts.incarnation
        if number < 2:
            assert restored == until_tick(before, manifest.facts.tick + 1)
            assert any(restored.values())
        else:
            # Retention is by chunks of a channel, so each of the two servers may have trimmed what the other kept.
            assert restored_trims[LANES[0]] == trims[LANES[0]]
            assert restored_trims[LANES[1]] == trims[LANES[1]] == 0
            assert restored["right/0"] or restored["right/1"], "retention keeps the newest chunk of a channel"
            for lane, rows in restored.items():
                begin = max(trims[lane], restored_trims[lane])
                kept = [row for row in log[lane] if begin <= row[0] <= manifest.facts.tick]
                assert [row for row in rows if begin <= row[0]] == kept


async def test_a_restore_to_a_tick_cuts_no_batch_and_no_transaction(tmp_path: Path) -> None:
    backups = open_backup_folder(tmp_path / "backups", create=True)
    async with running_server(tmp_path / "log") as server, under_load(server, seed=2) as (client, record):
        await more(record, 300)
        record.is_over.set()
        await until(lambda: all(each.outcome != "pending" for each in record.operations.values()), 30.0, "all ended")
        log = await read_log(client)
        await client.trim(LANES[1], tidelog.Tick(log[LANES[1]][5][0]))
        manifest = await take(server, backups)
        log = await read_log(client)
        last = await ends_of_batches(client)
    rows = sorted(row[0] for rows in log.values() for row in rows)
    # At these ticks more of the same operation follows. Chance alone seldom, but now and then, picks none of them.
    within = sorted(row[0] for rows in log.values() for row in rows if row[0] < last[row[1]])
    chance = random.Random(3)
    wholes = {row[1] for rows in log.values() for row in rows}
    ends = set()
    for number, tick in enumerate([rows[0] - 1, rows[-1], *chance.sample(within, 2), *chance.sample(rows, 2)]):
        target = tmp_path / f"restored{number}"
        report = await restore_until(backups.data_path(manifest.backup_id), target, tick)
        restored, _ = await log_and_trims_of(target)

        assert report.end_tick <= tick + 1
        assert restored == until_tick(log, report.end_tick)
        # Nothing that is whole at or below the tick was left out, and nothing is there in part.
        kept = {row[1] for rows in restored.values() for row in rows}
        assert kept == {name for name in wholes if last[name] <= tick}
        assert report.kept_messages == sum(map(len, restored.values()))
        ends.add(report.end_tick == tick + 1)
    assert ends == {True, False}, "some cuts fell between appends and some within"


async def test_a_restore_to_a_tick_before_a_common_commit_tells_nothing_of_it(tmp_path: Path) -> None:
    backups = open_backup_folder(tmp_path / "backups", create=True)

    async def prepared(client: AsyncClient, payload: bytes, app_id: str = "etl") -> tidelog.PreparedTransaction:
        txn = client.txn()
        await txn.append("c", [payload] * 2)
        handle = await txn.prepare(app_id, keepalive_s=60.0)
        assert handle is not None
        return handle

    async with running_server(tmp_path / "log") as server, AsyncClient(server.grpc_endpoint) as client:
        await client.create_channel("c")
        early = await prepared(client, b"kept", "early")
        before = await client.commit_prepared([early], "early", 1)
        first, second = [await prepared(client, payload) for payload in (b"1", b"2")]
        done = await client.commit_prepared([first, second], "etl", 7)
        await client.commit_prepared([], "empty", 7)
        end = await client.append("c", b"end")
        manifest = await take(server, backups)

    # Before it, and behind the first of its transactions.
    for number, tick in enumerate([done.first_tick - 1, done.first_tick + 1]):
        target = tmp_path / f"restored{number}"
        report = await restore_until(backups.data_path(manifest.backup_id), target, tick)
        assert (report.kept_messages, report.end_tick, report.forgotten_apps) == (2, done.first_tick, 2)
        async with running_server(target) as server, AsyncClient(server.grpc_endpoint) as client:
            for gone in (first, second):
                with pytest.raises(tidelog.TransactionExpiredError):
                    await client.describe_txn(gone.txn_id)
            assert (await client.commit_prepared([early], "early", 1)).first_tick == before.first_tick
            for app_id in ("etl", "empty"):
                again = await prepared(client, b"again", app_id)
                assert not (await client.commit_prepared([again], app_id, 7)).duplicate
    target = tmp_path / "restored"
    report = await restore_until(backups.data_path(manifest.backup_id), target, int(end.first_tick) - 1)
    assert (report.kept_messages, report.forgotten_apps) == (6, 0)
    async with running_server(target) as server, AsyncClient(server.grpc_endpoint) as client:
        assert (await client.commit_prepared([first, second], "etl", 7)).first_tick == done.first_tick
        assert (await client.commit_prepared([], "empty", 7)).duplicate


async def test_a_store_restored_to_a_tick_goes_on_as_if_the_rest_had_never_been(tmp_path: Path) -> None:
    backups = open_backup_folder(tmp_path / "backups", create=True)
    async with running_server(tmp_path / "log") as server, AsyncClient(server.grpc_endpoint) as client:
        await client.create_channel("c")
        await client.create_group("g", "c")
        first = await client.append("c", [b"1"], producer=ProducerSequence("p", 1))
        second = await client.append("c", [b"2", b"22"], producer=ProducerSequence("p", 2))
        await client.append("c", [b"3"], producer=ProducerSequence("p", 3))
        await client.consume("g", "c", 10, commit=True)
        await client.fence("c", 7)
        manifest = await take(server, backups)
    # Within the second batch.
    report = await restore_until(
        backups.data_path(manifest.backup_id), tmp_path / "restored", int(second.last_tick) - 1
    )

    assert (report.kept_batches, report.removed_batches) == (1, 2)
    assert (report.cut_producers, report.moved_positions) == (1, 1)
    async with running_server(tmp_path / "restored") as server, AsyncClient(server.grpc_endpoint) as client:
        with pytest.raises(tidelog.SequenceGapError):
            await client.append("c", [b"4"], producer=ProducerSequence("p", 4), fencing_token=7)
        again = await client.append("c", [b"1"], producer=ProducerSequence("p", 1), fencing_token=7)
        assert again.first_tick == first.first_tick
        await client.append("c", [b"two"], producer=ProducerSequence("p", 2), fencing_token=7)
        consumed = await client.consume("g", "c", 10)
        assert [message.payload for message in consumed.messages] == [b"two"]
    async with running_server(tmp_path / "restored") as server, AsyncClient(server.grpc_endpoint) as client:
        assert [bytes(payload) async for batch in client.scan("c") for payload in batch.payloads] == [b"1", b"two"]


def test_a_restore_to_a_tick_between_a_broadcast_and_its_message_appends_the_message(tmp_path: Path) -> None:
    log, made = tmp_path / "log", tmp_path / "made"
    with ServerProcess(log, env={"TIDELOG_FAILPOINT": "broadcast_appended"}) as server:
        with Client(server.grpc) as client:
            client.create_channel("pending", vchannels=2)
        broadcast_until_killed(server.grpc)
        server.wait()
    # The message is in the log, and the metadata has the broadcast as accepted.
    [((_, broadcast_id), tick)] = rows_of(log)["broadcasts"].items()
    report = asyncio.run(restore_until(log, made, broadcast_id))
    assert broadcast_id < tick
    assert (report.kept_messages, report.removed_messages, report.removed_broadcasts) == (0, 2, 0)

    for _ in range(2):
        with ServerProcess(made) as server, Client(server.grpc) as client:
            [found] = client.list_broadcasts()
            assert (found.broadcast_id, found.state) == (broadcast_id, BroadcastState.WAIT_ACK)
            for lane in ("pending/0", "pending/1"):
                with client.scan(lane) as scan:
                    assert [bytes(payload) for batch in scan for payload in batch.payloads] == [b"pending"]


async def test_a_later_backup_shares_what_did_not_change(tmp_path: Path) -> None:
    backups = open_backup_folder(tmp_path / "backups", create=True)
    async with running_server(tmp_path / "log") as server, AsyncClient(server.grpc_endpoint) as client:
        await client.create_channel("c")
        await client.append("c", [os.urandom(1 << 18) for _ in range(8)])
        first = await take(server, backups)
        await client.append("c", [os.urandom(1 << 18)])
        second = await take(server, backups)

    shared = [file for file in second.files if file.is_reused]
    assert sum(file.bytes for file in shared) >= 8 << 18
    assert second.copied_bytes < first.copied_bytes / 2
    for file in shared:
        one, other = (backups.data_path(each.backup_id) / file.name for each in (first, second))
        assert one.samefile(other)


@pytest.mark.parametrize("seed", range(2))
async def test_a_flipped_bit_is_refused_by_name(tmp_path: Path, seed: int) -> None:
    backups = open_backup_folder(tmp_path / "backups", create=True)
    async with running_server(tmp_path / "log") as server, under_load(server, seed=4) as (_, record):
        await more(record, 40)
        manifest = await take(server, backups)
    chance = random.Random(seed)
    for file in [file for file in manifest.files if file.bytes]:
        path = backups.data_path(manifest.backup_id) / file.name
        sound = path.read_bytes()
        content = bytearray(sound)
        at = chance.randrange(len(content))
        content[at] ^= 1 << chance.randrange(8)
        path.write_bytes(content)

        with pytest.raises(BackupDamagedError, match=file.name):
            backups.check_files(manifest, COUNT)
        with pytest.raises(BackupDamagedError, match=file.name):
            restore_copy(backups, manifest, tmp_path / "restored", COUNT)

        assert not (tmp_path / "restored").exists()
        path.write_bytes(sound)
    manifest_path = backups.path / manifest.backup_id / "manifest.json"
    manifest_path.write_bytes(manifest_path.read_bytes().replace(b'"tick": ', b'"tick": 1', 1))
    with pytest.raises(BackupDamagedError, match=r"manifest\.json"):
        backups.manifest(manifest.backup_id)


async def test_files_that_are_missing_or_too_many_are_refused(tmp_path: Path) -> None:
    backups = open_backup_folder(tmp_path / "backups", create=True)
    async with running_server(tmp_path / "log") as server, AsyncClient(server.grpc_endpoint) as client:
        await client.create_channel("c")
        manifest = await take(server, backups)
    data = backups.data_path(manifest.backup_id)
    (data / "db" / "999999.sst").write_bytes(b"x")
    with pytest.raises(BackupDamagedError, match="999999"):
        backups.check_files(manifest, COUNT)
    (data / "db" / "999999.sst").unlink()
    (data / "HEAD").unlink()
    with pytest.raises(BackupDamagedError, match="HEAD is missing"):
        backups.check_files(manifest, COUNT)


async def test_a_restore_never_touches_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    backups = open_backup_folder(tmp_path / "backups", create=True)
    async with running_server(tmp_path / "log") as server, AsyncClient(server.grpc_endpoint) as client:
        await client.create_channel("c")
        manifest = await take(server, backups)
    target = tmp_path / "restored"
    target.mkdir()
    (target / "mine").touch()
    with pytest.raises(BackupError, match="not empty"):
        restore_copy(backups, manifest, target, COUNT)
    assert [path.name for path in target.iterdir()] == ["mine"]
    (target / "mine").unlink()
    restore_copy(backups, manifest, target, COUNT)
    assert (target / "FORMAT").is_file()
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


async def test_checkpoints_are_few_and_go_by_themselves(tmp_path: Path) -> None:
    async with running_server(tmp_path / "log") as server:
        kept, _ = [await server._checkpoints.create(lease_ms) for lease_ms in (60_000, 1_000)]
        with pytest.raises(RateLimitRejectedError):
            await server._checkpoints.create(60_000)
        await until(lambda: len(server._checkpoints.states()) == 1, 10.0, "the second one's lease ran out")
        assert [state.checkpoint_id for state in server._checkpoints.states()] == [kept.checkpoint_id]
        await until(lambda: os.listdir(tmp_path / "log" / "checkpoints") == [kept.checkpoint_id], 5.0, "it is gone")
    assert os.listdir(tmp_path / "log" / "checkpoints") == []


async def test_checkpoints_are_listed_until_they_are_released(tmp_path: Path) -> None:
    async with running_server(tmp_path / "log") as server, AsyncClient(server.grpc_endpoint) as client:
        first = await client.create_checkpoint()
        second = await client.create_checkpoint(lease_s=30)
        assert (first.lease_s, second.lease_s) == (60, 30)
        assert await client.list_checkpoints() == [first, second]
        assert (Path(second.folder) / "HEAD").exists()
        await client.release_checkpoint(first.checkpoint_id)
        await client.release_checkpoint(first.checkpoint_id)
        await client.keep_checkpoint(second.checkpoint_id)
        with pytest.raises(tidelog.CheckpointNotFoundError):
            await client.keep_checkpoint(first.checkpoint_id)
        assert await client.list_checkpoints() == [second]
        with pytest.raises(tidelog.InvalidRequestError):
            await client.create_checkpoint(lease_s=0.5)


async def test_a_log_in_memory_is_not_backed_up(tmp_path: Path) -> None:
    async with running_server() as server:
        with pytest.raises(tidelog.CheckpointError, match="cannot make checkpoints") as error:
            await take(server, open_backup_folder(tmp_path / "backups", create=True))
        assert refused(error.value).code == ExitCode.CONFLICT


@pytest.mark.parametrize("make", [lambda path: path.touch(), lambda path: (path.mkdir(), (path / "x").touch())])
def test_what_is_no_folder_of_backups_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "other")
    with pytest.raises((BackupError, OSError)):
        open_backup_folder(tmp_path / "other", create=True)
