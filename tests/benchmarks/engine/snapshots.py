"""Snapshots of a log with many vchannels and producers: their size, how long they take, and their share of the log.

Method: a store over a log in a folder; a thread makes snapshots when they are due, as a server does, while another one
appends.
"""

import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog_server.commands.bench.report import Report
from tidelog_server.core.producers import MAX_WINDOW_BATCHES, ProducerKey, ProducerWindow, Result
from tidelog_server.log.rows import WINDOWS
from tidelog_server.runtime.logging import configure_logging
from tidelog_server.storage.engine.store import EngineLogStore
from tidelog_testing.parts.engine_stores import open_in
from tidelog_testing.parts.entries import new_entry

_ENTRY_BYTES: Final = 10_000
_GROUP_ENTRIES: Final = 100
_GROUPS_AHEAD: Final = 5


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """Settings of a measurement of snapshots.

    Attributes:
        vchannels: Number of vchannels, each with an entry.
        producers: Number of producers with full windows.
        load_mib: MiB that are appended, in entries of 10 KB.
    """

    vchannels: int
    producers: int
    load_mib: int


def measure_snapshots(folder: Path, settings: SnapshotSettings) -> Report:
    """Return the size of snapshots and their share of the log."""
    # The output is the report.
    configure_logging("warning", "auto")
    store = open_in(folder)
    try:
        _fill(store, settings)
        begin_s = time.perf_counter()
        list(store.snapshot())
        alone_s = time.perf_counter() - begin_s
        return _under_load(store, settings, alone_s)
    finally:
        store.close()


def _fill(store: EngineLogStore, settings: SnapshotSettings) -> None:
    store.create_vchannels(range(1, settings.vchannels + 1))
    windows: dict[ProducerKey, ProducerWindow | None] = {}
    for number in range(settings.producers):
        window = ProducerWindow(1)
        for sequence in range(MAX_WINDOW_BATCHES):
            window = window.extended(Result(100 + sequence, 1, number, True))
        windows[1 + number % settings.vchannels, f"producer-{number:08}"] = window
    store.write([new_entry(vchannel_id, 100) for vchannel_id in range(1, settings.vchannels + 1)])
    store.write([], WINDOWS.changes(windows))
    store.sync()


def _under_load(store: EngineLogStore, settings: SnapshotSettings, alone_s: float) -> Report:
    place = store._snapshots._writer.view.place
    size_bytes = store._snapshots.newest.size_bytes
    written: list[int] = []
    ended = threading.Event()

    def keep_shortening() -> None:
        while not ended.is_set():
            made = store._snapshots.made
            # Without the changes that write columns again: they are a figure of the topic.
            next(store.shorten(), None)
            if store._snapshots.made > made:
                written.append(store._snapshots.newest.size_bytes)
            ended.wait(0.1)

    thread = threading.Thread(target=keep_shortening)
    thread.start()
    marks: list[int] = []
    times_s: list[float] = []
    begin_s = time.perf_counter()
    try:
        for number in range(settings.load_mib * (1 << 20) // (_ENTRY_BYTES * _GROUP_ENTRIES)):
            group_s = time.perf_counter()
            tick = 1_000 + 10 * number
            first = number * _GROUP_ENTRIES
            ids = sorted({1 + (first + each) % settings.vchannels for each in range(_GROUP_ENTRIES)})
            marks.append(store.write([new_entry(each, tick, size_bytes=_ENTRY_BYTES) for each in ids]))
            if len(marks) == _GROUPS_AHEAD:
                store.sync(marks.pop(0))
            times_s.append(time.perf_counter() - group_s)
        store.sync()
    finally:
        ended.set()
        thread.join()
    took_s = time.perf_counter() - begin_s
    log_bytes = store._snapshots._writer.view.place.log_bytes - place.log_bytes
    return Report(
        name="engine snapshots",
        settings={
            "vchannels": settings.vchannels, "producers": settings.producers, "load_mib": settings.load_mib,
        },
        megabytes_per_second=log_bytes / took_s / 1e6,
        details={
            "snapshot_bytes": size_bytes, "snapshot_alone_s": alone_s, "snapshots": len(written),
            "last_snapshot_bytes": written[-1] if written else 0, "share_of_log": sum(written) / log_bytes,
            "group_p50_ms": 1e3 * statistics.median(times_s),
            "group_p99_ms": 1e3 * statistics.quantiles(times_s, n=100)[98],
            "group_max_ms": 1e3 * max(times_s),
        },
    )  # fmt: skip
