"""The whole state of a server, every row of every table, through starts, kills, backups, restores, trims, destructions.

Method: a data folder whose servers wrote several rounds, each of which changes every table (see
tidelog_testing.loads.every_table). A state is what the client reads, and the rows of the store (see
tidelog_testing.oracles.store_rows). States are compared table by table, and what may differ is named.

Promises of docs/reference/guarantees.md: G1, G2, G10.
"""

import asyncio
import json
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from compatibility.content import Json, dump, messages
from compatibility.mailbox_content import dump_mailboxes
from tidelog import BroadcastState, Client, MailboxSettings
from tidelog.journals.types import JournalUpsert
from tidelog.mailboxes.types import MessageState
from tidelog_server.backup.folder import BackupFolder, open_backup_folder
from tidelog_server.backup.manifest import Manifest
from tidelog_server.backup.restore import restore_copy
from tidelog_server.backup.restore_to_tick import RestoreReport
from tidelog_server.commands.engine import export_to
from tidelog_server.node import start_check
from tidelog_server.storage.engine.imports import folder_to_import
from tidelog_server.storage.format.data_folder import wal_files
from tidelog_testing.loads.every_table import (
    BROADCASTS_PER_ROUND,
    CHANNELS,
    MAILBOXES,
    Facts,
    begin,
    broadcast_until_killed,
    leave_open,
    write_round,
    write_snapshots,
)
from tidelog_testing.oracles.restored_rows import chunks_of, folds_until, positions_until, tails_of, windows_until
from tidelog_testing.oracles.store_rows import OF_METADATA, OF_VCHANNELS, TABLES, Rows, rows_of
from tidelog_testing.parts.backups import COUNT, restore_until, take
from tidelog_testing.parts.engine_stores import NAME, create_log, engine_in, log_in
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.servers.processes import ServerProcess

# The server allocates ticks ahead of the log, and the metadata has the bound, so it depends on the time.
OF_THE_TIME = frozenset({"metadata/timestamp"})


@dataclass(frozen=True)
class State:
    """What a server had at a moment.

    Attributes:
        content: What the client reads.
        rows: The rows of the store.
        tick: The greatest tick at that moment.
        facts: What was written until then.
    """

    content: Json
    rows: Rows
    tick: int
    facts: Facts


@dataclass(frozen=True)
class Scene:
    """What the servers left.

    Attributes:
        killed: The data folder of a killed server. Two transactions were open, and a broadcast was accepted only.
        last: What that server had just before; the rows are those of the folder.
        at_tick: What it had at its start, two rounds earlier.
        backed_up: What it had a round earlier, when the backup was taken.
    """

    killed: Path
    last: State
    at_tick: State
    backed_up: State
    backups: BackupFolder
    manifest: Manifest


def content_of(client: Client, facts: Facts) -> Json:
    """Return what a client reads, and the answers to repeated sends, which are recognized by their keys."""
    repeated = [
        [mailbox.name, key, *client.mailbox(mailbox.name).send(b"never", dedup_key=key)]
        for mailbox in client.mailboxes.list()
        if mailbox.name in ("jobs", "doomed-box")
        for key in facts.dedup_keys
    ]
    return dump(client, facts.txn_ids) | dump_mailboxes(client, asdict(facts)) | {"repeated": repeated}


def state_of(client: Client, facts: Facts) -> State:
    content = content_of(client, facts)
    checkpoint = client.create_checkpoint()
    rows = rows_of(Path(checkpoint.folder))
    client.release_checkpoint(checkpoint.checkpoint_id)
    return State(content, rows, client.allocate_ticks()[0], deepcopy(facts))


@contextmanager
def serving(folder: Path, failpoint: str = "") -> Iterator[tuple[ServerProcess, Client]]:
    """Run a server as a process; SIGKILL ends it."""
    with ServerProcess(folder, env={"TIDELOG_FAILPOINT": failpoint}) as server:
        with Client(server.grpc, client_id="whole-state", timeout_s=10) as client:
            yield server, client
            server.kill()


