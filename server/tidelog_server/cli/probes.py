"""Probes of the machine under a server. Each returns findings; none raises for what it finds."""

import importlib.util
import os
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

_BLOCK: Final = os.urandom(4096)
_SYNCS: Final = 64
_WARM_UP: Final = 8
# Flash with a volatile cache takes 100 µs and more to make a block durable; drives with protected caches 20 µs and
# more. Below this only memory can be meant.
_PLAUSIBLE_SYNC_US: Final = 15.0
# A sync that costs hardly more than the write before it has not waited for anything.
_PLAUSIBLE_FACTOR: Final = 2.0
_GIB: Final = 1 << 30
# Free space is scarce below so many times what appends need.
_PLENTY: Final = 5
# What reading with Spark imports; without it nobody needs Java.
_OF_SPARK: Final = ("pyspark", "pyarrow", "numpy")
_MIN_OPEN_FILES: Final = 4_096


class Severity(IntEnum):
    """How bad a finding is."""

    OK = 0
    WARNING = 1
    FAILURE = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """What one probe found.

    Attributes:
        check: Which probe.
        severity: How bad it is.
        text: The measured value, and what to do unless all is well.
    """

    check: str
    severity: Severity
    text: str


@dataclass(frozen=True, slots=True)
class SyncTimes:
    """Medians over blocks of 4 KiB, in microseconds."""

    write_us: float
    sync_us: float


def nearest_folder(folder: Path) -> Path:
    """Return ``folder`` or its nearest parent that exists: both are on the disk that would be used."""
    folder = folder.absolute()
    while not folder.is_dir():
        folder = folder.parent
    return folder


def measure_sync(folder: Path, syncs: int = _SYNCS) -> SyncTimes:
    """Write blocks to a file in ``folder`` and make each durable, as a write-ahead log does.

    Why preallocated: RocksDB does it for its log, and without it each sync would wait for the file system's journal
    too, which is one to ten times slower.

    Raises:
        OSError: The folder cannot be written to, or the disk fails.
    """
    writes, waits = [], []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, (syncs + _WARM_UP) * len(_BLOCK))
        for _ in range(syncs + _WARM_UP):
            start = time.perf_counter()
            file.write(_BLOCK)
            written = time.perf_counter()
            os.fdatasync(file.fileno())
            writes.append(written - start)
            waits.append(time.perf_counter() - written)
    return SyncTimes(
        write_us=statistics.median(writes[_WARM_UP:]) * 1e6, sync_us=statistics.median(waits[_WARM_UP:]) * 1e6
    )


def judge_sync(times: SyncTimes) -> Finding:
    """Judge whether syncs reach a disk."""
    measured = f"fdatasync of 4 KiB takes {times.sync_us:.0f} µs (the write alone {times.write_us:.0f} µs)"
    if times.sync_us < _PLAUSIBLE_SYNC_US or times.sync_us < _PLAUSIBLE_FACTOR * times.write_us:
        return Finding(
            "disk sync",
            Severity.WARNING,
            f"{measured}: too fast for a disk. A memory file system, a write cache without protection or a "
            "hypervisor that ignores flushes may lose acknowledged messages with the power",
        )
    return Finding("disk sync", Severity.OK, measured)


def check_disk(folder: Path, needed_bytes: int) -> list[Finding]:
    """Check that the disk of a data folder syncs and has room; appends are refused below ``needed_bytes``."""
    try:
        times = measure_sync(folder)
    except OSError as error:
        return [Finding("disk sync", Severity.FAILURE, f"cannot write to {folder}: {error.strerror}")]
    return [judge_sync(times), check_free_space(folder, needed_bytes)]


def check_free_space(folder: Path, needed_bytes: int) -> Finding:
    """Check that appends would not be refused for lack of space, now or soon."""
    status = os.statvfs(folder)
    free_bytes = status.f_bavail * status.f_frsize
    text = f"{free_bytes / _GIB:.1f} GiB free at {folder}, appends stop below {needed_bytes / _GIB:.1f}"
    if free_bytes < needed_bytes:
        return Finding("free space", Severity.FAILURE, f"{text}: make room, or lower limits.min_free_disk_bytes")
    if free_bytes < _PLENTY * needed_bytes:
        return Finding("free space", Severity.WARNING, f"{text}: make room soon")
    return Finding("free space", Severity.OK, text)


def check_clock(seconds: float = 0.25) -> list[Finding]:
    """Check that the wall clock runs as fast as the monotonic one, and does not say the impossible."""
    wall, steady = time.time(), time.monotonic()
    # What is measured is how the two clocks run over this while.
    time.sleep(seconds)
    drift_ms = abs((time.time() - wall) - (time.monotonic() - steady)) * 1e3
    pace = Finding("clock pace", Severity.OK, f"{drift_ms:.2f} ms apart from the monotonic clock in {seconds} s")
    if drift_ms > 20:
        pace = Finding(
            "clock pace", Severity.WARNING, f"{pace.text}: it is being stepped; ticks stay in order but lose their time"
        )
    # The folder of this program cannot have been written in the future.
    newest = max(path.stat().st_mtime for path in Path(__file__).parent.iterdir())
    if time.time() < newest - 1:
        behind = f"the clock is {newest - time.time():.0f} s behind the files of this program: set it"
        return [pace, Finding("clock date", Severity.WARNING, behind)]
    return [pace, Finding("clock date", Severity.OK, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))]


def check_java() -> list[Finding]:
    """Check that Spark finds the Java that it needs, where it is installed."""
    if any(importlib.util.find_spec(name) is None for name in _OF_SPARK):
        return []
    from tidelog.spark import JavaMissingError, require_java

    try:
        return [Finding("java", Severity.OK, f"{require_java()}, for Spark")]
    except JavaMissingError as error:
        # The server does without it.
        return [Finding("java", Severity.WARNING, str(error))]


def check_open_files() -> Finding:
    """Check the limit of open files, which RocksDB and connections need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"at most {soft} open files (hard limit {hard})"
    if soft < _MIN_OPEN_FILES:
        return Finding("open files", Severity.WARNING, f"{text}: raise it with ulimit -n {_MIN_OPEN_FILES} or more")
    return Finding("open files", Severity.OK, text)
