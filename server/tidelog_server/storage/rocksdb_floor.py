"""The floor that appends are measured against: RocksDB alone, with the options of the log store and nothing around it.

It writes given batches in groups, one atomic write and one sync each, as the log store does, but without entries,
checks, indexes or a server.
"""

import itertools
import struct
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rocksdict import WriteBatch, WriteOptions

from tidelog_server.storage.rocksdb_engine import open_engine

_KEY = struct.Struct(">IQ")
_PARTS = 10


def measure_rocksdb_floor(
    folder: Path, batches: Sequence[bytes], *, count: int, warm_up: int, batches_per_group: float, synced: bool
) -> list[float]:
    """Write ``count`` batches into a new database and return the seconds that each tenth of them took.

    Opening and warm-up do not count. Fewer than ten batches count as one part.

    Args:
        folder: Does not exist yet.
        batches: What to write, over and over.
        count: How many to write.
        warm_up: How many to write before them; may be 0.
        batches_per_group: On average; groups of the two whole sizes around it are mixed.
        synced: Whether each group ends with a sync.
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
    """Yield group sizes that add up to ``count`` and have ``average`` as their mean, as far as whole numbers go."""
    assert count > 0
    average = max(1.0, average)
    written, groups = 0, 0
    while written < count:
        groups += 1
        size = min(max(1, round(groups * average) - written), count - written)
        written += size
        yield size
