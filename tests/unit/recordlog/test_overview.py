"""What can be seen of a log at its end."""

from contextlib import closing
from pathlib import Path

import pytest

from tidelog_server.core.errors import DataLossError
from tidelog_server.recordlog.engine import Report
from tidelog_server.recordlog.overview import Overview, overview
from tidelog_server.runtime.clock import SystemClock
from tidelog_testing.parts.engine_stores import open_in
from tidelog_testing.parts.entries import new_entry
from tidelog_testing.parts.folder_engine import FolderEngine


def ignore(_: object) -> None:
    """Take a report."""


def append(engine: FolderEngine, value: bytes, report: Report = ignore) -> None:
    engine.send(value, report)
    engine.poll(0)


def test_a_topic_without_records_of_a_log_has_no_term(tmp_path: Path) -> None:
    engine = FolderEngine(tmp_path)
    assert overview(engine, SystemClock()) == Overview(engine.bounds(), None, None)
    for _ in range(3):
        append(engine, b"foreign")
    assert overview(engine, SystemClock()) == Overview(engine.bounds(), None, None)


def test_a_log_tells_its_last_term_and_entries_behind_other_records(tmp_path: Path) -> None:
    with closing(open_in(tmp_path)) as store:
        assert overview(FolderEngine(tmp_path / "log"), SystemClock())[1:] == (1, None)
        store.create_vchannels([1])
        store.sync(store.write([new_entry(1, 10), new_entry(1, 20)]))
    open_in(tmp_path).close()
    engine = FolderEngine(tmp_path / "log")
    append(engine, b"foreign")
    assert overview(engine, SystemClock()) == Overview(engine.bounds(), 2, 2)


def test_a_damaged_record_is_data_loss(tmp_path: Path) -> None:
    open_in(tmp_path).close()
    engine = FolderEngine(tmp_path / "log")
    append(engine, b"TLog and no record")
    with pytest.raises(DataLossError, match="record at position 2"):
        overview(engine, SystemClock())