def vchannel_ids(state: State, channel: str) -> list[int]:
    """Return the ids of a channel's vchannels."""
    record: Json = json.loads(state.rows["metadata/channel"][f"tidelog/channel/{channel}",])
    return list(record["vchannel_ids"])


def rows_but(rows: Rows, ids: Collection[int] = (), *, but: Collection[str] = ()) -> Rows:
    """Return all rows but those of the vchannels ``ids`` and those of the tables ``but``."""
    return {
        table: {key: row for key, row in found.items() if table not in OF_VCHANNELS or key[0] not in ids}
        for table, found in rows.items()
        if table not in OF_THE_TIME and table not in but
    }


def check_rows(found: Rows, expected: Rows) -> None:
    """Raise AssertionError unless the rows are equal, table by table."""
    assert found.keys() == expected.keys()
    for table, rows in expected.items():
        assert found[table] == rows, table


def check_content(found: Json, expected: Json) -> None:
    """Raise AssertionError unless the client reads the same, kind by kind."""
    assert found.keys() == expected.keys()
    for kind, content in expected.items():
        assert found[kind] == content, kind


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("whole-state")
    log, backups = folder / "log", open_backup_folder(folder / "backups", create=True)
    facts = begin(log)
    # The last broadcast of this server is in the log, and the metadata has it as pending.
    with serving(log, f"broadcast_appended:{BROADCASTS_PER_ROUND + 1}") as (server, client):
        write_round(client, facts, 2)
        broadcast_until_killed(server.grpc)
        server.wait()
    at_tick, backed_up, manifest = asyncio.run(back_up(log, backups, facts))
    # The last one of this server is in the metadata only.
    with serving(log, f"broadcast_accepted:{BROADCASTS_PER_ROUND + 1}") as (server, client):
        write_round(client, facts, 4)
        content, tick = content_of(client, facts), client.allocate_ticks()[0]
        leave_open(client)
        broadcast_until_killed(server.grpc)
        server.wait()
    last = State(content, rows_of(log), tick, deepcopy(facts))
    return Scene(log, last, at_tick, backed_up, backups, manifest)


async def back_up(log: Path, backups: BackupFolder, facts: Facts) -> tuple[State, State, Manifest]:
    """Take a backup after another round, in which some of the logs get a snapshot; return the states around it."""
    async with running_server(log) as server:

        def state() -> State:
            with Client(server.grpc_endpoint, client_id="whole-state") as client:
                return state_of(client, facts)

        def write() -> None:
            with Client(server.grpc_endpoint, client_id="whole-state") as client:
                write_round(client, facts, 3)

        at_tick = await asyncio.to_thread(state)
        await asyncio.to_thread(write)
        await write_snapshots(server, ["jobs", "dead"])
        backed_up = await asyncio.to_thread(state)
        return at_tick, backed_up, await take(server, backups)


@pytest.fixture(scope="module")
def recovered(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, State]:
    """Return a folder on which a server has started after the kill, and was killed again; and what it had."""
    folder = tmp_path_factory.mktemp("recovered") / "log"
    shutil.copytree(scene.killed, folder)
    with serving(folder) as (_, client):
        content, tick = content_of(client, scene.last.facts), client.allocate_ticks()[0]
    return folder, State(content, rows_of(folder), tick, scene.last.facts)


@contextmanager
def on_copy(recovered: tuple[Path, State], folder: Path) -> Iterator[tuple[Path, State, Client]]:
    """Run a server on a copy of the recovered folder. Yields the folder, what it has, and a client."""
    shutil.copytree(recovered[0], folder)
    with serving(folder) as (_, client):
        yield folder, recovered[1], client


def check_after_restart(folder: Path, was: State) -> None:
    """Raise AssertionError unless a killed server had what it still has after its next start."""
    with serving(folder) as (_, client):
        check_content(content_of(client, was.facts), was.content)
    check_rows(rows_but(rows_of(folder)), rows_but(was.rows))


