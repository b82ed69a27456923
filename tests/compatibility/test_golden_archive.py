"""Goal: every later version reads the manifest and the files of an archive that an earlier one wrote.

Method: the golden archive, written in two runs of ``archive`` by commit 23ee37d, without Spark: the manifest through
its module, the files through pyarrow. Spark reads it in ``tests/integration/spark/test_golden_archive.py``.
"""

from pathlib import Path

import pyarrow.parquet as pq

from compatibility.content import plain
from compatibility.golden import expected, unpack
from tidelog.spark.archive import manifest


def test_the_manifest_names_the_files_and_each_file_has_its_messages(tmp_path: Path) -> None:
    root = unpack("archive", tmp_path)
    was = expected()["archive"]

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


def test_the_archive_has_the_commits_and_ends_of_the_runs(tmp_path: Path) -> None:
    archive = manifest.load(unpack("archive", tmp_path))

    assert archive.messages == sum(len(rows) for rows in expected()["archive"]["messages"].values())
    assert [manifest.read_commit(archive.root, number).number for number in (1, 2)] == [1, 2]
