"""The start-up gate accepts intact folders and refuses all others without modifying them.

Method: folders of a store that crashed (copied while it was open), each damaged in one way, and opened as the server
opens them: with the real child process. A refused folder must be unchanged byte for byte.
Promises of docs/reference/guarantees.md: G15.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tidelog_cli.child_environment import python_path
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import STORE_TABLE_FILES
from tidelog_server.storage.format.cluster_file import ClusterIdentity, write_identity
from tidelog_server.storage.format.data_folder import DataFolder, lock_data_folder, wal_files
from tidelog_server.storage.format.folder_errors import (
    DataFolderError,
    FolderInUseError,
    NoResourcesError,
    StoreUncheckedError,
)
from tidelog_server.storage.format.head_file import SLOT_BYTES
from tidelog_server.storage.recovery.gate import pass_gate
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_server.storage.rocksdb.store import RocksdbLogStore
from tidelog_testing.faults.damage import content_of, crashed_copy, cut, damaged, digests, filled_store, flip_bit
from tidelog_testing.parts.entries import run_of_entries

FLUSHED, UNFLUSHED = 40, 40


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate")
    store = filled_store(folder / "live", flushed=FLUSHED, unflushed=UNFLUSHED)
    copy = crashed_copy(store, folder / "crashed")
    store.close()
    return copy


def newest_wal(folder: Path) -> Path:
    return max(wal_files(folder / "db"), key=lambda path: path.stat().st_size)


def largest(folder: Path, pattern: str) -> Path:
    return max((folder / "db").glob(pattern), key=lambda path: path.stat().st_size)


def test_a_crashed_folder_opens_with_everything(crashed: Path, tmp_path: Path) -> None:
    with damaged(crashed, tmp_path / "copy") as folder:
        store = open_rocksdb_log_store(folder)
        content = content_of(store)
        assert store.head.sequence == FLUSHED + UNFLUSHED
        assert list(store.metadata_rows().scan()) == [(b"vkey", b"value")]
        store.close()
        assert sum(map(len, content.values())) == FLUSHED + UNFLUSHED
        # And again, after the clean shutdown.
        store = open_rocksdb_log_store(folder)
        assert content_of(store) == content
        store.close()


def test_intact_folders_are_never_refused(tmp_path: Path) -> None:
    store = filled_store(tmp_path / "live", flushed=0, unflushed=0)
    for i in range(12):
        first_tick = 10_000 * (i + 1)
        for vchannel_id in (1, 2):
            store.write(run_of_entries(vchannel_id, 30, first_tick=first_tick, size_bytes=6_000))
        store.sync()
        if i % 3 == 1:
            store.trim(1, first_tick - 5_000)
        if i % 4 == 3:
            store.drop_vchannels([2])
            store.create_vchannels([2])
        if i % 5 == 4:
            store.close()
            store = open_rocksdb_log_store(tmp_path / "live")
        copy = crashed_copy(store, tmp_path / f"copy{i}", keeps_padding=True)
        reopened = open_rocksdb_log_store(copy)
        assert content_of(reopened) == content_of(store)
        assert reopened.head == store.head
        reopened.close()
    store.close()


def delete(pattern: str) -> Callable[[Path], None]:
    return lambda folder: largest(folder, pattern).unlink()


def halve(pattern: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = largest(folder, pattern)
        cut(path, path.stat().st_size // 2)

    return damage


def flip_in_middle(pattern: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = largest(folder, pattern)
        flip_bit(path, path.stat().st_size // 2, 3)

    return damage


def remove_database(folder: Path) -> None:
    for path in (folder / "db").iterdir():
        path.unlink()
    (folder / "db").rmdir()


def empty_database(folder: Path) -> None:
    for path in (folder / "db").iterdir():
        path.unlink()


def spoil_both_slots(folder: Path) -> None:
    for slot in (0, 1):
        flip_bit(folder / "HEAD", slot * SLOT_BYTES + 50, 0)


DAMAGES = {
    "WAL deleted": delete("*.log"),
    "WAL halved": halve("*.log"),
    "WAL emptied": lambda folder: cut(newest_wal(folder), 0),
    "WAL flipped": flip_in_middle("*.log"),
    "table deleted": delete("*.sst"),
    "table halved": halve("*.sst"),
    "blob file deleted": delete("*.blob"),
    "blob file halved": halve("*.blob"),
    "MANIFEST deleted": delete("MANIFEST-*"),
    "MANIFEST halved": halve("MANIFEST-*"),
    "CURRENT deleted": lambda folder: (folder / "db" / "CURRENT").unlink(),
    "CURRENT emptied": lambda folder: cut(folder / "db" / "CURRENT", 0),
    "database removed": remove_database,
    "database emptied": empty_database,
    "HEAD deleted": lambda folder: (folder / "HEAD").unlink(),
    "HEAD cut": lambda folder: cut(folder / "HEAD", 100),
    "both slots of HEAD flipped": spoil_both_slots,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_folder_is_refused_and_not_modified(
    crashed: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    with damaged(crashed, tmp_path / "copy") as folder:
        damage(folder)
        before = digests(folder)
        with pytest.raises(DataLossError):
            open_rocksdb_log_store(folder)
        assert digests(folder) == before


def test_the_refusal_names_both_positions(crashed: Path, tmp_path: Path) -> None:
    with damaged(crashed, tmp_path / "copy") as folder:
        newest_wal(folder).unlink()
        with pytest.raises(DataLossError) as refusal:
            open_rocksdb_log_store(folder)
    assert refusal.value.values["synced_sequence"] == str(FLUSHED + UNFLUSHED)
    assert refusal.value.values["recovered_sequence"] == str(FLUSHED)


def test_a_database_of_another_folder_is_refused(crashed: Path, tmp_path: Path) -> None:
    other = filled_store(tmp_path / "other", flushed=FLUSHED, unflushed=UNFLUSHED)
    other.close()
    with damaged(crashed, tmp_path / "copy") as folder:
        remove_database(folder)
        (tmp_path / "other" / "db").rename(folder / "db")
        with pytest.raises(DataLossError, match="different data folders"):
            open_rocksdb_log_store(folder)


def test_lost_metadata_is_refused_although_no_entry_is_lost(tmp_path: Path) -> None:
    store = filled_store(tmp_path / "live", flushed=0, unflushed=5)
    sound_bytes = newest_wal(tmp_path / "live").stat().st_size
    store.metadata_rows().apply([(b"vchannel", b"orders")], [])
    folder = crashed_copy(store, tmp_path / "copy")
    store.close()
    cut(newest_wal(folder), sound_bytes)
    with pytest.raises(DataLossError, match="metadata"):
        open_rocksdb_log_store(folder)


def trim_on(store: RocksdbLogStore) -> None:
    store.trim(2, store.tail(2).last_tick + 1)


def drop_on(store: RocksdbLogStore) -> None:
    store.drop_vchannels([2])


def make_again_on(store: RocksdbLogStore) -> None:
    store.drop_vchannels([2])
    store.create_vchannels([2])


def make_again_and_write_on(store: RocksdbLogStore) -> None:
    make_again_on(store)
    store.write(run_of_entries(2, 2_000, first_tick=2_000_000))
    store.sync()


@pytest.mark.parametrize("change", [trim_on, drop_on, make_again_on, make_again_and_write_on])
def test_a_head_older_than_a_trim_or_drop_is_no_harm(tmp_path: Path, change: Callable[[RocksdbLogStore], None]) -> None:
    store = filled_store(tmp_path / "live", flushed=0, unflushed=3)
    store.write(run_of_entries(2, 3, first_tick=100_000))
    store.sync()
    old_head = (crashed_copy(store, tmp_path / "before") / "HEAD").read_bytes()
    change(store)
    store.write(run_of_entries(1, 3, first_tick=3_000_000))
    store.sync()
    folder = crashed_copy(store, tmp_path / "after")
    (folder / "HEAD").write_bytes(old_head)
    reopened = open_rocksdb_log_store(folder)
    assert content_of(reopened) == content_of(store)
    reopened.close()
    store.close()


def test_one_bad_slot_of_the_head_is_no_harm(crashed: Path, tmp_path: Path) -> None:
    for slot in (0, 1):
        with damaged(crashed, tmp_path / f"copy{slot}") as folder:
            flip_bit(folder / "HEAD", slot * SLOT_BYTES + 20, 5)
            store = open_rocksdb_log_store(folder)
            assert store.head.sequence == FLUSHED + UNFLUSHED
            store.close()


def test_the_operator_may_accept_the_loss_of_the_head(crashed: Path, tmp_path: Path) -> None:
    with damaged(crashed, tmp_path / "copy") as folder:
        spoil_both_slots(folder)
        store = open_rocksdb_log_store(folder, accept_head_loss=True)
        assert store.head.sequence == FLUSHED + UNFLUSHED
        store.close()
        open_rocksdb_log_store(folder).close()


def test_a_torn_tail_opens_with_everything_synced_and_is_quarantined(crashed: Path, tmp_path: Path) -> None:
    for i, tail in enumerate((b"garbage", bytes(100) + b"\x01" * 40, os.urandom(70_000))):
        with damaged(crashed, tmp_path / f"copy{i}") as folder:
            wal = newest_wal(folder)
            sound_bytes = wal.stat().st_size
            with wal.open("ab") as file:
                file.write(tail)
            store = open_rocksdb_log_store(folder)
            assert store.head.sequence == FLUSHED + UNFLUSHED
            store.close()
            (copy,) = (folder / "quarantine").iterdir()
            assert copy.name.endswith(f"{wal.name}-{sound_bytes}")
            assert copy.read_bytes() == tail
            open_rocksdb_log_store(folder).close()
            assert list((folder / "quarantine").iterdir()) == [copy]


def test_the_view_of_a_start_that_crashed_is_removed(crashed: Path, tmp_path: Path) -> None:
    with damaged(crashed, tmp_path / "copy") as folder:
        (folder / "view-old").mkdir()
        (folder / "view-old" / "CURRENT").symlink_to(folder / "db" / "CURRENT")
        open_rocksdb_log_store(folder).close()
        assert not list(folder.glob("view-*"))
        assert (folder / "db" / "CURRENT").is_file()


def test_a_look_does_not_write_through_the_links(crashed: Path, tmp_path: Path) -> None:
    with damaged(crashed, tmp_path / "copy") as path:
        (path / "db" / "rocksdict-config.json").write_text("damaged")
        for file in (path / "db").iterdir():
            os.utime(file, (1, 1))
        folder = lock_data_folder(path)
        pass_gate(folder, accept_head_loss=False)
        folder.close()
        assert {file.stat().st_mtime for file in (path / "db").iterdir()} == {1}


def pass_quietly(folder: DataFolder, check: str) -> None:
    with suppress(StoreUncheckedError):
        pass_gate(folder, accept_head_loss=False, check=check)


def test_a_check_whose_server_was_killed_keeps_the_folder_locked_until_it_ends(
    crashed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Simulates a child that RocksDB keeps busy: it marks that it runs, and ends when its view is removed.
    (tmp_path / "busy_child.py").write_text(
        "import pathlib, sys\nruns = pathlib.Path(sys.argv[2], 'runs')\nruns.touch()\nwhile runs.exists(): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with damaged(crashed, tmp_path / "copy") as path:
        folder = lock_data_folder(path)
        check = threading.Thread(target=pass_quietly, args=(folder, "busy_child"))
        check.start()
        while not (runs := list(path.glob("view-*/runs"))):
            assert check.is_alive()
        folder.close()
        with pytest.raises(FolderInUseError):
            lock_data_folder(path)
        runs[0].unlink()
        check.join()
        lock_data_folder(path).close()


def test_a_check_ends_by_itself_at_its_deadline() -> None:
    program = (
        "import signal, sys; from tidelog_server.storage.recovery import child\n"
        "child.inspect = lambda *_: signal.pause(); sys.argv = ['', '', '', '0']; child.main()"
    )
    environment = os.environ | {"PYTHONPATH": python_path()}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert ended.returncode == -signal.SIGALRM


def test_a_check_that_hangs_is_ended_at_the_deadline(crashed: Path, tmp_path: Path) -> None:
    with damaged(crashed, tmp_path / "copy") as path:
        folder = lock_data_folder(path)
        before = digests(path)
        with pytest.raises(StoreUncheckedError, match="did not end within"):
            pass_gate(folder, accept_head_loss=False, deadline_s=0.01)
        assert digests(path) == before
        folder.close()


def test_a_check_that_crashes_proves_no_damage(crashed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crashing_check.py").write_text("import os\nos.abort()\n")
    monkeypatch.syspath_prepend(tmp_path)
    with damaged(crashed, tmp_path / "copy") as folder:
        before = digests(folder)
        with pytest.raises(StoreUncheckedError, match="crashed"):
            open_rocksdb_log_store(folder, check="crashing_check")
        assert digests(folder) == before


def test_a_check_without_memory_is_told_from_damage(
    crashed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "check_without_memory.py").write_text(
        "import resource, sys\nfrom pathlib import Path\n"
        "from tidelog_server.storage.recovery.child import main\n"
        # A fixed limit is enough for RocksDB in some runs: how much address space its threads reserve varies.
        "limit = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize() + (4 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\nsys.exit(main())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with damaged(crashed, tmp_path / "copy") as folder:
        before = digests(folder)
        with pytest.raises((NoResourcesError, StoreUncheckedError)):
            open_rocksdb_log_store(folder, check="check_without_memory")
        assert digests(folder) == before


def test_a_damaged_cluster_file_is_found_before_the_first_write(crashed: Path, tmp_path: Path) -> None:
    with damaged(crashed, tmp_path / "copy") as folder:
        write_identity(folder, ClusterIdentity("0123456789abcdef", "n1", 7))
        flip_bit(folder / "CLUSTER", 20, 2)
        before = digests(folder)
        with pytest.raises(DataLossError, match="CLUSTER"):
            open_rocksdb_log_store(folder)
        assert digests(folder) == before


def test_the_index_of_any_table_is_looked_at_before_the_first_write(tmp_path: Path) -> None:
    store = filled_store(tmp_path / "live", flushed=0, unflushed=0)
    # More tables than RocksDB opens with the database, which is a quarter of those that it holds open.
    store._engine.columns.set_options({"disable_auto_compactions": "true"})
    for number in range(STORE_TABLE_FILES // 4 + 20):
        store.write(run_of_entries(1 + number % 3, 1, first_tick=1_000 + 100 * number, size_bytes=5_000))
        store._engine.columns.flush(True)
    store.sync()
    folder = crashed_copy(store, tmp_path / "crashed")
    store.close()
    tables = sorted((folder / "db").glob("*.sst"))
    for table in (tables[1], tables[len(tables) // 2], tables[-1]):
        with damaged(folder, tmp_path / "copy") as copy:
            flip_bit(copy / "db" / table.name, table.stat().st_size - 80, 3)
            before = digests(copy)
            with pytest.raises(DataLossError):
                open_rocksdb_log_store(copy)
            assert digests(copy) == before


def test_a_second_opener_is_refused_and_told_the_owner(tmp_path: Path) -> None:
    store = open_rocksdb_log_store(tmp_path / "store")
    program = (
        "import sys; from pathlib import Path\n"
        "from tidelog_server.storage.format.folder_errors import FolderInUseError\n"
        "from tidelog_server.storage.recovery.open import open_rocksdb_log_store\n"
        "try: open_rocksdb_log_store(Path(sys.argv[1]))\n"
        "except FolderInUseError as error: print(error.pid, end='')\n"
    )
    environment = os.environ | {"PYTHONPATH": python_path()}
    second = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "store")], env=environment, capture_output=True, check=True
    )
    assert second.stdout.decode() == str(os.getpid())
    with pytest.raises(FolderInUseError, match=f"process {os.getpid()}"):
        open_rocksdb_log_store(tmp_path / "store")
    store.close()
    open_rocksdb_log_store(tmp_path / "store").close()


@pytest.mark.parametrize("stamp", [b"tidelog data format 3\n", b"", b"tidelog data format 1", b"\xff\xfe"])
def test_an_unknown_format_is_refused(tmp_path: Path, stamp: bytes) -> None:
    open_rocksdb_log_store(tmp_path / "store").close()
    (tmp_path / "store" / "FORMAT").write_bytes(stamp)
    with pytest.raises(DataFolderError, match="this server supports"):
        open_rocksdb_log_store(tmp_path / "store")


def test_a_folder_that_lost_its_stamp_is_refused(tmp_path: Path) -> None:
    open_rocksdb_log_store(tmp_path / "store").close()
    (tmp_path / "store" / "FORMAT").unlink()
    with pytest.raises(DataFolderError, match="no FORMAT"):
        open_rocksdb_log_store(tmp_path / "store")


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("Dear Sir")
    with pytest.raises(DataFolderError, match=r"letters\.txt"):
        open_rocksdb_log_store(tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderError, match="cannot be used"):
        open_rocksdb_log_store(tmp_path / "file" / "store")


def test_a_folder_whose_creation_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    open_rocksdb_log_store(tmp_path / "whole").close()
    stamp = b"tidelog data format 1, being created\n"
    for name in ("only the stamp", "half a database", "all but the last stamp"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "FORMAT").write_bytes(stamp)
        if name != "only the stamp":
            (folder / "db").mkdir()
            (folder / "db" / "CURRENT").write_text("MANIFEST-000001\n")
        if name == "all but the last stamp":
            (folder / "HEAD").write_bytes((tmp_path / "whole" / "HEAD").read_bytes())
        store = open_rocksdb_log_store(folder)
        store.create_vchannels([1])
        store.close()
        open_rocksdb_log_store(folder).close()


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    open_rocksdb_log_store(tmp_path / "store").close()
    modes = {path.name: path.stat().st_mode & 0o777 for path in [tmp_path / "store", *(tmp_path / "store").iterdir()]}
    assert modes == {
        "store": 0o700, "FORMAT": 0o600, "LOCK": 0o600, "HEAD": 0o600, "db": 0o700, "quarantine": 0o700,
    }  # fmt: skip


KILLED = """
import sys
from pathlib import Path
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_testing.parts.entries import run_of_entries