def test_every_table_has_rows(scene: Scene) -> None:
    rows, content = scene.last.rows, scene.last.content

    assert rows.keys() == TABLES
    assert [table for table in sorted(TABLES) if not rows[table]] == []
    # In tables and in the WAL.
    database = scene.killed / "db"
    assert list(database.glob("*.sst"))
    assert list(database.glob("*.blob"))
    assert sum(path.stat().st_size for path in wal_files(database)) > 100_000
    # Rows of a principal, and of none.
    for table in ("windows", "outcomes", "app_commits", "floors"):
        assert {has_owner(table, key, row) for key, row in rows[table].items()} == {True, False}, table
    assert {table for table, _ in rows["floors"]} == {"APPS", "FINISHED_APPS", "OUTCOMES"}
    assert {commit["is_last"] for commit in rows["app_commits"].values()} == {True, False}
    # Staged batches of committed transactions, and of open ones.
    assert {bool(tick) for tick in rows["staged_txns"].values()} == {True, False}
    assert {name.split("/")[0] for name in content["groups"]["billing"]["positions"]} == {"orders", "payments"}
    states = {each["state"] for each in content["broadcasts"]}
    assert states == {state.value for state in (BroadcastState.DONE, BroadcastState.ABORTED, BroadcastState.WAIT_ACK)}
    assert len(rows["metadata/broadcast/message"]) == 1
    assert all(is_duplicate for *_, is_duplicate in content["repeated"])
    messages = [each for box in content["mailboxes"].values() for each in box["messages"]]
    assert {each["header"]["state"] for each in messages} == set(MessageState)
    [blobs_id] = vchannel_ids(scene.last, "_blobs")
    assert (blobs_id,) in rows["folds"]
    assert len(rows["folds"]) == 1 + len(MAILBOXES)
    counts = [(blob["references"] > 0, blob["messages"] > 0) for blob in content["blobs"].values()]
    assert set(counts) == {(True, False), (False, True), (False, False)}


def has_owner(table: str, key: tuple[Any, ...], row: Any) -> bool:
    """Return whether a row belongs to a principal."""
    if table == "windows":
        return bool(row["tenant"])
    if table == "outcomes":
        return bool(row[-1])
    return bool(key[0] if table == "app_commits" else key[1])


def without_broadcast(content: Json, broadcast_id: int, channel: str) -> Json:
    """Return the content without a broadcast, and without the channel to which it was sent."""
    content = deepcopy(content)
    del content["channels"][channel]
    content["messages"] = {lane: rows for lane, rows in content["messages"].items() if not lane.startswith(channel)}
    content["broadcasts"] = [each for each in content["broadcasts"] if each["broadcast_id"] != broadcast_id]
    content["open_broadcasts"] = [
        each for each in content["open_broadcasts"] if each["summary"]["broadcast_id"] != broadcast_id
    ]
    return content


def test_a_killed_server_has_everything_after_its_next_start(scene: Scene, recovered: tuple[Path, State]) -> None:
    before, after = scene.last, recovered[1]
    [pending] = (broadcast_of(key) for key in before.rows["metadata/broadcast/message"])
    lanes = vchannel_ids(before, "pending")

    # The broadcast that was accepted before the kill has been appended once to each of its vchannels. The earlier one,
    # which was in the log before the first kill, was not appended again.
    for lane in ("pending/0", "pending/1"):
        earlier, row = after.content["messages"][lane]
        assert [earlier] == before.content["messages"][lane]
        assert row[-1] == pending
    [(owner, tick)] = after.rows["broadcasts"].items()
    assert owner == (lanes[0], pending)
    assert {key for key, row in after.rows["entries"].items() if row[3] == pending} == {(lane, tick) for lane in lanes}
    assert after.rows["metadata/broadcast/message"] == {}
    states = {each["broadcast_id"]: each["state"] for each in after.content["broadcasts"]}
    assert states[pending] == BroadcastState.WAIT_ACK.value

    # Nothing else differs, but for the transactions that were open at the kill: they have ended.
    check_content(
        without_broadcast(after.content, pending, "pending"), without_broadcast(before.content, pending, "pending")
    )
    expected = deepcopy(before.rows)
    for place in [place for place, tick in expected["staged_txns"].items() if not tick]:
        del expected["staged_txns"][place]
        expected["staged"] = {key: row for key, row in expected["staged"].items() if key[:2] != place}
    but = ("broadcasts", "metadata/broadcast/message", "metadata/broadcast/progress")
    check_rows(rows_but(after.rows, lanes, but=but), rows_but(expected, lanes, but=but))
    kept = {key: row for key, row in before.rows["metadata/broadcast/progress"].items() if broadcast_of(key) != pending}
    assert kept.items() <= after.rows["metadata/broadcast/progress"].items()


