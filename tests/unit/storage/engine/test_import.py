"""An import copies a data folder into an empty log, and a log that has a part of one is never served."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.cluster import OwnershipLostError
from tidelog_server.recordlog.engine import LogSetupError
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.recordlog.rules import START, Reader
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.engine.export import export_log
from tidelog_server.storage.engine.imports import Imported, LogNotEmptyError, folder_to_import
from tidelog_server.storage.format.cluster_file import ClusterIdentity, write_identity
from tidelog_server.storage.format.folder_errors import DataFolderError, FolderInUseError
from tidelog_server.storage.recovery.gate import STORE_CHECK
from tidelog_server.storage.recovery.open import open_rocksdb_log_store
from tidelog_testing.parts.engine_stores import INCARNATION, NAME, create_log, open_in, state_of
from tidelog_testing.parts.entries import fill, new_entry
from tidelog_testing.parts.folder_engine import FolderEngine


class Interrupted(Exception):
    """The import ends here, as by SIGKILL."""


class InterruptedEngine(FolderEngine):
    """A log whose importer dies once it has ``left`` records more."""

    left = 3

    def _store(self, value: bytes) -> int:
        if not self.left:
            raise Interrupted
        self.left -= 1
        return super()._store(value)


def import_(folder: Path, engine: FolderEngine | None = None, path: str = "store") -> Imported:
    log = RecordLog(engine or FolderEngine(folder / "log"), SystemClock())
    with folder_to_import(folder / path, STORE_CHECK) as opened:
        return opened.copy_into(log, NAME, lambda _: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a data folder that has several groups, and an empty log."""
    with closing(open_rocksdb_log_store(tmp_path / "store")) as store:
        fill(store, size_bytes=90_000)
    create_log(FolderEngine(tmp_path / "log"))
    return tmp_path


def test_a_log_has_everything_that_the_folder_had_and_gives_it_back(folder: Path) -> None:
    with closing(open_rocksdb_log_store(folder / "store")) as store:
        state = state_of(store)
    files = {path.name for path in (folder / "store").rglob("*")}
    imported = import_(folder)
    assert {path.name for path in (folder / "store").rglob("*")} == files
    assert (imported.sequence, imported.last_tick) == (state["head"].sequence, state["head"].last_tick)
    assert imported.end == FolderEngine(folder / "log").bounds().end
    with closing(open_in(folder)) as served:
        assert state_of(served) == state
        assert served.incarnation == INCARNATION
        served.sync(served.write([new_entry(1, 50_000, size_bytes=900)]))
        state = state_of(served)
    log = RecordLog(FolderEngine(folder / "log"), SystemClock())
    export_log(log, NAME, folder / "exported", STORE_CHECK, lambda _: None)
    with closing(open_rocksdb_log_store(folder / "exported")) as store:
        assert state_of(store) == state
    # The folder is as it was, and may be served again.
    open_rocksdb_log_store(folder / "store").close()


def test_an_empty_store_is_imported(tmp_path: Path) -> None:
    open_rocksdb_log_store(tmp_path / "store").close()
    create_log(FolderEngine(tmp_path / "log"))
    assert import_(tmp_path)[:3] == (0, 0, 0)
    with closing(open_in(tmp_path)) as served:
        served.create_vchannels([1])
        served.sync(served.write([new_entry(1, 10)]))
        assert served.head.sequence == 1


# -- Logs that cannot be imported into -------------------------------------------------------------------------


def test_a_log_that_has_something_is_refused_and_not_claimed(folder: Path) -> None:
    with closing(open_in(folder)) as owner:
        owner.create_vchannels([1])
        before = FolderEngine(folder / "log").bounds()
        with pytest.raises(LogNotEmptyError, match="log 'test-log' is not empty, so nothing was imported"):
            import_(folder)
        assert FolderEngine(folder / "log").bounds() == before
        owner.sync(owner.write([new_entry(1, 10)]))
    engine = FolderEngine(folder / "log")
    engine.trim(2)
    with pytest.raises(LogNotEmptyError):
        import_(folder)


def test_a_log_that_was_never_created_is_refused(folder: Path) -> None:
    with pytest.raises(DataLossError, match="has no first record"):
        import_(folder, FolderEngine(folder / "none"))


def test_a_log_that_was_claimed_and_has_nothing_is_empty(folder: Path) -> None:
    open_in(folder).close()
    assert import_(folder).sequence