store = open_rocksdb_log_store(Path(sys.argv[1]))
store.create_vchannels([1, 2])
for i in range(1_000):
    first_tick = 10_000 * (i + 1)
    store.write(run_of_entries(1, 3, first_tick=first_tick) + run_of_entries(2, 3, first_tick=first_tick))
    store.sync()
    sys.stdout.write(f"{store.head.sequence}\\n")
    sys.stdout.flush()
    if i % 5 == 4:
        store.trim(1, first_tick + 15)
        store.drop_vchannels([2])
        store.create_vchannels([2])
"""


@pytest.mark.crash
@pytest.mark.parametrize("failpoint", ["before_head_update:3", "mid_trim:1", "mid_trim:4", "mid_drop:1", "mid_drop:4"])
def test_a_store_killed_at_a_failpoint_opens_with_everything_synced(tmp_path: Path, failpoint: str) -> None:
    environment = os.environ | {"PYTHONPATH": python_path(), "TIDELOG_FAILPOINT": failpoint}
    child = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "store")], env=environment, capture_output=True, check=False
    )
    assert child.returncode == -signal.SIGKILL
    synced = int(child.stdout.split()[-1]) if child.stdout else 0
    store = open_rocksdb_log_store(tmp_path / "store")
    assert store.head.sequence >= synced
    assert set(store.vchannel_ids()) <= {1, 2}
    content_of(store)
    store.close()
