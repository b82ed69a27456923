"""Frees the disk space of trimmed and dropped entries.

A trim only writes range tombstones. The rows are deleted when the ranges are compacted, and a blob file once no row
refers to it any more. If a file has live and dead columns of several vchannels, the live ones are copied, but only
once enough is dead to pay for it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Final

from rocksdict import BottommostLevelCompaction, CompactOptions

from tidelog_server.core.errors import DataLossError
from tidelog_server.storage.format.keys import MAX_VCHANNEL_ID, log_end_key, log_key
from tidelog_server.storage.log_state import LogState
from tidelog_server.storage.rocksdb.engine import BLOB_FAMILIES, Engine, engine_errors
from tidelog_server.storage.rocksdb.pressure import integer_property

_COPY_AT_GARBAGE_SHARE: Final = 1 / 3
"""Share of garbage from which live columns are copied: at most two bytes copied per byte freed."""

_MAX_RANGES: Final = 1_000
"""Number of ranges above which they are merged to one per family, which compacts more than necessary."""


class Reclaimer:
    """Collects key ranges that were emptied, and compacts them on request.

    Threads: ``add`` is called by a job of the committer, ``run`` by another thread, and ``close`` by the thread that
    closes the store, possibly during ``run``.
    """

    def __init__(self, engine: Engine, state: LogState) -> None:
        self._engine = engine
        # End of each half-open range of keys, by column family and first key. Successive trims of a vchannel only move
        # the end, so that a long run is not followed by a compaction for each of them.
        self._ranges: dict[tuple[str, bytes], bytes] = {}
        # Guards _ranges.
        self._ranges_lock = Lock()
        # Held while a compaction runs, so that the engine is not closed meanwhile.
        self._run_lock = Lock()
        self._is_closed = False
        self._add_leftovers(state)

    def add(self, family: str, begin_key: bytes, end_key: bytes) -> None:
        """Record that ``[begin_key, end_key)`` of a column family is empty now."""
        assert begin_key < end_key
        with self._ranges_lock:
            self._ranges[family, begin_key] = max(end_key, self._ranges.get((family, begin_key), b""))
            if len(self._ranges) > _MAX_RANGES:
                self._ranges = _covering(self._ranges)

    def add_dropped(self, vchannel_ids: list[int]) -> None:
        """Record that these vchannels were dropped."""
        for vchannel_id in vchannel_ids:
            self._add_all(log_key(vchannel_id, 0), log_end_key(vchannel_id))

    def run(self) -> None:
        """Compact the recorded ranges. Takes long; releases the GIL; ends early once ``close`` is called.

        Raises:
            DataLossError: A compaction found damaged data. The ranges are retried at the next start.
        """
        with self._run_lock:
            with self._ranges_lock:
                ranges, self._ranges = self._ranges, {}
            # Columns first: they use nearly all of the disk space.
            for (family, begin_key), end_key in sorted(
                ranges.items(), key=lambda item: item[0][0] not in BLOB_FAMILIES
            ):
                if not self._is_closed:
                    self._compact(family, begin_key, end_key)
            for family in sorted({family for family, _ in ranges} & set(BLOB_FAMILIES)):
                if not self._is_closed and _COPY_AT_GARBAGE_SHARE <= self._garbage_share(family):
                    self._copy_live_columns(family)

    def close(self) -> None:
        """Stop a running compaction and wait for its end. Idempotent."""
        self._is_closed = True
        if not self._run_lock.acquire(blocking=False):
            self._engine.db.cancel_all_background(False)
            self._run_lock.acquire()
        self._run_lock.release()

    @contextmanager
    def _unless_closed(self, doing: str) -> Iterator[None]:
        """Run a compaction; ``close`` makes it fail immediately, which is not an error."""
        try:
            with engine_errors(doing):
                yield
        except DataLossError:
            if not self._is_closed:
                raise

    def _compact(self, family: str, begin_key: bytes, end_key: bytes) -> None:
        with self._unless_closed("compacting"):
            self._engine.family(family).compact_range(begin_key, end_key)

    def _garbage_share(self, family: str) -> float:
        columns = self._engine.family(family)
        total = integer_property(columns, "live-blob-file-size")
        return integer_property(columns, "live-blob-file-garbage-size") / total if total else 0.0

    def _copy_live_columns(self, family: str) -> None:
        columns = self._engine.family(family)
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force())
        with self._unless_closed("collecting garbage"):
            columns.set_options({"enable_blob_garbage_collection": "true", "blob_garbage_collection_age_cutoff": "1.0"})
            columns.compact_range(None, None, options)
            columns.set_options({"enable_blob_garbage_collection": "false"})

    def _add_all(self, begin_key: bytes, end_key: bytes) -> None:
        for family in ("log", *BLOB_FAMILIES):
            self.add(family, begin_key, end_key)

    def _add_leftovers(self, state: LogState) -> None:
        """Add ranges that an earlier run of the server trimmed or dropped but may not have compacted."""
        # Staged batches may have been deleted at any time.
        self.add("staged", log_key(0, 0), log_end_key(MAX_VCHANNEL_ID))
        previous_id = -1
        for vchannel_id in sorted(state.tails):
            tail = state.tails[vchannel_id]
            if tail.trim_tick:
                for family in ("log", "columns"):
                    self.add(family, log_key(vchannel_id, 0), log_key(vchannel_id, tail.trim_tick))
            if state.destroyed_batches and previous_id + 1 < vchannel_id:
                self._add_all(log_key(previous_id + 1, 0), log_key(vchannel_id, 0))
            previous_id = vchannel_id
        if state.destroyed_batches and previous_id < MAX_VCHANNEL_ID:
            self._add_all(log_key(previous_id + 1, 0), log_end_key(MAX_VCHANNEL_ID))


def _covering(ranges: Mapping[tuple[str, bytes], bytes]) -> dict[tuple[str, bytes], bytes]:
    """Return one range for each family, which covers all of its ranges."""
    covered: dict[str, tuple[bytes, bytes]] = {}
    for (family, begin_key), end_key in ranges.items():
        begin, end = covered.get(family, (begin_key, end_key))
        covered[family] = (min(begin, begin_key), max(end, end_key))
    return {(family, begin): end for family, (begin, end) in covered.items()}