@pytest.mark.parametrize("left", [2, 3, 5])
def test_a_part_of_a_folder_is_never_served_or_exported_and_is_replaced_by_the_next_import(
    folder: Path, left: int
) -> None:
    engine = InterruptedEngine(folder / "log")
    engine.left = left
    with pytest.raises(Interrupted):
        import_(folder, engine)
    before = FolderEngine(folder / "log").bounds()
    for attempt in (
        lambda: open_in(folder), lambda: open_in(folder),
        lambda: export_log(
            RecordLog(FolderEngine(folder / "log"), SystemClock()), NAME, folder / "x", STORE_CHECK, lambda _: None
        ),
    ):  # fmt: skip
        with pytest.raises(LogSetupError, match="has a part of a data folder only, because its import has not ended"):
            attempt()
    # It was not claimed either: an import that is still running is not disturbed.
    assert FolderEngine(folder / "log").bounds() == before
    # A row that the folder has no more when the import is repeated.
    with closing(open_rocksdb_log_store(folder / "store")) as store:
        store.drop_vchannels([2])
        state = state_of(store)
    engine = InterruptedEngine(folder / "log")
    engine.left = left
    with pytest.raises(Interrupted):
        import_(folder, engine)
    assert import_(folder).sequence == state["head"].sequence
    # Also with the view of the parts.
    with closing(open_in(folder)) as served:
        assert state_of(served) == state
    with pytest.raises(LogNotEmptyError):
        import_(folder)


def test_a_log_is_replaced_if_nobody_uses_it_and_has_no_metadata_then(folder: Path) -> None:
    import_(folder)
    with closing(open_in(folder)) as served:
        served.metadata_rows().apply([(b"vkey", b"value")], [])
        served.sync(served.write([new_entry(1, 50_000)]))
        assert list(served.metadata_rows().scan())
    with folder_to_import(folder / "store", STORE_CHECK) as opened:
        log = RecordLog(FolderEngine(folder / "log"), SystemClock())
        imported = opened.copy_into(log, NAME, lambda _: None, has_metadata=False, replaces=True)
    with closing(open_rocksdb_log_store(folder / "store")) as store:
        state = state_of(store)
        assert opened.identity == store.incarnation.hex()
    with closing(open_in(folder)) as served:
        assert state_of(served) == state
        assert list(served.metadata_rows().scan()) == []
    assert imported.sequence == state["head"].sequence


def test_an_import_that_ended_before_its_first_group_is_repeated(folder: Path) -> None:
    engine = InterruptedEngine(folder / "log")
    engine.left = 1
    with pytest.raises(Interrupted):
        import_(folder, engine)
    assert import_(folder).sequence


class OvertakenEngine(FolderEngine):
    """A log that a server claims after some records of an import."""

    claim: Callable[[], None] | None = None
    left = 3

    def _store(self, value: bytes) -> int:
        self.left -= 1
        if not self.left and self.claim is not None:
            self.claim()
        return super()._store(value)


def test_an_import_whose_log_is_claimed_stops(folder: Path) -> None:
    engine = OvertakenEngine(folder / "log")

    def claim() -> None:
        log = RecordLog(FolderEngine(folder / "log"), SystemClock())
        log.claim(Reader(START), 0, None, lambda _: None)

    engine.claim = claim
    with pytest.raises(OwnershipLostError, match="claimed the log 'test-log'"):
        import_(folder, engine)
    with pytest.raises(LogSetupError, match="import has not ended"):
        open_in(folder)


# -- Folders that cannot be imported ---------------------------------------------------------------------------


def test_a_folder_in_use_is_refused(folder: Path) -> None:
    with closing(open_rocksdb_log_store(folder / "store")), pytest.raises(FolderInUseError):
        import_(folder)
    assert FolderEngine(folder / "log").bounds() == (0, 1)


def test_a_folder_that_a_start_would_refuse_is_refused(folder: Path) -> None:
    (folder / "store" / "HEAD").unlink()
    with pytest.raises(DataLossError, match="HEAD is missing"):
        import_(folder)
    assert FolderEngine(folder / "log").bounds() == (0, 1)


def test_a_folder_of_another_kind_is_refused(folder: Path) -> None:
    (folder / "empty").mkdir()
    open_in(folder).close()
    write_identity(folder / "store", ClusterIdentity("c", "node-1", 1))
    for path, text in (
        ("empty", "is no data folder: it has no FORMAT"),
        ("missing", "is no data folder: it has no FORMAT"),
        ("view", "is the view of a log in an engine, which is no data folder"),
        ("store", "is that of node 'node-1' of a cluster"),
    ):
        with pytest.raises(DataFolderError, match=text):
            import_(folder, path=path)
    assert not (folder / "missing").exists()
    assert list((folder / "empty").iterdir()) == []