def broadcast_of(key: tuple[Any, ...]) -> int:
    """Return the broadcast to which a row of the metadata belongs."""
    return int(key[0].split("/")[2])


def test_a_clean_stop_and_a_start_change_nothing(recovered: tuple[Path, State], tmp_path: Path) -> None:
    folder, was = shutil.copytree(recovered[0], tmp_path / "log"), recovered[1]
    for _ in range(2):
        with serving(folder) as (server, client):
            check_content(content_of(client, was.facts), was.content)
            server.terminate()
            server.wait()
        check_rows(rows_but(rows_of(folder)), rows_but(was.rows))


def test_a_restored_backup_has_everything(scene: Scene, tmp_path: Path) -> None:
    target, was = tmp_path / "restored", scene.backed_up
    restore_copy(scene.backups, scene.manifest, target, COUNT)

    with serving(target) as (_, client):
        check_content(content_of(client, was.facts), was.content)
    # A restored store is another incarnation.
    incarnation, *store = (rows := rows_of(target))["store"][()]
    assert store == list(was.rows["store"][()][1:])
    assert incarnation != was.rows["store"][()][0]
    check_rows(rows_but(rows, but=["store"]), rows_but(was.rows, but=["store"]))
    check_serves(target)


def check_serves(folder: Path) -> None:
    """Raise AssertionError unless a server on a folder changes each mailbox and journal, and makes new ones."""
    with serving(folder) as (_, client):
        channels = {each.name for each in client.list_channels(include_system=True)}
        for mailbox in client.mailboxes.list():
            assert mailbox.channel in channels
            altered = client.mailboxes.configure(mailbox.name, MailboxSettings(lease_ms=7)).settings
            assert client.mailboxes.describe(mailbox.name).settings == altered
        for journal in client.journals.list().journals:
            client.append(f"{journal.channel}/0", b"after\n")
            assert messages(client, f"{journal.channel}/0")[-1][1] == "after\n"
        [journal] = client.journals.apply([JournalUpsert("journals/after")])
        assert channels.isdisjoint([client.mailboxes.create("after").channel, journal.channel])


def test_a_log_in_an_engine_has_everything_and_gives_it_back(recovered: tuple[Path, State], tmp_path: Path) -> None:
    """The folder of a killed server is imported, and the log exported, both with every row of every table."""
    folder, was = shutil.copytree(recovered[0], tmp_path / "log"), recovered[1]
    for engine in (tmp_path / "once", tmp_path / "again"):
        create_log(engine_in(engine))
        with folder_to_import(folder, start_check.__name__) as opened:
            opened.copy_into(log_in(engine / "log"), NAME, lambda _: None)
        # The second import is of what was exported.
        folder = engine / "exported"
        exported = export_to(folder, log_in(engine / "log"), NAME, start_check.__name__, lambda _: None)
        incarnation, *store = (rows := rows_of(folder))["store"][()]
        assert (incarnation.hex(), store) == (exported.incarnation, list(was.rows["store"][()][1:]))
        check_rows(rows_but(rows, but=["store"]), rows_but(was.rows, but=["store"]))
    with serving(folder) as (_, client):
        check_content(content_of(client, was.facts), was.content)


