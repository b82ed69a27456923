"""The view of a database equals the database after its torn WAL is cut, and neither can do harm."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from tidelog_server.storage.format.data_folder import lock_data_folder, wal_files
from tidelog_server.storage.recovery.gate import quarantine
from tidelog_server.storage.recovery.view import cut_torn, make_recovery_view
from tidelog_server.storage.recovery.wal_scan import torn_wals
from tidelog_server.storage.rocksdb.engine import close_engine, open_engine


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Return a database with two WAL files left: one with a torn end, and one after it."""
    folder = tmp_path / "db"
    folder.mkdir()
    engine = open_engine(folder, read_only=False, create=True)
    engine.log.put(b"key", b"value")
    engine.db.flush_wal(True)
    (wal,) = wal_files(folder)
    sound = wal.read_bytes()
    close_engine(engine)
    for path in wal_files(folder):
        path.unlink()
    (folder / "000100.log").write_bytes(sound + b"torn")
    (folder / "000101.log").write_bytes(sound)
    (folder / "000102.log").write_bytes(sound)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(("LO", "rocksdict"))}


def test_the_view_is_what_the_cut_makes(database: Path, tmp_path: Path) -> None:
    before = contents(database)
    view = tmp_path / "view"
    view.mkdir()
    torn = make_recovery_view(database, view)
    assert contents(database) == before
    cut_torn(database, torn)
    assert contents(database) == contents(view)
    assert torn_wals(database) == []
    assert contents(database)["000100.log"] + b"torn" == before["000100.log"]
    assert not contents(database)["000101.log"]


def test_what_is_deleted_in_the_view_stays(database: Path, tmp_path: Path) -> None:
    before = contents(database)
    view = tmp_path / "view"
    view.mkdir()
    make_recovery_view(database, view)
    for path in view.iterdir():
        path.unlink()
    assert contents(database) == before


def test_a_crash_amid_the_cuts_leaves_no_hole(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torn = torn_wals(database)
    assert len(torn) == 3
    for synced_files in range(3):
        left = synced_files

        def power_fails(descriptor: int) -> None:
            nonlocal left
            if left == 0:
                raise OSError
            left -= 1

        with monkeypatch.context() as patch, pytest.raises(OSError, match=r"^$"):
            patch.setattr(os, "fsync", power_fails)
            cut_torn(database, torn)
        sizes = [path.stat().st_size for path in wal_files(database)]
        # All files after the torn one are empty before its torn end is cut.
        assert sizes[0] == torn[0].offset + len(b"torn") or sizes[1:] == [0, 0]


def test_a_crash_amid_the_move_to_quarantine_loses_nothing(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lock_data_folder(tmp_path / "data")
    folder.make_folder(folder.quarantine_path)
    database.rename(folder.database_path)
    before = contents(folder.database_path)
    expected = {f"1-{name}-{offset}": before[name][offset:] for name, offset in torn_wals(folder.database_path)}
    fsync, left = os.fsync, 0

    def power_fails(descriptor: int) -> None:
        nonlocal left
        if left == 0:
            raise OSError
        left -= 1
        fsync(descriptor)

    for synced_files in range(9):
        left = synced_files
        with monkeypatch.context() as patch, suppress(OSError):
            patch.setattr(os, "fsync", power_fails)
            quarantine(folder, torn_wals(folder.database_path), 1)
    assert left > 0, "the last attempt was interrupted too"
    assert torn_wals(folder.database_path) == []
    assert contents(folder.quarantine_path) == expected
    folder.close()
