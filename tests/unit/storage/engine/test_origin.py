"""A log is used only in the topic in which it was made, also by a process that has no view of it."""

from contextlib import closing
from pathlib import Path

import pytest

from tidelog_server.core.errors import DataLossError
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.runtime.clock import SystemClock
from tidelog_server.storage.engine.export import export_log
from tidelog_server.storage.engine.open import LogName, open_engine_store
from tidelog_server.storage.engine.store import EngineLogStore
from tidelog_server.storage.format.keys import ORIGIN_KEY, index_range
from tidelog_server.storage.recovery.gate import STORE_CHECK
from tidelog_server.storage.rocksdb.engine import close_engine, open_engine
from tidelog_testing.parts.engine_stores import INCARNATION, make_changes
from tidelog_testing.parts.entries import END, new_entry
from tidelog_testing.parts.folder_engine import FolderEngine

MADE_IN = LogName("kafka", "orders", bytes(range(16)))
COPIED_TO = LogName("kafka", "orders", bytes(range(1, 17)))


def open_as(folder: Path, name: LogName, view: str = "view") -> EngineLogStore:
    return open_engine_store(folder / view, RecordLog(FolderEngine(folder / "log"), SystemClock()), name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a log with an entry, and of its view."""
    log = RecordLog(FolderEngine(tmp_path / "log"), SystemClock())
    log.create(INCARNATION, MADE_IN.origin)
    log.close()
    with closing(open_as(tmp_path, MADE_IN)) as store:
        store.create_vchannels([1])
        store.sync(store.write([new_entry(1, 10)]))
    return tmp_path


@pytest.mark.parametrize("view", ["view", "new"])
@pytest.mark.parametrize("name", [COPIED_TO, LogName("kafka", "orders")], ids=["another id", "no id"])
def test_a_copy_of_a_log_is_data_loss_and_nothing_is_changed(folder: Path, view: str, name: LogName) -> None:
    before = FolderEngine(folder / "log").bounds()
    shown = {COPIED_TO: "AQIDBAUGBwgJCgsMDQ4PEA"}.get(name, "none")
    with pytest.raises(DataLossError, match=f"under the id AAECAwQFBgcICQoLDA0ODw, and .* has the id {shown}:"):
        open_as(folder, name, view)
    assert FolderEngine(folder / "log").bounds() == before
    with closing(open_as(folder, MADE_IN)) as store:
        assert store.head.sequence == 1


def test_what_a_copy_has_can_be_exported_if_that_is_meant(folder: Path) -> None:
    def export(target: str, *, may_be_copied: bool) -> int:
        log = RecordLog(FolderEngine(folder / "log"), SystemClock())
        path = folder / target
        return export_log(log, COPIED_TO, path, STORE_CHECK, lambda _: None, may_be_copied=may_be_copied).sequence

    with pytest.raises(DataLossError, match=r"`tidelog engine export --copied`"):
        export("refused", may_be_copied=False)
    assert export("exported", may_be_copied=True) == 1


def test_a_log_without_an_origin_is_not_used_where_logs_have_one(tmp_path: Path) -> None:
    RecordLog(FolderEngine(tmp_path / "log"), SystemClock()).create(INCARNATION)
    with pytest.raises(DataLossError, match="under the id none"):
        open_as(tmp_path, MADE_IN)


def test_a_copy_of_a_log_whose_first_record_was_trimmed_is_data_loss_too(folder: Path) -> None:
    with closing(open_as(folder, MADE_IN)) as store:
        store.trim(1, END)
        make_changes(store.snapshot())
    before = FolderEngine(folder / "log").bounds()
    assert before.begin > 0
    with pytest.raises(DataLossError, match="under the id AAECAwQFBgcICQoLDA0ODw, and"):
        open_as(folder, COPIED_TO, "new")
    assert FolderEngine(folder / "log").bounds() == before
    open_as(folder, MADE_IN, "other").close()


def test_no_drop_of_a_vchannel_deletes_the_origin(folder: Path) -> None:
    """The range of a vchannel's rows may have the key of the origin in it."""
    vchannel_id = (ORIGIN_KEY[0] << 24) - 1
    begin, end = index_range(vchannel_id)
    assert begin < ORIGIN_KEY < end
    with closing(open_as(folder, MADE_IN)) as store:
        store.create_vchannels([vchannel_id])
        store.drop_vchannels([vchannel_id])
    engine = open_engine(folder / "view" / "db", read_only=True)
    try:
        assert engine.index.get(ORIGIN_KEY) is not None
    finally:
        close_engine(engine)
    open_as(folder, MADE_IN).close()
