"""The baseline for append benchmarks: RocksDB alone, with the options of the log store, in a process of its own.

It writes batches in groups, one atomic write and one sync each, like the log store, but without entries, checks,
indexes or a server.
"""

import itertools
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from rocksdict import WriteBatch, WriteOptions

from tidelog_server.commands.bench.floors.floor_requests import answer_requests
from tidelog_server.commands.bench.payloads import DISTINCT, distinct_payloads, encoded_batches
from tidelog_server.storage.rocksdb.engine import open_engine

_KEY = struct.Struct(">IQ")
_PARTS = 10


class RocksdbFloor:
    """A new database, and batches to write to it."""

    def __init__(self, folder: str, size_bytes: int, per_batch: int, distinct: int) -> None:
        """Open it.

        Args:
            folder: Folder to make; must not exist.
            size_bytes: Bytes of a message.
            per_batch: Messages in a batch.
            distinct: Number of batches, which are written in turn.
        """
        self._engine = open_engine(Path(folder), read_only=False, create=True)
        payloads = distinct_payloads(size_bytes, min(DISTINCT, per_batch * distinct))
        batches = encoded_batches(payloads, per_batch=per_batch, count=distinct)
        keys = map(_KEY.pack, itertools.repeat(1), itertools.count())
        self._rows = zip(keys, itertools.cycle(batches), strict=False)

    def tenths(self, count: int, warm_up: int, batches_per_group: float, *, synced: bool) -> list[float]:
        """Write ``count`` batches, return the seconds of each tenth of them, and close the database.

        Opening and warm-up are not measured. Fewer than ten batches count as one part.

        Args:
            count: Number of batches to write and measure.
            warm_up: Number of batches to write before; may be 0.
            batches_per_group: Average group size; groups of the two nearest whole sizes are mixed.
            synced: True if each group ends with a sync.
        """
        if warm_up:
            self._write(warm_up, batches_per_group, synced=synced)
        rest = count - count // _PARTS * (_PARTS - 1)
        parts = [count] if count < _PARTS else [count // _PARTS] * (_PARTS - 1) + [rest]
        seconds = [self._write(part, batches_per_group, synced=synced) for part in parts]
        self._engine.db.close()
        return seconds

    def _write(self, count: int, batches_per_group: float, *, synced: bool) -> float:
        engine, family, options = self._engine, self._engine.handles["columns"], WriteOptions()
        start = time.perf_counter()
        for size in group_sizes(count, batches_per_group):
            writes = WriteBatch(raw_mode=True)
            for key, batch in itertools.islice(self._rows, size):
                writes.put(key, batch, family)
            engine.db.write(writes, options)
            if synced:
                engine.db.flush_wal(True)
        return time.perf_counter() - start


def group_sizes(count: int, average: float) -> Iterator[int]:
    """Yield group sizes that add up to ``count`` and whose mean is as close to ``average`` as whole numbers allow."""
    assert count > 0
    average = max(1.0, average)
    written, groups = 0, 0
    while written < count:
        groups += 1
        size = min(max(1, round(groups * average) - written), count - written)
        written += size
        yield size


if __name__ == "__main__":
    answer_requests(RocksdbFloor)
