"""Goal: every later version reads the manifest and the files of an archive that an earlier one wrote.

Method: the golden archives, each written in two runs of ``archive`` by the commit of its set, without Spark: the
manifest through its module, the files through pyarrow. Spark reads them in
``tests/integration/spark/test_golden_archive.py``.
"""

from pathlib import Path

import pyarrow.parquet as pq

from compatibility.content import plain
from compatibility.golden import GoldenSet, each_set
from tidelog.spark.archive import manifest


@each_set
def test_the_manifest_names_the_files_and_each_file_has_its_messages(golden: GoldenSet, tmp_path: Path) -> None:
    root = golden.unpack("archive", tmp_path)
    was = golden.expected["archive"]

    archive = manifest.load(root)

    assert [
        plain({name: getattr(file, name) for name in fields})
        for file, fields in zip(archive.files, was["files"], strict=True)
    ] == was["files"]
    found: dict[str, list[tuple[int, bytes]]] = {}
    for file in archive.files:
        assert (root / file.path).stat().st_size == file.bytes
        table = pq.ParquetFile(root / file.path).read(["tick", "payload"])
        rows = zip(table["tick"].to_pylist(), table["payload"].to_pylist(), strict=True)
        found.setdefault(file.vchannel, []).extend(rows)
    shown = {lane: [[tick, payload.decode("latin-1")] for tick, payload in rows] for lane, rows in found.items()}
    assert shown == {lane: [row[:2] for row in rows] for lane, rows in was["messages"].items()}


@each_set
def test_the_archive_has_the_commits_and_ends_of_the_runs(golden: GoldenSet, tmp_path: Path) -> None:
    archive = manifest.load(golden.unpack("archive", tmp_path))

    assert archive.messages == sum(len(rows) for rows in golden.expected["archive"]["messages"].values())
    assert [manifest.read_commit(archive.root, number).number for number in (1, 2)] == [1, 2]
