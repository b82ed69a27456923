"""Goal: the Delta table of an archive has exactly the rows of the archive's commits, even after a run has died.

Method: archives of real Parquet files, written as tasks write them and committed without Spark; delta-rs reads them
back. A run that died leaves unpublished commits, or a Delta log whose last file is missing.
"""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, QueryBuilder, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.schema import PrimitiveType

from tidelog.spark.archive import manifest
from tidelog.spark.archive.manifest import Archive, ArchivedFile, ArchivedRange, Commit
from tidelog.spark.errors import ArchiveError
from tidelog.spark.pipelines import delta
from tidelog.spark.pipelines.archiving import _Writer
from tidelog.spark.pipelines.tasks import arrow_schema
from tidelog.spark.ticks import LOGICAL_BITS

NAMES = ("orders/0", "orders/1", "_audit/0", "a.b_c-d/12")


def batch(vchannel: str, ticks: range) -> pa.RecordBatch:
    channel, index = vchannel.split("/")
    count = len(ticks)
    columns: dict[str, Any] = {
        "channel": [channel] * count, "vchannel": [int(index)] * count, "tick": ticks,
        "timestamp": [(tick >> LOGICAL_BITS) * 1_000 for tick in ticks], "type": [-1] * count,
        "key": [None if tick % 2 else b"k" for tick in ticks], "payload": [b"%d" % tick for tick in ticks],
        "properties": [[("p", "1")] if tick % 3 else [] for tick in ticks], "txn_id": [None] * count,
        "broadcast_id": [None] * count, "event_time": [datetime(2026, 1, 2, tzinfo=UTC)] * count,
    }  # fmt: skip
    return pa.RecordBatch.from_pydict(columns, arrow_schema())


def write(root: Path, vchannel: str, ticks: range) -> ArchivedFile:
    manifest.make_folder(root / manifest.vchannel_folder(vchannel))
    writer = _Writer(root, "0" * 32, vchannel)
    writer.add(batch(vchannel, ticks))
    return writer.finish()


def commit(root: Path, number: int, *names: str) -> Archive:
    """Archive ten messages of each vchannel."""
    (root / manifest.FOLDER).mkdir(exist_ok=True)
    before = manifest.load(root, must_exist=False).vchannels
    ticks = range((number * 1_000) << LOGICAL_BITS, ((number * 1_000) << LOGICAL_BITS) + 10)
    begins = {name: before[name].end_tick if name in before else 0 for name in names}
    ranges = {name: ArchivedRange(begin, ticks.stop, 1) for name, begin in begins.items()}
    files = [write(root, name, ticks) for name in names]
    manifest.append(root, Commit(number, f"run {number}", "2026-01-01T00:00:00.500+00:00", ranges, files))
    return manifest.load(root)


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: (row["channel"], row["vchannel"], row["tick"]))


def archived(there: Archive) -> list[dict[str, Any]]:
    return rows(
        pa.Table.from_batches(
            [batch(file.vchannel, range(file.first_tick, file.last_tick + 1)) for file in there.files], arrow_schema()
        )
    )


def in_delta(root: Path, where: str = "true", version: int | None = None) -> list[dict[str, Any]]:
    # Not `to_pyarrow_table`, which often ends the process with SIGABRT when Python exits.
    query = QueryBuilder().register("t", DeltaTable(root, version=version))
    return rows(pa.table(query.execute(f"SELECT * FROM t WHERE {where}").read_all()))


def log_files(root: Path) -> list[Path]:
    return sorted((root / manifest.DELTA_LOG).glob("*.json"))