@pytest.fixture(scope="module")
def restored(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> tuple[RestoreReport, State]:
    """Restore the backup up to the tick of an earlier state; return the report, and what a server on it has."""
    target, source = tmp_path_factory.mktemp("restored") / "log", scene.backups.data_path(scene.manifest.backup_id)
    report = asyncio.run(restore_until(source, target, scene.at_tick.tick))
    with serving(target) as (_, client):
        content = content_of(client, scene.at_tick.facts)
    rows = rows_of(target)
    check_serves(target)
    return report, State(content, rows, report.end_tick - 1, scene.at_tick.facts)


def test_a_restore_to_a_tick_has_the_rows_of_that_tick(scene: Scene, restored: tuple[RestoreReport, State]) -> None:
    was, later, rows = scene.at_tick.rows, scene.backed_up.rows, restored[1].rows
    tick = scene.at_tick.tick
    # The last round has trimmed this vchannel beyond the tick, so its messages are lost.
    [trimmed] = restored[0].trimmed_vchannels
    assert [trimmed] == vchannel_ids(scene.at_tick, "trimmed")

    as_then = ("columns", "entries", "outcomes", "staged", "staged_txns")
    for table in as_then:
        assert rows[table] == rows_but(was, [trimmed])[table] != later[table], table
    others = rows_but(rows, [*new_ids(scene), trimmed])
    assert chunks_of(others) == chunks_of(was)
    assert tails_of(others) == tails_of(rows_but(was, [trimmed]))
    assert rows["windows"] == windows_until(later["windows"], tick)
    assert rows["positions"] == positions_until(later["positions"], tick)
    assert rows["folds"] == folds_until(was, later)
    # The logs of the blobs and of ``jobs`` were trimmed, that of ``dead`` was not, and two have no later snapshot.
    assert len(rows["folds"].keys() & was["folds"].keys()) == 4 == len(was["folds"]) - 1
    assert len([key for key, next_tick in was["folds"].items() if later["folds"][key] != next_tick]) == 3
    # Earlier commits of an application that has committed since are unknown.
    commits = {app: commit for app, commit in was["app_commits"].items() if later["app_commits"][app] == commit}
    assert rows["app_commits"] == commits
    assert set(was["app_commits"]) - set(commits) == {("", "etl")}
    # The window of an earlier broadcast is deleted with the next broadcast, and those after the tick are not kept.
    assert rows["broadcasts"] == {}
    assert min(later["broadcasts"].values()) > tick
    # These do not say when they were written: they are as they were at the backup.
    for table in ("fences", "floors", *(name for name in OF_METADATA - OF_THE_TIME if "/broadcast/" not in name)):
        assert rows[table] == later[table], table
    for table in (name for name in OF_METADATA if "/broadcast/" in name):
        # That includes acknowledgements after the tick.
        assert rows[table] == {key: row for key, row in later[table].items() if broadcast_of(key) <= tick}, table
    assert rows["metadata/broadcast/progress"] != was["metadata/broadcast/progress"]
    compared = OF_VCHANNELS | {"outcomes", "app_commits", "floors"}
    # The store is another incarnation, with other hashes.
    assert TABLES - compared - OF_METADATA == {"store"}


def new_ids(scene: Scene) -> set[int]:
    """Return the ids of the vchannels that were made after the tick; they are restored empty."""
    return {key[0] for key in scene.backed_up.rows["tails"].keys() - scene.at_tick.rows["tails"].keys()}


def test_a_restore_to_a_tick_has_what_a_client_read_at_that_tick(
    scene: Scene, restored: tuple[RestoreReport, State]
) -> None:
    was, later, found = deepcopy(scene.at_tick.content), scene.backed_up.content, deepcopy(restored[1].content)
    tick, end_tick = scene.at_tick.tick, restored[0].end_tick
    assert end_tick == tick + 1

    # Fences are never lowered, and what was trimmed later is lost.
    for name in ("doomed", "orders"):
        fence = later["channels"][name]["vchannels"][1]["fencing_token"]
        assert was["channels"][name]["vchannels"][1]["fencing_token"] < fence
        was["channels"][name]["vchannels"][1]["fencing_token"] = fence
    [trimmed] = was["channels"]["trimmed"]["vchannels"]
    trimmed |= {"bytes": 0, "messages": 0, "last_tick": tick, "trim_tick": end_tick}
    was["messages"]["trimmed/0"] = []
    # Groups and broadcasts have the records of the backup; the test of the rows compares their positions.
    assert found.pop("groups").keys() == later["groups"].keys() > was.pop("groups").keys()
    assert found.pop("broadcasts") == [each for each in later["broadcasts"] if each["tick"] <= tick]
    assert found.pop("open_broadcasts") == [
        each for each in later["open_broadcasts"] if each["summary"]["tick"] <= tick
    ]
    del was["broadcasts"], was["open_broadcasts"]
    # Journals have their labels of the backup, and their frames of the tick. Revisions count the changes of a store.
    assert found["journals"].pop("journals/3")[1] == []
    for content in (found, was):
        for description, _ in content["journals"].values():
            del description["revision"]
        for mailbox in content["mailboxes"].values():
            del mailbox["description"]["revision"]
    check_content(found, was)


def test_a_trim_of_every_channel_deletes_its_messages_and_nothing_else(
    recovered: tuple[Path, State], tmp_path: Path
) -> None:
    with on_copy(recovered, tmp_path / "log") as (folder, was, client):
        journals = [content[0]["channel"] for content in was.content["journals"].values()]
        channels = [*CHANNELS, *journals]
        for channel in channels:
            for lane in client.channel(channel).describe().vchannels:
                client.trim(lane.name, everything=True)
        after = state_of(client, was.facts)
    ids = [each for channel in channels for each in vchannel_ids(was, channel)]

    # Windows, positions, fences, outcomes and commits still recognize what is repeated.
    messages_of = ("chunks", "columns", "entries", "staged", "staged_txns")
    check_rows(rows_but(after.rows, but=["tails", *messages_of]), rows_but(was.rows, but=["tails", *messages_of]))
    for table in messages_of:
        assert any(key[0] in ids for key in was.rows[table])
        assert after.rows[table] == rows_but(was.rows, ids)[table], table
    assert rows_but(after.rows, ids)["tails"] == rows_but(was.rows, ids)["tails"]
    for number in ids:
        tail, before = after.rows["tails"][number,], was.rows["tails"][number,]
        assert (tail["trim_tick"], tail["trimmed_messages"]) == (before["last_tick"] + 1, before["messages"])
        assert (tail["last_tick"], tail["messages"]) == (before["last_tick"], before["messages"])

    expected = deepcopy(was.content)
    expected["messages"] = {lane: [] for lane in was.content["messages"]}
    for channel in expected["channels"].values():
        for lane in channel["vchannels"]:
            lane |= {"bytes": 0, "messages": 0, "trim_tick": lane["last_tick"] + 1}
    for content in expected["journals"].values():
        content[1] = []
    for group in expected["groups"].values():
        for position in group["positions"].values():
            last_tick = was.rows["tails"][vchannel_id_of(was, position["vchannel"]),]["last_tick"]
            position |= {"lag_bytes": 0, "lag_messages": 0, "is_trimmed": position["next_tick"] <= last_tick}
    check_content(after.content, expected)
    check_after_restart(folder, after)


def vchannel_id_of(state: State, vchannel: str) -> int:
    """Return the id of a vchannel."""
    channel, number = vchannel.split("/")
    return vchannel_ids(state, channel)[int(number)]


@dataclass(frozen=True)
class Destroyed:
    """A folder from which one thing after another was destroyed, and what the server had after each."""

    folder: Path
    before: State
    without_group: State
    without_mailbox: State
    without_channel: State
    without_last_channel: State


@pytest.fixture(scope="module")
def destroyed(recovered: tuple[Path, State], tmp_path_factory: pytest.TempPathFactory) -> Destroyed:
    with on_copy(recovered, tmp_path_factory.mktemp("destroyed") / "log") as (folder, before, client):
        client.destroy_group("doomed-group")
        without_group = state_of(client, before.facts)
        client.mailboxes.delete("doomed-box")
        without_mailbox = state_of(client, before.facts)
        client.destroy_channels(["doomed"])
        without_channel = state_of(client, before.facts)
        client.destroy_channels(["pending"])
        return Destroyed(
            folder, before, without_group, without_mailbox, without_channel, state_of(client, before.facts)
        )


def test_the_destruction_of_a_group_deletes_its_positions_and_nothing_else(destroyed: Destroyed) -> None:
    was, after = destroyed.before, destroyed.without_group

    expected = deepcopy(was)
    del expected.content["groups"]["doomed-group"]
    del expected.rows["metadata/group"]["tidelog/group/doomed-group",]
    gone = [key for key in was.rows["positions"] if key[1] == "doomed-group"]
    assert len(gone) == 4
    for key in gone:
        del expected.rows["positions"][key]
    check_content(after.content, expected.content)
    check_rows(rows_but(after.rows), rows_but(expected.rows))


def test_the_destruction_of_a_mailbox_deletes_its_rows_and_nothing_else(destroyed: Destroyed) -> None:
    was, after = destroyed.without_group, destroyed.without_mailbox

    expected = deepcopy(was)
    channel = expected.content["mailboxes"].pop("doomed-box")["description"]["channel"]
    ids = vchannel_ids(was, channel)
    del expected.rows["metadata/mailbox"]["tidelog/mailbox/doomed-box",]
    del expected.rows["metadata/channel"][f"tidelog/channel/{channel}",]
    expected.content["repeated"] = [each for each in was.content["repeated"] if each[0] != "doomed-box"]
    for each in expected.content["mailboxes"]["dead"]["messages"]:
        # Its dead letters stay, and do not name it: another mailbox may have the name later.
        if each["dead_letter"][0] == "doomed-box":
            each["dead_letter"][0] = ""
    for key, blob in expected.content["blobs"].items():
        blob["messages"] -= blobs_of(was, "doomed-box").count(key)
    check_gone(after, expected, ids, {"entries", "folds", "tails"})


def blobs_of(state: State, mailbox: str) -> list[str]:
    """Return the keys of the blobs that are bodies of a mailbox's messages."""
    large = [each["body"] for each in state.content["mailboxes"][mailbox]["messages"] if " bytes " in each["body"]]
    return [key for key, blob in state.content["blobs"].items() for body in large if blob["content"] == body]


def check_gone(after: State, expected: State, ids: Collection[int], tables: Collection[str]) -> None:
    """Raise AssertionError unless exactly the rows of vchannels are gone, of which there were some in ``tables``."""
    assert {table for table in OF_VCHANNELS if any(key[0] in ids for key in expected.rows[table])} == set(tables)
    # The row of the store counts the entries that are gone.
    check_rows(rows_but(after.rows, but=["store"]), rows_but(expected.rows, ids, but=["store"]))
    assert after.rows["store"][()][0] == expected.rows["store"][()][0]
    check_content(after.content, expected.content)


def test_the_destruction_of_a_channel_deletes_its_rows_and_nothing_else(destroyed: Destroyed) -> None:
    was, after, last = destroyed.without_mailbox, destroyed.without_channel, destroyed.without_last_channel

    expected = channel_destroyed(was, "doomed", after)
    check_gone(after, expected, vchannel_ids(was, "doomed"), OF_VCHANNELS - {"broadcasts", "folds"})
    # The last broadcast was sent to this channel.
    expected = channel_destroyed(after, "pending", last)
    check_gone(last, expected, vchannel_ids(was, "pending"), {"broadcasts", "entries", "tails"})


def test_what_was_destroyed_is_gone_after_a_start_and_all_else_is_there(destroyed: Destroyed) -> None:
    check_after_restart(destroyed.folder, destroyed.without_last_channel)


def channel_destroyed(state: State, channel: str, after: State) -> State:
    """Return the state without what names a channel; broadcasts are taken from ``after``, and are checked here."""
    expected = deepcopy(state)
    del expected.content["channels"][channel]
    del expected.rows["metadata/channel"][f"tidelog/channel/{channel}",]
    lanes = [lane for lane in state.content["messages"] if lane.startswith(f"{channel}/")]
    for lane in lanes:
        del expected.content["messages"][lane]
        for group in expected.content["groups"].values():
            group["positions"].pop(lane, None)
    for txn in expected.content["committed_transactions"]:
        txn["vchannels"] = [lane for lane in txn["vchannels"] if lane not in lanes]
    # A vchannel that is gone counts as acknowledged.
    assert all(set(lanes).isdisjoint(each["missing"]) for each in after.content["open_broadcasts"])
    for kind in ("broadcasts", "open_broadcasts"):
        expected.content[kind] = after.content[kind]
    for table in OF_METADATA:
        if "/broadcast/" in table:
            expected.rows[table] = after.rows[table]
    return expected
