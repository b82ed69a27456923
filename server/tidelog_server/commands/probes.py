"""Probes of a server's machine. Each reports problems as findings and does not raise."""

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
# Making a block durable takes 100 µs or more on flash with a volatile cache, and 20 µs or more on drives with protected
# caches. A faster sync can only have reached memory.
_PLAUSIBLE_SYNC_US: Final = 15.0
# A sync that takes hardly longer than the write before it did not wait for the disk.
_PLAUSIBLE_FACTOR: Final = 2.0
_GIB: Final = 1 << 30
# The doctor warns when free space is below this multiple of limits.min_free_disk_bytes.
_PLENTY: Final = 5
# Packages that the Spark source imports. Without them, Java is not needed.
_OF_SPARK: Final = ("pyspark", "pyarrow", "numpy")
_MIN_OPEN_FILES: Final = 4_096


class Severity(IntEnum):
    """Severity of a finding."""

    OK = 0
    WARNING = 1
    FAILURE = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one probe.

    Attributes:
        check: Name of the probe.
        severity: Severity of the finding.
        text: The measured value and, unless ``OK``, what to do.
    """

    check: str
    severity: Severity
    text: str


@dataclass(frozen=True, slots=True)
class SyncTimes:
    """Median times of writing and syncing a block of 4 KiB, in microseconds."""

    write_us: float
    sync_us: float


def nearest_folder(folder: Path) -> Path:
    """Return ``folder``, or its nearest existing parent, which is on the disk that ``folder`` would use."""
    folder = folder.absolute()
    while not folder.is_dir():
        folder = folder.parent
    return folder


def measure_sync(folder: Path, syncs: int = _SYNCS) -> SyncTimes:
    """Measure writing blocks to a file in ``folder`` and syncing each, as a write-ahead log does.

    Why preallocated: RocksDB preallocates its log. Without it, each sync would also wait for the file system's journal,
    which is one to ten times slower.

    Raises:
        OSError: ``folder`` is not writable, or the disk fails.
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
    """Return a warning if syncs are too fast to have reached a disk."""
    measured = f"fdatasync of 4 KiB takes {times.sync_us:.0f} µs (the write alone {times.write_us:.0f} µs)"
    if times.sync_us < _PLAUSIBLE_SYNC_US or times.sync_us < _PLAUSIBLE_FACTOR * times.write_us:
        return Finding(
            "disk sync",
            Severity.WARNING,
            f"{measured}: too fast for a disk. On a power failure, a memory file system, an unprotected write cache "
            "or a hypervisor that ignores flushes may lose acknowledged messages: use another disk",
        )
    return Finding("disk sync", Severity.OK, measured)


def check_disk(folder: Path, needed_bytes: int) -> list[Finding]:
    """Check that the disk of a data folder syncs and has free space.

    Args:
        folder: An existing folder on the disk.
        needed_bytes: Free space below which appends are refused.
    """
    try:
        times = measure_sync(folder)
    except OSError as error:
        return [Finding("disk sync", Severity.FAILURE, f"cannot write to {folder}: {error.strerror}")]
    return [judge_sync(times), check_free_space(folder, needed_bytes)]


def check_free_space(folder: Path, needed_bytes: int) -> Finding:
    """Check that appends are not refused for lack of space, now or soon."""
    status = os.statvfs(folder)
    free_bytes = status.f_bavail * status.f_frsize
    text = f"{free_bytes / _GIB:.1f} GiB free at {folder}; appends are refused below {needed_bytes / _GIB:.1f} GiB"
    if free_bytes < needed_bytes:
        return Finding("free space", Severity.FAILURE, f"{text}: free space, or lower limits.min_free_disk_bytes")
    if free_bytes < _PLENTY * needed_bytes:
        return Finding("free space", Severity.WARNING, f"{text}: free space soon")
    return Finding("free space", Severity.OK, text)


def check_clock(seconds: float = 0.25) -> list[Finding]:
    """Check that the wall clock runs at the pace of the monotonic clock, and that its date is plausible."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(seconds)
    drift_ms = abs((time.time() - wall) - (time.monotonic() - steady)) * 1e3
    pace = Finding("clock pace", Severity.OK, f"drift of {drift_ms:.2f} ms from the monotonic clock in {seconds} s")
    if drift_ms > 20:
        pace = Finding(
            "clock pace",
            Severity.WARNING,
            f"{pace.text}: the clock was stepped; ticks stay in order, but their times are wrong",
        )
    # The files of this program cannot have been written in the future.
    newest = max(path.stat().st_mtime for path in Path(__file__).parent.iterdir())
    if time.time() < newest - 1:
        behind = f"the clock is {newest - time.time():.0f} s behind the files of this program: set the clock"
        return [pace, Finding("clock date", Severity.WARNING, behind)]
    return [pace, Finding("clock date", Severity.OK, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))]


def check_java() -> list[Finding]:
    """Check for the Java that Spark needs; empty if Spark is not installed."""
    if any(importlib.util.find_spec(name) is None for name in _OF_SPARK):
        return []
    from tidelog.spark import JavaMissingError, require_java

    try:
        return [Finding("java", Severity.OK, f"{require_java()}, for Spark")]
    except JavaMissingError as error:
        # A warning only: the server does not need Java.
        return [Finding("java", Severity.WARNING, str(error))]


def check_open_files() -> Finding:
    """Check the limit of open files, which RocksDB and connections consume."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"at most {soft} open files (hard limit {hard})"
    if soft < _MIN_OPEN_FILES:
        return Finding("open files", Severity.WARNING, f"{text}: raise it with ulimit -n {_MIN_OPEN_FILES} or more")
    return Finding("open files", Severity.OK, text)
