"""An export has everything that the log has at its end, and is a store like any other; the log is not changed."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from tidelog_cli.exit_codes import CommandError, ExitCode
from tidelog_server.backup.manifest import BackupError
from tidelog_server.commands.engine import export_to, told_of_folder
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.ticks import Tick
from tidelog_server.recordlog.engine import EngineUnavailableError, Read
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.recordlog.records import Position
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.engine.export import Exported
from tidelog_server.storage.recovery.gate import STORE_CHECK
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_testing.parts.engine_stores import INCARNATION, NAME, make_changes, open_in, state_of
from tidelog_testing.parts.entries import (
    fill,
    new_entry,
    place_and_columns,
    read_all,
)
from tidelog_testing.parts.folder_engine import FolderEngine


def export(folder: Path, target: str = "exported", engine: FolderEngine | None = None) -> Exported:
    log = RecordLog(engine or FolderEngine(folder / "log"), SystemClock())
    return export_to(folder / target, log, NAME, STORE_CHECK, lambda _: None)


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_an_export_has_everything_and_is_a_new_store(tmp_path: Path, is_trimmed: bool) -> None:
    with closing(open_in(tmp_path)) as store:
        fill(store, size_bytes=3_000)
        if is_trimmed:
            make_changes(store.snapshot())
            store.sync(store.write([new_entry(1, 40_000, size_bytes=3_000)]))
        state = state_of(store)
    before = FolderEngine(tmp_path / "log").bounds()
    assert (before.begin > 0) == is_trimmed
    exported = export(tmp_path)
    assert FolderEngine(tmp_path / "log").bounds() == before
    assert (exported.sequence, exported.end) == (state["head"].sequence, before.end)
    assert not (tmp_path / "exported" / "view").exists()
    for _ in range(2):
        with closing(open_rocksdb_log_store(tmp_path / "exported")) as copy:
            assert state_of(copy) == state
            assert copy.incarnation.hex() == exported.incarnation != INCARNATION.hex()
    with closing(open_rocksdb_log_store(tmp_path / "exported")) as copy:
        copy.sync(copy.write([new_entry(1, 50_000)]))
        assert copy.head.sequence == exported.sequence + 1


def test_an_empty_log_is_exported_as_an_empty_store(tmp_path: Path) -> None:
    open_in(tmp_path).close()
    assert export(tmp_path)[1:3] == (0, 0)
    with closing(open_rocksdb_log_store(tmp_path / "exported")) as copy:
        assert copy.vchannel_ids() == []
        copy.create_vchannels([1])
        copy.sync(copy.write([new_entry(1, 10)]))


@pytest.mark.extended
def test_an_export_of_a_log_that_is_being_written_is_a_prefix_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    """Also in the middle of a group of several parts: an export ends between two groups."""
    with closing(open_in(tmp_path)) as store:
        store.create_vchannels([1])
        written = [
            new_entry(1, 100 * number, size_bytes=1_500_000 if number % 7 == 0 else 2_000) for number in range(1, 400)
        ]
        acknowledged: list[int] = []
        may_stop = threading.Event()

        def write() -> None:
            for entry in written:
                store.sync(store.write([entry]))
                acknowledged.append(entry.base_tick)
                if may_stop.is_set():
                    return

        writer = threading.Thread(target=write)
        writer.start()
        found = []
        for number in range(3):
            before = len(acknowledged)
            exported = export(tmp_path, f"exported-{number}")
            with closing(open_rocksdb_log_store(tmp_path / f"exported-{number}")) as copy:
                entries = list(map(place_and_columns, read_all(copy, 1)))
            assert entries == list(map(place_and_columns, written[: exported.sequence]))
            assert exported.sequence >= before
            found.append(exported.sequence)
        may_stop.set()
        writer.join()
    assert sorted(found) == found


def test_a_group_without_its_last_part_is_not_exported(tmp_path: Path) -> None:
    with closing(open_in(tmp_path)) as store:
        store.create_vchannels([1])
        store.sync(store.write([new_entry(1, 10)]))
        store.sync(store.write([new_entry(1, 20, size_bytes=2_500_000)]))
    records = sorted(path for path in (tmp_path / "log").iterdir() if path.name.isdecimal())
    records[-1].unlink()
    assert export(tmp_path).sequence == 1


def test_a_damaged_record_is_data_loss_and_no_folder_is_left(tmp_path: Path) -> None:
    with closing(open_in(tmp_path)) as store:
        store.create_vchannels([1])
        for tick in (10, 20):
            store.sync(store.write([new_entry(1, tick, size_bytes=5_000)]))
    damaged = sorted(path for path in (tmp_path / "log").iterdir() if path.name.isdecimal())[-1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    with pytest.raises(DataLossError, match="its CRC-32C is not that of its bytes"):
        export(tmp_path)
    assert not (tmp_path / "exported").exists()


class TrimmedEngine(FolderEngine):
    """A log that is trimmed by its owner once a record is read by itself: for the columns of a row."""

    def read(self, begin: Position, max_bytes: int, wait_s: float = 0.0) -> Read:
        if begin and max_bytes == 1:
            self.trim(self.bounds().end - 1)
        return super().read(begin, max_bytes, wait_s)


def test_an_export_of_a_log_that_is_trimmed_meanwhile_says_so(tmp_path: Path) -> None:
    with closing(open_in(tmp_path)) as store:
        store.create_vchannels([1])
        for tick in (10, 20):
            store.sync(store.write([new_entry(1, tick, size_bytes=5_000)]))
    with pytest.raises(EngineUnavailableError, match="was trimmed up to position 4 while it was read"):
        export(tmp_path, engine=TrimmedEngine(tmp_path / "log"))
    assert not (tmp_path / "exported").exists()


def test_a_folder_that_has_something_is_refused_by_the_name_of_the_command(tmp_path: Path) -> None:
    open_in(tmp_path).close()
    export(tmp_path)
    with pytest.raises(BackupError, match="is not empty: export into an empty or a new folder"):
        export(tmp_path)


def test_the_last_tick_is_that_of_the_store(tmp_path: Path) -> None:
    with closing(open_in(tmp_path)) as store:
        store.create_vchannels([1])
        store.sync(store.write([new_entry(1, 10)]))
    assert export(tmp_path).last_tick == Tick(19)


def test_errors_have_the_exit_code_of_their_cause(tmp_path: Path) -> None:
    for error, code in (
        (DataLossError("damaged"), ExitCode.DATA_LOSS),
        (EngineUnavailableError("silent"), ExitCode.UNAVAILABLE),
        (BackupError("refused"), ExitCode.FAILURE),
        (PermissionError(13, "denied"), ExitCode.NO_PERMISSION),
    ):
        with pytest.raises(CommandError) as raised, told_of_folder(tmp_path):
            raise error
        assert raised.value.code == code