def test_what_a_commit_tells_delta() -> None:
    file = ArchivedFile("data/x.parquet", "a/3", (7 << LOGICAL_BITS) + 5, 1_001 << LOGICAL_BITS, 9, 77, "0", "0")

    [add] = delta.adds_of(Commit(1, "run", "1970-01-01T00:00:02.500+00:00", {}, [file]))

    assert (add.path, add.size, add.modification_time, add.data_change) == ("data/x.parquet", 77, 2_500, True)
    assert add.partition_values == {"channel": "a", "vchannel": "3"}
    assert json.loads(add.stats) == {
        "numRecords": 9,
        "minValues": {"tick": (7 << LOGICAL_BITS) + 5, "timestamp": "1970-01-01T00:00:00.007Z"},
        "maxValues": {"tick": 1_001 << LOGICAL_BITS, "timestamp": "1970-01-01T00:00:01.001Z"},
        "nullCount": {"tick": 0, "timestamp": 0, "type": 0, "payload": 0, "properties": 0},
    }


def test_the_table_has_the_rows_of_the_archive_and_a_version_for_each_commit(tmp_path: Path) -> None:
    root = tmp_path / "a root, with ünusual characters + more"
    root.mkdir()
    commit(root, 1, *NAMES)
    there = commit(root, 2, *NAMES[:2])

    assert delta.publish(there) == 2

    assert in_delta(root) == archived(there)
    assert in_delta(root, version=1) == archived(manifest.fold(root, [manifest.read_commit(root, 1)]))
    assert delta.publish(commit(root, 3, "orders/0")) == delta.publish(manifest.load(root)) == 3
    assert len(log_files(root)) == 4


def test_filters_pass_over_files(tmp_path: Path) -> None:
    commit(tmp_path, 1, *NAMES)
    there = commit(tmp_path, 2, *NAMES)
    delta.publish(there)

    # Missing files are noticed only when they are read.
    for file in there.files:
        if file.vchannel != "orders/1" or file.first_tick < 2_000 << LOGICAL_BITS:
            (tmp_path / file.path).unlink()
    for where in (f"tick >= {2_000 << LOGICAL_BITS}", "timestamp > '1970-01-01T00:00:01.500Z'"):
        assert len(in_delta(tmp_path, f"channel = 'orders' AND vchannel = 1 AND {where}")) == 10
    with pytest.raises(Exception, match="No such file"):
        in_delta(tmp_path)


def test_what_a_run_left_out_is_published_by_the_next_one(tmp_path: Path) -> None:
    delta.publish(commit(tmp_path, 1, "orders/0"))
    commit(tmp_path, 2, "orders/0")
    there = commit(tmp_path, 3, "orders/0", "orders/1")

    assert delta.publish(there) == 3
    # A power failure lost the last files, and then all of them.
    for path in log_files(tmp_path)[-2:]:
        path.unlink()
    assert len(in_delta(tmp_path)) == 10
    assert delta.publish(there) == 3
    assert in_delta(tmp_path) == archived(there)
    # Or it left an empty file, which Delta reads as a version without actions.
    log_files(tmp_path)[-1].write_text("")
    assert delta.publish(there) == 4
    assert in_delta(tmp_path) == archived(there)
    for path in log_files(tmp_path):
        path.unlink()
    assert delta.publish(there) == 3
    assert in_delta(tmp_path) == archived(there)


def test_a_checkpoint_keeps_what_was_published(tmp_path: Path) -> None:
    commit(tmp_path, 1, "orders/0")
    delta.publish(commit(tmp_path, 2, "orders/0"))
    DeltaTable(tmp_path).create_checkpoint()
    for path in log_files(tmp_path)[:-1]:
        path.unlink()

    assert delta.publish(manifest.load(tmp_path)) == 2
    assert delta.publish(commit(tmp_path, 3, "orders/0")) == 3
    assert in_delta(tmp_path) == archived(manifest.load(tmp_path))


def test_a_torn_log_is_told_and_made_anew(tmp_path: Path) -> None:
    there = commit(tmp_path, 1, "orders/0")
    delta.publish(there)
    last = log_files(tmp_path)[-1]
    last.write_text(last.read_text()[:50])

    for attempt in (delta.check_table, delta.publish):
        with pytest.raises(ArchiveError, match=r"cannot be read or written \(.*or remove .*_delta_log") as raised:
            attempt(there)
        assert "\n" not in str(raised.value)
    for path in log_files(tmp_path):
        path.unlink()
    delta.publish(there)
    assert in_delta(tmp_path) == archived(there)


