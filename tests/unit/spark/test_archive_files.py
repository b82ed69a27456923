"""A file that an archive names is read only if it is a regular file below the archive."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.spark.archive import manifest
from tidelog.spark.archive.files import open_inside
from tidelog.spark.archive.manifest import ArchivedFile
from tidelog.spark.archive.partition import ArchivePartition
from tidelog.spark.archive.reader import _batches
from tidelog.spark.errors import ArchiveError

FILE = ArchivedFile(f"{manifest.vchannel_folder('a/0')}/0.parquet", "a/0", 0, 9, 1, 9, "0" * 32, "0" * 32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of an archive's file."""
    path = tmp_path / "archive" / FILE.path
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1")
    return path


def test_a_regular_file_is_opened(path: Path, tmp_path: Path) -> None:
    with os.fdopen(open_inside(tmp_path / "archive", FILE.path), "rb") as file:
        assert file.read() == b"PAR1"


def a_link(path: Path) -> None:
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def a_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def behind_a_link(path: Path) -> None:
    folder = path.parent.parent
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


@pytest.mark.timeout(30)
@pytest.mark.parametrize("damage", [a_link, a_pipe, a_device, behind_a_link])
def test_anything_else_is_refused_without_being_read(
    path: Path, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    damage(path)
    with pytest.raises(OSError):  # noqa: PT011 - of any kind
        open_inside(tmp_path / "archive", FILE.path)
    with pytest.raises(ArchiveError, match="damaged"):
        list(_batches(ArchivePartition(str(tmp_path / "archive"), FILE), {"tick"}))
