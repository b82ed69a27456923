"""Checks of a job's arguments before Spark starts, which takes ten seconds.

Each job repeats these checks when it runs; they are here so that the user gets errors early.
"""

import errno
import os
import re
from pathlib import Path
from typing import Final

from tidelog.spark.archive import manifest
from tidelog.spark.archive.plan import check_channels
from tidelog.spark.options import ReadOptions, parse_options
from tidelog.spark.owners import Owners
from tidelog.spark.pipelines.archiving import archive_options, delta_publisher
from tidelog.spark.pipelines.compaction import folder_of_snapshots
from tidelog.spark.pipelines.digest import Digest
from tidelog.spark.pipelines.tasks import SourceOptions
from tidelog.spark.pipelines.verification import verify_options
from tidelog.spark.read.plan import describe

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def check_archive(root: str | Path, options: SourceOptions, *, delta: bool = False) -> None:
    """Raise what ``archive`` would raise about its options, channels and folder. Creates the folder."""
    read, folder = archive_options(options), manifest.folder_path(root)
    _check_writable(folder)
    _check_channels(read)
    with manifest.writing(folder):
        delta_publisher(manifest.load(folder, must_exist=False), is_wanted=delta)


def check_compact(output: str | Path, options: SourceOptions) -> None:
    """Raise what ``compact`` would raise about its options, channels and folder. Creates the folder."""
    read, folder = parse_options(options), folder_of_snapshots(output)
    _check_writable(folder)
    _check_channels(read)
    manifest.make_folder(folder)


def check_verify(options: SourceOptions, *, digest: str | None = None, content_digest: str | None = None) -> None:
    """Raise what ``verify`` would raise about its options and channels; OptionError for an invalid digest."""
    for text in filter(None, (digest, content_digest)):
        Digest.parse(text)
    _check_channels(verify_options(options))


def check_stats(options: SourceOptions, *, output: str | Path | None = None) -> None:
    """Raise what ``stats`` would raise about its options, channels and folder."""
    read = parse_options(options)
    # Spark writes there, and may support URLs of object stores.
    if output is not None and not _SCHEME.match(str(output)):
        _check_writable(Path(output).absolute())
    _check_channels(read)


def check_file(path: Path) -> None:
    """Raise OSError if ``path`` cannot be written: its folder is missing or not writable, or it is a folder."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise _os_error(errno.ENOTDIR if folder.exists() else errno.ENOENT, folder)
    if path.is_dir():
        raise _os_error(errno.EISDIR, path)
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise _os_error(errno.EACCES, path)


def _check_channels(read: ReadOptions) -> None:
    archive = manifest.load(read.archive) if read.archive else None
    if read.archive_only:
        return
    # Closed before Spark forks to start Java: gRPC must have no open channel at a fork.
    with Owners(read.connection) as owners:
        channels = describe(owners, read)[1]
    if archive is not None:
        check_channels(archive, channels)


def _check_writable(folder: Path) -> None:
    """Raise OSError if ``folder`` cannot be written or created."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise _os_error(errno.ENOTDIR, there)
    if not os.access(there, os.W_OK | os.X_OK):
        raise _os_error(errno.EACCES, there)


def _os_error(code: int, path: Path) -> OSError:
    return OSError(code, os.strerror(code), str(path))
