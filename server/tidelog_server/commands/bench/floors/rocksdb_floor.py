"""The baseline for append benchmarks: RocksDB alone, with the options of the log store.

It writes given batches in groups, one atomic write and one sync each, like the log store, but without entries, checks,
indexes or a server.
"""

import itertools
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rocksdict import WriteBatch, WriteOptions

from tidelog_server.storage.rocksdb.engine import open_engine

_KEY = struct.Struct(">IQ")
_PARTS = 10


def measure_rocksdb_floor(
    folder: Path, batches: Sequence[bytes], *, count: int, warm_up: int, batches_per_group: float, synced: bool
) -> list[float]:
    """Write ``count`` batches into a new database and return the seconds of each tenth of them.

    Opening and warm-up are not measured. Fewer than ten batches count as one part.

    Args:
        folder: Folder to make; must not exist.
        batches: Batches to write, cyclically.
        count: Number of batches to write and measure.
        warm_up: Number of batches to write before; may be 0.
        batches_per_group: Average group size; groups of the two nearest whole sizes are mixed.
        synced: True if each group ends with a sync.
    """
    engine = open_engine(folder, read_only=False, create=True)
    family, options = engine.handles["columns"], WriteOptions()
    rows = zip(map(_KEY.pack, itertools.repeat(1), itertools.count()), itertools.cycle(batches), strict=False)

    def write(count: int) -> float:
        start = time.perf_counter()
        for size in group_sizes(count, batches_per_group):
            writes = WriteBatch(raw_mode=True)
            for key, batch in itertools.islice(rows, size):
                writes.put(key, batch, family)
            engine.db.write(writes, options)
            if synced:
                engine.db.flush_wal(True)
        return time.perf_counter() - start

    if warm_up:
        write(warm_up)
    parts = [count] if count < _PARTS else [count // _PARTS] * (_PARTS - 1) + [count - count // _PARTS * (_PARTS - 1)]
    seconds = [write(part) for part in parts]
    engine.db.close()
    return seconds


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