def test_the_table_of_somebody_else_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"x": [1]}))
    before = log_files(tmp_path)

    with pytest.raises(ArchiveError, match="is not of this archive"):
        delta.check_table(Archive(tmp_path))
    there = commit(tmp_path, 1, "orders/0")
    for attempt in (delta.check_table, delta.publish):
        with pytest.raises(ArchiveError, match="is not of this archive"):
            attempt(there)
    assert log_files(tmp_path) == before


def test_a_table_that_is_ahead_of_its_archive_is_refused(tmp_path: Path) -> None:
    there = commit(tmp_path, 1, "orders/0")
    delta.publish(commit(tmp_path, 2, "orders/0"))
    with pytest.raises(ArchiveError, match="has commit 2 of the archive, but the archive ends with 1"):
        delta.check_table(there)


def test_a_folder_that_delta_misreads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="has a '%' followed by two digits"):
        delta.check_table(Archive(tmp_path / "a%20b"))
    delta.check_table(Archive(tmp_path / "100%"))


def test_a_column_that_comes_later_is_null_in_older_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = arrow_schema()
    older = whole.remove(whole.get_field_index("event_time"))
    first = commit(tmp_path, 1, "orders/0")
    with monkeypatch.context() as patch:
        patch.setattr(delta, "arrow_schema", lambda: older)
        delta.publish(first)
    assert "event_time" not in DeltaTable(tmp_path).schema().to_json()
    there = commit(tmp_path, 2, "orders/0")

    delta.publish(there)

    assert in_delta(tmp_path) == archived(there)
    # A column that another program added is kept; a column with another type is refused.
    DeltaTable(tmp_path).alter.add_columns([Field("theirs", PrimitiveType("long"))])
    delta.publish(commit(tmp_path, 3, "orders/0"))
    assert [row["theirs"] for row in in_delta(tmp_path)] == [None] * 30
    commit(tmp_path, 4, "orders/0")
    place = whole.get_field_index("event_time")
    with monkeypatch.context() as patch:
        patch.setattr(delta, "arrow_schema", lambda: whole.set(place, pa.field("event_time", pa.string())))
        with pytest.raises(ArchiveError, match="the column 'event_time' of the Delta table has the type"):
            delta.publish(manifest.load(tmp_path))


def test_delta_deletes_no_file_of_the_archive(tmp_path: Path) -> None:
    commit(tmp_path, 1, "orders/0", "orders/1")
    there = commit(tmp_path, 2, "orders/0", "orders/1")
    delta.publish(there)
    staged = write(tmp_path, "orders/0", range(5_000 << LOGICAL_BITS, (5_000 << LOGICAL_BITS) + 1))
    table = DeltaTable(tmp_path)

    # OPTIMIZE replaces our files, and VACUUM deletes unreferenced files.
    assert table.optimize.compact()["numFilesRemoved"] == 4
    assert table.vacuum(dry_run=False, full=True) == []
    with pytest.raises(DeltaError, match="Invalid retention period"):
        table.vacuum(dry_run=False, retention_hours=168, full=True)
    with pytest.raises(DeltaError, match="append-only"):
        table.delete("vchannel = 1")

    assert all((tmp_path / file.path).is_file() for file in [*there.files, staged])
    delta.publish(commit(tmp_path, 3, "orders/1"))
    assert in_delta(tmp_path) == archived(manifest.load(tmp_path))


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.delitem(sys.modules, "tidelog.spark.pipelines.delta")
    with pytest.raises(ArchiveError, match=r"pip install '\.\[delta\]'"):
        __import__("tidelog.spark.pipelines.delta")
